"""The native backend on the real kernel: what a command tries, and what comes of it.

Everything runs three times: as root in a user namespace, as root without one, as an ordinary user. Run by an
ordinary user, everything runs as that user.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from holdfast.light import replace
from holdfast.sandbox.kernel.landlock import FAKE_ABI
from holdfast.sandbox.plan import plan as plans
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind
from tests.support import confinement, identity
from tests.support.confinement import Options, Outcome
from tests.support.root_only import root_only

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]

AS_ROOT = root_only("to be tried as root")
EPERM, ESRCH, EACCES = 1, 3, 13


@dataclass(frozen=True)
class Who:
    uid: int
    userns: bool


@pytest.fixture(
    params=[
        pytest.param(Who(0, True), id="root-userns", marks=AS_ROOT),
        pytest.param(Who(0, False), id="root-plain", marks=AS_ROOT),
        pytest.param(Who(identity.USER, True), id="user"),
    ]
)
def who(request: pytest.FixtureRequest) -> Who:
    identity = request.param
    assert isinstance(identity, Who)
    return identity


class Scene:
    """A workspace with something protected and something denied in it, and a place outside."""

    def __init__(self, top: Path, who: Who) -> None:
        self.who = who
        self.top = top
        self.workspace = top / "ws"
        self.outside = top / "outside"
        for folder in (".git", "conf/locked", "secrets/vault", "deep/hidden/open", "src"):
            (self.workspace / folder).mkdir(parents=True)
        self.outside.mkdir()
        for name, text in {
            "ws/.git/config": "config",
            "ws/conf/locked/file": "locked",
            "ws/secrets/key": "KEY",
            "ws/secrets/vault/inner": "INNER",
            "ws/deep/hidden/file": "HIDDEN",
            "ws/deep/hidden/open/file": "open",
            "ws/file": "file",
            "outside/file": "outside",
        }.items():
            (top / name).write_text(text, "utf-8")
        identity.hand_over(top, who.uid)
        steps = (
            *(self.step(StepKind.PIN, name) for name in ("conf", "secrets", "deep")),
            self.step(StepKind.WRITABLE, ""),
            self.step(StepKind.READ_ONLY, ".git"),
            self.step(StepKind.READ_ONLY, "conf/locked"),
            self.step(StepKind.MASK_FILE, "secrets/key"),
            self.step(StepKind.MASK_DIRECTORY, "secrets/vault"),
            self.step(StepKind.MASK_DIRECTORY, "deep/hidden"),
            self.step(StepKind.WRITABLE, "deep/hidden/open"),
        )
        self.plan = Plan(Base.HOST, steps, network_off=True, cwd=str(self.workspace))

    def step(self, kind: StepKind, name: str) -> Step:
        return Step(kind, str(self.workspace / name))

    def run(self, *argv: str, plan: Plan | None = None, **options: object) -> Outcome:
        chosen: dict[str, object] = {"userns": self.who.userns, "uid": self.who.uid, **options}
        return confinement.run(plan or self.plan, *argv, **chosen)  # type: ignore[arg-type]  # keywords of run

    def sh(self, script: str, *, plan: Plan | None = None) -> Outcome:
        return self.run("sh", "-c", script, plan=plan)

    def python(self, code: str, *args: str, plan: Plan | None = None, **options: object) -> Outcome:
        return self.run("/usr/bin/python3", "-c", textwrap.dedent(code), *args, plan=plan, **options)

    def tree(self) -> list[str]:
        return sorted(str(path) for path in self.top.rglob("*"))

    def empty_plan(self) -> Plan:
        roots = [root for root in ("/usr", "/etc") if Path(root).is_dir()]
        links = tuple(
            PlanLink(path, os.readlink(path)) for path in ("/bin", "/lib", "/lib64") if os.path.islink(path)
        )
        roots += [path for path in ("/bin", "/lib", "/lib64") if not os.path.islink(path)]
        readable = tuple(Step(StepKind.READABLE, root) for root in roots)
        pins = tuple(step for step in self.plan.steps if step.kind is StepKind.PIN)
        return replace(
            self.plan, base=Base.EMPTY, steps=(*pins, *readable, *self.plan.steps[len(pins) :]), links=links
        )


@pytest.fixture
def scene(who: Who) -> Iterator[Scene]:
    top = Path(tempfile.mkdtemp(prefix="holdfast-view-"))  # an ordinary user can not enter pytest's
    try:
        top.chmod(0o755)
        yield Scene(top, who)
    finally:
        shutil.rmtree(top)


# Every attempt below prints the errno, or 0.
TRY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    args = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    print(ctypes.get_errno() if result < 0 else 0)
def attempt(function, *args):
    try:
        function(*args)
    except OSError as exc:
        print(exc.errno)
    else:
        print(0)
"""


# --- files


def test_a_write_outside_is_refused(scene: Scene) -> None:
    before = scene.tree()
    done = scene.sh(f"cd {scene.outside}; echo x > new; echo x > file; rm file; mkdir d; chmod 777 file")
    assert done.status != 0
    assert done.output.count("Read-only file system") == 5
    assert scene.tree() == before
    assert (scene.outside / "file").read_text("utf-8") == "outside"


def test_a_link_leads_nowhere_writable(scene: Scene) -> None:
    done = scene.sh(f"ln -s {scene.outside} way && echo x > way/new; echo x > src/../../outside/new")
    assert done.output.count("Read-only file system") == 2
    assert os.listdir(scene.outside) == ["file"]


def test_a_write_inside_reaches_the_host(scene: Scene) -> None:
    done = scene.sh("echo relative > src/new && echo absolute > $PWD/new && mkdir -p a/b && rm file")
    assert (done.status, done.output, done.weakened) == (0, "", [])
    assert (scene.workspace / "src/new").read_text("utf-8") == "relative\n"
    assert (scene.workspace / "new").stat().st_uid == scene.who.uid
    assert not (scene.workspace / "file").exists()


def test_protected_folders_are_read_only(scene: Scene) -> None:
    done = scene.sh(
        "cat .git/config; echo x > .git/config; echo x > .git/hook; rm conf/locked/file; "
        "mv .git g; rm -rf .git; rmdir conf/locked"
    )
    assert done.output.startswith("config")
    assert (scene.workspace / ".git/config").read_text("utf-8") == "config"
    assert (scene.workspace / "conf/locked/file").read_text("utf-8") == "locked"


def test_what_is_denied_can_not_be_read(scene: Scene) -> None:
    done = scene.sh(
        "cat secrets/key; ls secrets/vault; cat secrets/vault/inner; ls deep/hidden; cat deep/hidden/file; "
        "echo x > secrets/key; chmod 777 secrets/key secrets/vault; rm -rf secrets; true"
    )
    assert not {"KEY", "INNER", "HIDDEN"} & set(done.output.split())
    assert (scene.workspace / "secrets/key").read_text("utf-8") == "KEY"
    assert (scene.workspace / "secrets/vault/inner").read_text("utf-8") == "INNER"


def test_a_grant_below_a_denied_folder_works(scene: Scene) -> None:
    done = scene.sh("cat deep/hidden/open/file; echo new > deep/hidden/open/new; mkdir deep/hidden/x")
    assert done.output.startswith("open")
    assert (scene.workspace / "deep/hidden/open/new").read_text("utf-8") == "new\n"
    assert sorted(os.listdir(scene.workspace / "deep/hidden")) == ["file", "open"]


def test_a_protected_parent_can_not_be_renamed_for_the_next_command(scene: Scene) -> None:
    scene.sh("mv secrets s2; mv conf c2; mv deep d2; mkdir x; mv secrets x/; mv conf x/")
    second = scene.sh("cat s2/key x/secrets/key; echo x > c2/locked/file; echo x > x/conf/locked/file")
    assert "KEY" not in second.output
    assert (scene.workspace / "secrets/key").read_text("utf-8") == "KEY"
    assert (scene.workspace / "conf/locked/file").read_text("utf-8") == "locked"


def test_pins_do_not_hinder_moves_and_links_inside(scene: Scene) -> None:
    done = scene.sh("echo 1 > conf/a; mv conf/a secrets/b && ln secrets/b src/c && mv src src2 && cat src2/c")
    assert (done.status, done.output) == (0, "1\n")


def test_a_hard_link_takes_nothing_in_or_out(scene: Scene) -> None:
    done = scene.sh(
        f"ln {scene.outside}/file o; ln .git/config g; ln secrets/key k; ln file {scene.outside}/new; "
        f"ln file .git/new; true"
    )
    assert not {"o", "g", "k"} & set(os.listdir(scene.workspace))
    assert os.listdir(scene.outside) == ["file"]
    assert done.output.count("\n") == 5


def test_an_empty_base_shows_only_what_the_plan_names(scene: Scene) -> None:
    done = scene.sh(f"ls /; ls {scene.top}; cat {scene.outside}/file; cat file", plan=scene.empty_plan())
    assert "outside" not in done.output.replace(f"{scene.outside}", "")
    assert done.output.endswith("file")
    assert not {"home", "root", "var", "sys"} & set(done.output.split())


def test_an_empty_base_keeps_every_rule(scene: Scene) -> None:
    done = scene.sh(
        "echo x > new; echo x > .git/new; cat secrets/key; mv secrets s; mv conf c; mkdir /new; "
        "touch /usr/new; cat deep/hidden/open/file; ls /..",
        plan=scene.empty_plan(),
    )
    assert (scene.workspace / "new").exists()
    assert sorted(os.listdir(scene.workspace / ".git")) == ["config"]
    assert {"secrets", "conf"} < set(os.listdir(scene.workspace))
    assert "KEY" not in done.output
    assert "open" in done.output
    assert "home" not in done.output.split()


def test_a_writable_root_still_denies(scene: Scene) -> None:
    steps = tuple(step for step in scene.plan.steps if step.kind in (StepKind.PIN, StepKind.MASK_FILE))
    pins = tuple(step for step in steps if step.kind is StepKind.PIN)
    plan = replace(scene.plan, steps=(*pins, Step(StepKind.WRITABLE, "/"), *steps[len(pins) :]))
    done = scene.sh(f"echo x > {scene.outside}/new; cat secrets/key; mv secrets s; ls /dev", plan=plan)
    assert (scene.outside / "new").read_text("utf-8") == "x\n"
    assert "KEY" not in done.output
    assert (scene.workspace / "secrets").is_dir()
    assert "kmsg" not in done.output


def test_an_untouched_base_leaves_the_files_alone(scene: Scene) -> None:
    plan = replace(scene.plan, base=Base.UNTOUCHED, steps=())
    done = scene.sh(f"echo x > {scene.outside}/new; ls /proc | grep -c '^[0-9]*$'", plan=plan)
    assert (scene.outside / "new").exists()
    assert int(done.output) < 6


def test_a_link_that_appears_in_the_plans_path_is_not_followed(scene: Scene) -> None:
    shutil.rmtree(scene.workspace / "src")
    (scene.workspace / "src").symlink_to(scene.outside)
    plan = replace(scene.plan, steps=(*scene.plan.steps, scene.step(StepKind.WRITABLE, "src")))
    done = scene.sh("true", plan=plan)
    assert (done.failed, done.errno, done.status) == ("writable", 40, 125)


@pytest.mark.parametrize("kind", [StepKind.WRITABLE, StepKind.READ_ONLY, StepKind.MASK_FILE, StepKind.PIN])
def test_a_path_that_vanished_stops_the_start_and_is_not_made(scene: Scene, kind: StepKind) -> None:
    before = scene.tree()
    plan = replace(scene.plan, steps=(*scene.plan.steps, scene.step(kind, "src/gone")))
    done = scene.sh("touch ran", plan=plan)
    assert (done.failed, done.errno) == (kind.value, 2)
    assert scene.tree() == before


def test_a_mount_point_is_never_made_on_the_host(scene: Scene) -> None:
    before = scene.tree()
    links = (PlanLink(str(scene.workspace / "made/link"), "file"),)
    plan = replace(scene.plan, steps=(Step(StepKind.WRITABLE, "/"),), links=links)
    done = scene.sh("true", plan=plan)
    assert (done.failed, done.errno) == ("link", 2)
    assert scene.tree() == before


def test_a_single_file_can_be_granted(scene: Scene) -> None:
    plan = replace(scene.plan, steps=(Step(StepKind.WRITABLE, str(scene.outside / "file")),))
    done = scene.sh(f"echo new > {scene.outside}/file; echo x > {scene.outside}/other", plan=plan)
    assert (scene.outside / "file").read_text("utf-8") == "new\n"
    assert "Read-only file system" in done.output


# --- the kernel's own files, devices, descriptors


@pytest.mark.parametrize("landlock_abi", ["9", "1"], ids=["with-landlock", "without"])
def test_kernel_switches_can_not_be_opened(
    scene: Scene, landlock_abi: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAKE_ABI, landlock_abi)
    switches = ("/proc/sys/vm/swappiness", "/proc/sys/kernel/core_pattern", "/sys/kernel/profiling")
    # Opened, not written: a test that finds them open must not change the host.
    done = scene.sh("".join(f"(: >> {path}) || echo refused;" for path in switches))
    assert done.output.count("refused") == 3
    if scene.who.uid == 0:
        assert done.output.count("Read-only file system") == 3


def test_only_its_own_processes_are_visible(scene: Scene) -> None:
    done = scene.sh(
        "echo /proc/[0-9]*; cat /proc/1/environ; ls /proc/1/root/; ls /proc/1/fd; cat /proc/1/mem"
    )
    assert done.output.splitlines()[0] == "/proc/1 /proc/2"
    assert done.output.count("Permission denied") >= 3


def test_where_no_new_proc_is_allowed_the_start_says_so(scene: Scene) -> None:
    done = scene.run("sh", "-c", "cat /proc/self/comm; echo 11 > /proc/sys/vm/swappiness", cover_proc=True)
    if not scene.who.userns:
        assert done.weakened == []  # the rule is for user namespaces
        return
    assert done.weakened == ["proc"]
    assert done.output.startswith("cat")
    assert done.status != 0


def test_the_devices_are_few_and_work(scene: Scene) -> None:
    listed = scene.sh("ls -A /dev")
    assert set(listed.output.split()) == {
        ".masks", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    }  # fmt: skip
    used = scene.sh(
        "echo x > /dev/null && head -qc 4 /dev/zero /dev/urandom > /dev/null && echo shared > /dev/shm/x && "
        "(cat /dev/shm/x > /dev/stdout) | cat; touch /dev/new /dev/.masks/x"
    )
    assert used.output.startswith("shared\n")
    assert used.output.count("Read-only file system") + used.output.count("Permission denied") == 2


def test_device_nodes_can_not_be_made(scene: Scene) -> None:
    done = scene.python(TRY + "attempt(os.mknod, 'node', 0o020666, os.makedev(1, 1))")
    assert done.output in (f"{EPERM}\n", f"{EACCES}\n")


def test_inherited_descriptors_are_closed(scene: Scene) -> None:
    done = scene.python("import os; print(os.listdir('/proc/self/fd'))", extra_fd=str(scene.outside / "file"))
    assert done.output == "['0', '1', '2', '3']\n"  # 3 is the listing itself


# --- privileges and calls


def test_no_privilege_is_left_and_none_can_be_gained(scene: Scene) -> None:
    done = scene.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; exec id -u")
    status = dict(line.split(":\t") for line in done.output.splitlines() if ":" in line)
    assert {status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert done.output.splitlines()[-1] == str(scene.who.uid)


def test_a_set_user_id_program_gains_nothing(scene: Scene) -> None:
    program = scene.workspace / "id"
    shutil.copy("/usr/bin/id", program)
    identity.hand_over(program, identity.SELF)
    program.chmod(0o4755)
    assert scene.sh("./id -u").output == f"{scene.who.uid}\n"


NUMBERS = "dict(ptrace=101, mount=165, umount2=166, process_vm_readv=310, unshare=272, setns=308, clone=56)"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
def test_mounts_namespaces_and_other_processes_are_out_of_reach(scene: Scene) -> None:
    done = scene.python(
        TRY
        + f"n = {NUMBERS}\n"
        + """
call(n["mount"], b"tmpfs", b"/dev/shm", b"tmpfs", 0, 0)
call(n["umount2"], os.path.realpath("secrets/key").encode(), 2)
call(n["umount2"], b"/proc/sys", 2)
call(n["unshare"], 0x00020000)
call(n["unshare"], 0x10000000)
call(n["clone"], 0x10000000 | 17, 0, 0, 0, 0)
for name in ("mnt", "net", "user", "pid"):
    call(n["setns"], os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0)
call(n["ptrace"], 0, 0, 0, 0)
call(n["ptrace"], 16, 1, 0, 0)
call(n["process_vm_readv"], 1, 0, 0, 0, 0, 0)
attempt(os.chroot, "/")
attempt(os.sethostname if hasattr(os, "sethostname") else __import__("socket").sethostname, "x")
"""
    )
    answers = done.output.split()
    # Joining one's own user namespace is refused as nonsense, before any right is looked at.
    assert [answer for answer in answers if answer not in (str(EPERM), "22")] == []
    assert answers.count("22") <= 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
def test_filtered_calls_are_refused_by_the_kernel(scene: Scene) -> None:
    numbers = (425, 426, 427, 321, 298, 323, 250, 248, 249, 246, 320, 175, 313, 176, 438)
    done = scene.python(TRY + f"for number in {numbers}: call(number, 0, 0, 0, 0, 0)\ncall(435, 0, 0)\n")
    assert done.output.split() == [str(EPERM)] * len(numbers) + ["38"]
    x32 = scene.python(TRY + "call(0x40000000 + 39)")
    assert x32.output == f"{EPERM}\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit calls of x86")
def test_a_32_bit_call_ends_the_process(scene: Scene) -> None:
    done = scene.python(
        """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000 cd80 c3"))  # mov eax, 20 (getpid); int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
        """
    )
    assert (done.status, done.output) == (128 + signal.SIGSYS, "")


def test_processes_outside_can_not_be_signalled(scene: Scene) -> None:
    with subprocess.Popen(identity.command_as(scene.who.uid, ["sleep", "60"])) as sleeper:
        try:
            done = scene.python(
                TRY + "attempt(os.kill, int(sys.argv[1]), 9)\nattempt(os.kill, -1, 9)", str(sleeper.pid)
            )
            assert done.output.split()[0] == str(ESRCH)
            assert sleeper.poll() is None
        finally:
            sleeper.kill()


# --- network


def test_unix_sockets_of_the_host_are_out_of_reach_without_a_network(scene: Scene) -> None:
    path = str(scene.workspace / "sock")
    abstract = f"\0holdfast-{scene.top.name}"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(path)
        two.bind(abstract)
        one.listen()
        two.listen()
        identity.hand_over(Path(path), scene.who.uid)
        done = scene.python(
            TRY
            + """
import socket
for address in (sys.argv[1], "\\0" + sys.argv[2]):
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(address))
""",
            path,
            abstract[1:],
        )
        assert "0" not in done.output.split()


def test_no_datagram_leaves_without_a_network(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        tcp.setblocking(False)
        done = scene.python(
            TRY
            + """
from socket import *
udp, tcp = int(sys.argv[1]), int(sys.argv[2])
attempt(lambda: socket(AF_INET, SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)))
attempt(lambda: socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
attempt(lambda: socket(AF_PACKET, SOCK_RAW))
attempt(lambda: socket(40, SOCK_STREAM))
attempt(lambda: socket().sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", tcp)))
attempt(lambda: create_connection(("127.0.0.1", tcp), 5))
socket(AF_INET, SOCK_DGRAM).sendto(b"x", ("127.0.0.1", udp))
print([name for _, name in if_nameindex()])
""",
            str(udp.getsockname()[1]),
            str(tcp.getsockname()[1]),
        )
        *refused, interfaces = done.output.splitlines()
        assert "0" not in refused
        assert interfaces == "['lo']"
        with pytest.raises(BlockingIOError):
            udp.recv(1)
        with pytest.raises(BlockingIOError):
            tcp.accept()


def test_loopback_threads_and_pairs_work_without_a_network(scene: Scene) -> None:
    done = scene.python(
        """
        import asyncio, socket

        async def main():
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 10) == 7
            async def echo(reader, writer):
                writer.write(await reader.read(4))
                writer.close()
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"ping")
            assert await reader.read() == b"ping"
            a, b = socket.socketpair()
            a.send(b"pair")
            assert b.recv(4) == b"pair"
            print("fine")

        asyncio.run(main())
        """
    )
    assert done.output == "fine\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_works_without_a_network(scene: Scene, method: str) -> None:
    (scene.workspace / "pool.py").write_text(
        textwrap.dedent(
            f"""
            import multiprocessing
            from multiprocessing import shared_memory
            if __name__ == "__main__":
                context = multiprocessing.get_context("{method}")
                with context.Pool(2) as pool:
                    print(sum(pool.map(abs, range(-10, 0))))
                block = shared_memory.SharedMemory(create=True, size=10)
                block.close()
                block.unlink()
            """
        ),
        "utf-8",
    )
    assert scene.run("/usr/bin/python3", "pool.py").output == "55\n"


def test_with_the_network_on_the_host_is_reachable_and_the_filter_stays(scene: Scene) -> None:
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        done = scene.python(
            TRY
            + """
from socket import *
attempt(lambda: create_connection(("127.0.0.1", int(sys.argv[1])), 5))
attempt(lambda: socket(AF_UNIX))
call(425, 0, 0)
""",
            str(tcp.getsockname()[1]),
            plan=replace(scene.plan, network_off=False),
        )
    assert done.output.split() == ["0", "0", str(EPERM)]


def test_without_landlock_everything_holds_and_the_start_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAKE_ABI, "1")
    done = scene.sh("echo x > file; echo x > .git/x; echo x > ../outside/x; cat secrets/key; cat /proc/1/mem")
    assert done.weakened == ["landlock"]
    assert (scene.workspace / "file").read_text("utf-8") == "x\n"
    assert "KEY" not in done.output
    assert os.listdir(scene.outside) == ["file"]


# --- terminals, output, ends


def test_a_shell_on_a_terminal_has_job_control(scene: Scene) -> None:
    done = scene.run(
        "bash", "--norc", "-i", tty=True, typed="tty; echo > /dev/tty; sleep 0 & fg; echo code=$?; exit 5\n"
    )
    assert "/dev/console" in done.output
    assert "job control" not in done.output
    assert "code=0" in done.output
    assert done.status == 5


def test_a_terminal_can_be_opened_inside_and_not_typed_into(scene: Scene) -> None:
    done = scene.python(
        TRY
        + """
import fcntl, pty
master, slave = pty.openpty()
os.write(slave, b"x")
assert os.read(master, 1) == b"x"
print(os.ttyname(slave), os.ttyname(0))
attempt(fcntl.ioctl, 0, 0x5412, b"x")
attempt(fcntl.ioctl, slave, 0x541C, b"x")
""",
        tty=True,
    )
    assert done.output.replace("\r", "") == f"/dev/pts/0 /dev/console\n{EPERM}\n{EPERM}\n"


def test_much_output_arrives(scene: Scene) -> None:
    done = scene.sh("head -c 5000000 /dev/zero | tr '\\0' x")
    assert len(done.output) == 5_000_000


@pytest.mark.parametrize("code", [0, 1, 125, 255])
def test_the_exit_status_is_the_commands(scene: Scene, code: int) -> None:
    done = scene.sh(f"exit {code}")
    assert (done.status, done.failed) == (code, None)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_a_death_by_signal_has_its_exit_code(scene: Scene, signum: signal.Signals) -> None:
    assert scene.sh(f"kill -{int(signum)} $$").status == 128 + signum


def test_a_program_that_is_not_there_is_told_from_a_failed_set_up(scene: Scene) -> None:
    done = scene.run("no-such-program")
    assert (done.failed, done.errno) == ("exec", 2)
    (scene.workspace / "plain").write_text("x", "utf-8")
    assert scene.run("./plain").errno == EACCES


def test_background_processes_end_with_the_command(scene: Scene) -> None:
    marker = f"60.{os.getpid()}{scene.who.uid}"
    assert scene.sh(f"sleep {marker} & (setsid sleep {marker} &); exit 3").status == 3
    assert marker not in subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def started(scene: Scene, script: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The driver of a command that has said it is ready, and what the command says from then on."""
    options = Options(plans.encode(scene.plan).decode("latin-1"), scene.who.userns, scene.who.uid)
    line = confinement.command_line(options, ("sh", "-c", script))
    top = identity.top(scene.who.uid)
    with subprocess.Popen(line, cwd=top, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ready\n"
            yield driver, driver.stdout
        finally:
            driver.kill()  # waiting for one that is stuck would hide why


def outer_of(driver: int) -> int:
    started, *_broker = Path(f"/proc/{driver}/task/{driver}/children").read_text("ascii").split()
    return int(started)


def test_a_signal_to_the_group_reaches_the_command(scene: Scene) -> None:
    script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    with started(scene, script) as (driver, said):
        os.killpg(outer_of(driver.pid), signal.SIGTERM)
        assert said.read() == "got it\n"
        assert driver.wait(5) == 9


@pytest.mark.parametrize("victim", ["launcher", "outer"])
def test_a_kill_from_outside_ends_everything(scene: Scene, victim: str) -> None:
    with started(scene, "(setsid sleep 60 &) ; echo ready; sleep 60") as (driver, said):
        os.kill(driver.pid if victim == "launcher" else outer_of(driver.pid), signal.SIGKILL)
        assert said.read() == ""  # every process inside had it open
        assert driver.wait(5) == -signal.SIGKILL


# --- set-up that goes wrong


def attempts(scene: Scene, sabotage: str) -> list[str]:
    before, mounts = scene.tree(), Path("/proc/self/mountinfo").read_text("utf-8")
    done = scene.run("touch", str(scene.workspace / "ran"), sabotage=sabotage, timeout_s=50)
    (scene.workspace / "ran").unlink()
    assert scene.tree() == before
    assert Path("/proc/self/mountinfo").read_text("utf-8") == mounts
    lines = done.output.splitlines()
    assert lines[-1] == "ran"
    assert len(lines) > 100
    return lines[:-1]


def test_whichever_call_fails_the_start_says_at_which_stage(scene: Scene) -> None:
    lines = attempts(scene, "fail")
    assert {line.split()[0] for line in lines} == {"failed", "weakened"}
    assert not [line for line in lines if line.startswith("failed internal")]
    assert [line for line in lines if line.startswith("weakened")] == ["weakened proc", "weakened landlock"]


def test_whenever_it_is_killed_nothing_is_left(scene: Scene) -> None:
    assert {line.split()[0] for line in attempts(scene, "kill")} == {"killed"}
