"""The landlock backend, where it is asked for: what it keeps and what not, and how a command ends."""

import asyncio
import base64
import errno
import json
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.sandbox.kernel import landlock
from holdfast.sandbox.plan.grants import SCOPE_ABI, TRUNCATE_ABI
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from holdfast.sandbox.plan.select import Backend, Choice
from tests.support import confinement, identity
from tests.support.confinement import Outcome
from tests.support.exec_command import Place, gone, place
from tests.support.patience import patient
from tests.support.peer import Peer, Refused, descendants_named, ready, seen_running, serving
from tests.support.root_only import IDENTITIES, root_only

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's"),
    pytest.mark.skipif(landlock.abi() < SCOPE_ABI, reason="Landlock of Linux 6.12"),
]

STRICT, DEGRADED = Choice(Backend.LANDLOCK), Choice(Backend.LANDLOCK, degraded=True)
ALONE = ("--backend", "landlock")
ROOT_READ = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
WORKSPACE = {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"}
MINIMAL = {"path": {"type": "special", "value": {"kind": "minimal"}}, "access": "read"}


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        fill(made)
        yield made


@pytest.fixture
def own() -> Iterator[Place]:
    with place(identity.SELF) as made:
        fill(made)
        yield made


def fill(made: Place) -> None:
    for name in (
        "ws/sub/old",
        "ws/conf/key",
        "ws/conf/a.pem",
        "ws/conf/plain",
        "ws/.git/config",
        "outside/file",
    ):
        path = made.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {path.name}\n", "utf-8")
    made.own()


def mark() -> str:
    """An argument for sleep by which a process can be found."""
    return f"8{uuid.uuid4().int % 10**7:07}"


# --- files, for the person at the keyboard


def test_writing_is_for_the_workspace_and_not_for_its_protected_parts(anyone: Place) -> None:
    done = anyone.sh(
        "echo x > sub/new && echo y >> sub/old && mkdir sub/d && mv sub/d sub/e && cat sub/new\n"
        "for f in .git/config .git/new ../outside/file ../outside/new /etc/holdfast-new new; do\n"
        "  (echo x >> $f) 2>/dev/null && echo wrote $f; done\n"
        "mv .git gone 2>/dev/null && echo moved\n"
        "rm .git/config 2>/dev/null && echo removed\n"
        "truncate -s 0 ../outside/file 2>/dev/null && echo cut; cat .git/config ../outside/file",
        *ALONE,
    )
    assert (done.code, done.out) == (0, "x\ntext of config\ntext of file\n")
    assert not (anyone.workspace / "new").exists()


def test_degraded_the_whole_workspace_can_be_written(anyone: Place) -> None:
    done = anyone.sh("echo x > new && mv new newer && echo y >> .git/config && ls", *ALONE, "--degraded")
    assert (done.code, done.out) == (0, "conf\nnewer\nsub\n")


@pytest.mark.parametrize("denied", ["conf/key", "conf"])
def test_what_is_denied_is_not_read_under_any_name(anyone: Place, denied: str) -> None:
    done = anyone.sh(
        "cat conf/key; cd conf; cat key ./key; cat /proc/self/cwd/key; cd ..; cat sub/../conf/key\n"
        "ln conf/key sub/k; mv conf sub/c; mv conf/key sub/k; cp -r conf sub/\n"
        "cat sub/k sub/c/key sub/conf/key; cat sub/old",
        *ALONE,
        *("--deny", denied),
    )
    assert "text of key" not in done.out
    assert done.out.endswith("text of old\n")


def test_a_pattern_hides_what_it_matches(own: Place) -> None:
    profile = own.top / "profile.toml"
    profile.write_text(
        '[filesystem]\n":root" = "read"\n":workspace" = "write"\n"**/*.pem" = "deny"\n', "utf-8"
    )
    done = own.sh("cat conf/a.pem; cat conf/plain", *ALONE, "--profile", str(profile))
    assert done.out == "text of plain\n"


def test_devices_settings_and_processes_of_the_host_are_out_of_reach(anyone: Place) -> None:
    script = (
        "cat /proc/$PPID/environ; ls /proc/$PPID/cwd/; cat /proc/1/maps\n"
        "echo 60 > /proc/sys/vm/swappiness; mknod sub/m c 1 1; head -c 1 /dev/mem /dev/kmsg\n"
        "for d in /dev/sd? /dev/vd? /dev/nvme?n?; do head -c 1 $d; done; touch /dev/new\n"
        "grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t0\\n'"
    )
    done = anyone.sh(script, *ALONE)
    assert done.out == "CapInh:CapPrm:CapEff:CapAmb:NoNewPrivs:1Seccomp:2"


@root_only("to be tried as root")
def test_the_rights_of_root_over_the_files_of_others_are_gone(own: Place) -> None:
    os.chown(own.workspace / "sub/old", identity.USER, identity.USER)
    os.chmod(own.workspace / "sub/old", 0o600)
    assert own.sh("cat sub/old", *ALONE).code == 1


def test_a_set_user_id_bit_is_not_set_on_a_file_of_the_user(anyone: Place) -> None:
    assert anyone.sh("chmod 700 ../outside/file sub/old && chmod u+s ../outside/file", *ALONE).code == 1
    assert (anyone.outside / "file").stat().st_mode & 0o7777 == 0o700  # the weakness that is declared


# --- network


def test_with_the_network_off_no_socket_exists(anyone: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = (
            "import asyncio, socket, sys\n"
            "for family, kind in ((2, 1), (2, 2), (10, 1), (16, 3), (1, 1), (1, 2)):\n"
            "    try: socket.socket(family, kind); print('made', family, kind)\n"
            "    except PermissionError: pass\n"
            "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
            "print(asyncio.run(asyncio.to_thread(lambda: 'works')))\n"
        )
        assert anyone.run(*ALONE, "--", "python3", "-c", script).out == "works\n"
        connect = f"import socket; socket.create_connection({server.getsockname()!r}, 5)"
        assert anyone.run(*ALONE, "--", "python3", "-c", connect).code == 1
        assert anyone.run(*ALONE, "--network", "on", "--", "python3", "-c", connect).code == 0


def test_with_the_network_on_abstract_sockets_of_the_host_are_out_of_reach(own: Place) -> None:
    name = f"holdfast-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        script = f"import socket; socket.socket(1).connect('\\0{name}')"
        done = own.run(*ALONE, "--network", "on", "--", "python3", "-c", script)
    assert done.code == 1
    assert "PermissionError" in done.err


# --- what is said


def test_what_holds_less_firmly_is_declared(own: Place) -> None:
    report = json.loads(own.run(*ALONE, "--json", "--", "true").err.splitlines()[-1])["enforcement"]
    assert report["backend"] == "landlock"
    assert report["missing"] == []
    assert any("owner" in text for text in report["weakened"])
    assert any(str(own.workspace) in text and "created" in text for text in report["weakened"])
    assert any("--degraded" in text for text in report["remedies"])
    report = json.loads(own.run(*ALONE, "--degraded", "--json", "--", "true").err.splitlines()[-1])[
        "enforcement"
    ]
    assert any(text.endswith("read-only") for text in report["missing"])


def test_an_old_kernel_is_refused_unless_less_will_do(own: Place) -> None:
    old = {landlock.FAKE_ABI: str(TRUNCATE_ABI - 1)}
    done = own.run(*ALONE, "--", "touch", "sub/ran", env=old)
    assert done.code == 125
    assert "truncation" in done.err
    assert "--degraded" in done.err
    assert not (own.workspace / "sub/ran").exists()
    done = own.run(*ALONE, "--degraded", "--json", "--", "touch", "sub/ran", env=old)
    assert done.code == 0
    assert any("signals" in text for text in json.loads(done.err.splitlines()[-1])["enforcement"]["missing"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo x > new", "while something in it is protected"),
        ("echo x > ../outside/new", "outside the writable roots"),
        ("echo x > .git/config", "--allow-write"),
    ],
)
def test_a_denial_names_its_reason(own: Place, script: str, said: str) -> None:
    done = own.sh(script, *ALONE)
    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_a_protected_name_that_is_created_is_moved_aside_before_anybody_can_use_it(own: Place) -> None:
    """Also by a process that tries to outlive the command."""
    fresh = own.workspace / "sub"
    script = (
        "setsid sh -c 'while :; do mkdir -p .git/hooks; done' 2>/dev/null & until [ -d .git ]; do :; done"
    )
    done = own.run(*ALONE, "--cwd", str(fresh), "--", "sh", "-c", script)
    assert "has been moved to" in done.err
    assert not (fresh / ".git").exists()


# --- how a command lives and ends


def test_exit_codes_and_deaths_are_the_commands_own(anyone: Place) -> None:
    assert anyone.sh("exit 7", *ALONE).code == 7
    assert anyone.sh("kill -TERM $$", *ALONE).code == 143
    assert anyone.sh("kill -KILL $$", *ALONE).code == 137
    assert anyone.run(*ALONE, "--", "no-such-program").code == 127
    (anyone.workspace / "sub/text").write_text("x", "utf-8")
    assert anyone.run(*ALONE, "--", "./sub/text").code == 126
    assert anyone.sh("[ $(ps -o pgid= -p $$) = $$ ] && [ $(ps -o sid= -p $$) = $$ ]", *ALONE).code == 0
    assert anyone.sh("cat; ls -l /proc/self/fd | wc -l", *ALONE).out.strip() == "5"


def test_nothing_outlives_the_command(anyone: Place) -> None:
    name = mark()
    done = anyone.sh(
        f"sleep {name} & (setsid sleep {name} &) ; setsid sh -c 'setsid sleep {name}' & :", *ALONE
    )
    assert done.code == 0
    assert gone(name)


def scripted(place: Place, *entries: dict[str, Any], network: str = "restricted") -> dict[str, Any]:
    uri = place.workspace.as_uri()
    files = {"type": "restricted", "entries": list(entries) or [ROOT_READ, WORKSPACE]}
    return {
        "permissions": {"type": "managed", "file_system": files, "network": network},
        "cwd": uri,
        "workspaceRoots": [uri],
        "windowsSandboxLevel": "disabled",
    }


async def start(peer: Peer, place: Place, name: str, script: str, **more: Any) -> dict[str, Any]:
    sandbox = more.pop("sandbox", None) or scripted(place)
    return await peer.start(name, script, cwd=place.workspace.as_uri(), sandbox=sandbox, **more)


@pytest.mark.parametrize("tty", [False, True])
async def test_terminate_ends_everything_also_what_detached_itself(own: Place, tty: bool) -> None:
    name = mark()
    async with serving(choice=STRICT) as (url, _), ready(url, holdfast=True) as peer:
        script = f"trap '' TERM HUP; setsid sleep {name} & (setsid sleep {name} &); sleep {name}"
        started = await start(peer, own, "p", script, tty=tty)
        assert started["enforcement"]["backend"] == "landlock"
        await seen_running(name, 3)
        await peer.call("process/terminate", {"processId": "p"})
        await peer.closed("p")
        assert peer.exit_code("p") == 137
        await ended(name)


async def test_what_leaves_the_session_ends_with_the_command_and_not_only_with_the_server(
    own: Place,
) -> None:
    name = mark()
    async with serving(choice=STRICT) as (url, _), ready(url) as peer:
        await start(peer, own, "p", f"setsid sleep {name} >/dev/null 2>&1 </dev/null & exec sleep 600")
        await seen_running(name)
        await peer.call("process/signal", {"processId": "p", "signal": "interrupt"})
        await peer.closed("p")
        assert peer.exit_code("p") == 130
        await ended(name)


async def ended(name: str) -> None:
    """Wait until nothing of that name runs."""
    async with asyncio.timeout(patient(30)):
        while [pid for pid in descendants_named(name) if not _is_zombie(pid)]:
            await asyncio.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


async def test_a_signal_reaches_the_command_and_its_group(own: Place) -> None:
    async with serving(choice=STRICT) as (url, _), ready(url) as peer:
        await start(peer, own, "p", "trap 'echo got; exit 9' INT; echo up; while :; do sleep 0.1; done")
        await peer.output_has("p", b"up\n")
        await peer.call("process/signal", {"processId": "p", "signal": "interrupt"})
        await peer.closed("p")
        assert (peer.exit_code("p"), peer.output("p")) == (9, b"up\ngot\n")


async def test_a_terminal_has_job_control_a_name_and_no_neighbours(own: Place) -> None:
    master, slave = os.openpty()
    try:
        script = "set -m; sleep 60 & jobs; kill %1; tty; echo x > $(tty); echo y > /dev/tty; : > "
        script += os.ttyname(slave)
        async with serving(choice=STRICT) as (url, _), ready(url) as peer:
            await start(peer, own, "p", script, tty=True)
            await peer.closed("p")
            text = peer.output("p").decode()
    finally:
        os.close(master)
        os.close(slave)
    assert "Running" in text
    assert "/dev/pts/" in text
    assert "x\r\ny\r\n" in text
    assert "Permission denied" in text
    assert "job control" not in text


# --- file calls


async def written(peer: Peer, place: Place, path: Path, sandbox: dict[str, Any] | None = None) -> bool:
    data = base64.b64encode(b"new").decode()
    params = {"path": path.as_uri(), "dataBase64": data, "sandbox": sandbox or scripted(place)}
    try:
        await peer.call("fs/writeFile", params)
    except Refused:
        return False
    return path.read_bytes() == b"new"


async def test_file_calls_are_held_like_commands(own: Place) -> None:
    async with serving(choice=STRICT) as (url, _), ready(url) as peer:
        assert await written(peer, own, own.workspace / "sub/new")
        assert await written(peer, own, own.workspace / "sub/old")
        assert not await written(peer, own, own.workspace / "new")
        assert not await written(peer, own, own.workspace / ".git/config")
        assert not await written(peer, own, own.outside / "file")
        reading = {"sandbox": scripted(own, ROOT_READ, WORKSPACE, _at(own.workspace / "conf", "deny"))}
        for name, allowed in (("sub/old", True), ("conf/key", False), ("conf/../conf/plain", False)):
            uri = f"{own.workspace.as_uri()}/{name}"
            if allowed:
                await peer.call("fs/readFile", {"path": uri, **reading})
            else:
                with pytest.raises(Refused):
                    await peer.call("fs/readFile", {"path": uri, **reading})


async def test_degraded_file_calls_create_directly_in_the_workspace(own: Place) -> None:
    async with serving(choice=DEGRADED) as (url, _), ready(url) as peer:
        assert await written(peer, own, own.workspace / "new")
        assert not await written(peer, own, own.outside / "file")


async def test_only_what_is_listed_is_read_when_reading_is_restricted(own: Place) -> None:
    async with serving(choice=STRICT) as (url, _), ready(url) as peer:
        sandbox = scripted(own, MINIMAL, WORKSPACE)
        await start(peer, own, "p", "cat sub/old ../outside/file; ls / /root", sandbox=sandbox)
        await peer.closed("p")
        assert peer.output("p", "stdout") == b"text of old\n"


def _at(path: Path, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": path.as_uri()}, "access": access}


# --- set-up: the process that becomes the command, without a server


def alone(
    own: Place, *argv: str, base: Base = Base.HOST, steps: tuple[Step, ...] = (), **more: Any
) -> Outcome:
    plan = Plan(base, steps, network_off=True, cwd=str(own.workspace))
    return confinement.run(plan, *argv, alone=True, **more)


@pytest.mark.parametrize("abi", range(1, SCOPE_ABI + 1))
@pytest.mark.parametrize("base", [Base.HOST, Base.UNTOUCHED])
def test_every_abi_confines_as_far_as_it_goes(
    own: Place, abi: int, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(landlock.FAKE_ABI, str(abi))
    script = (
        "echo x > sub/new; echo x > ../outside/new; ln sub/old conf/moved; cat /proc/$PPID/environ;"
        "kill -0 $PPID && echo reached; :"
    )
    steps = (Step(StepKind.WRITABLE, str(own.workspace)),) if base is Base.HOST else ()
    done = alone(own, "sh", "-c", script, base=base, steps=steps)
    assert done.failed is None
    assert (own.workspace / "sub/new").exists()
    assert (own.outside / "new").exists() == (base is Base.UNTOUCHED)
    assert (own.workspace / "conf/moved").exists() == (abi > 1)
    assert ("reached" in done.output) == (abi < SCOPE_ABI)
    assert "PATH=" not in done.output


def test_without_landlock_nothing_runs(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(landlock.FAKE_ABI, "0")
    done = alone(own, "touch", "sub/ran")
    assert (done.failed, done.errno, done.status) == ("landlock", errno.ENOSYS, 125)
    assert not (own.workspace / "sub/ran").exists()


@pytest.mark.parametrize("kind", [StepKind.WRITABLE, StepKind.READ_ONLY, StepKind.MASK_FILE])
def test_a_path_of_the_plan_that_vanished_stops_the_start(own: Place, kind: StepKind) -> None:
    done = alone(own, "true", steps=(Step(kind, str(own.workspace / "missing")),))
    assert (done.failed, done.errno) == (kind.value, errno.ENOENT)


def test_a_link_that_appears_on_the_way_is_not_followed(own: Place) -> None:
    (own.workspace / "link").symlink_to(own.outside)
    done = alone(own, "true", steps=(Step(StepKind.WRITABLE, str(own.workspace / "link")),))
    assert (done.failed, done.errno) == ("writable", errno.ELOOP)


def test_a_crowded_directory_around_something_protected_is_refused_with_a_reason(own: Place) -> None:
    for number in range(4100):
        (own.workspace / f"f{number}").touch()
    done = own.run(*ALONE, "--", "true")
    assert done.code == 125
    assert "too many entries" in done.err or "directory of its own" in done.err
    assert own.run(*ALONE, "--degraded", "--", "true").code == 0


def test_inherited_descriptors_are_closed(own: Place) -> None:
    done = alone(own, "sh", "-c", "ls /proc/self/fd", extra_fd=str(own.outside / "file"))
    assert done.output.split() == ["0", "1", "2", "3"]


def test_whichever_call_fails_the_start_says_at_which_stage(own: Place) -> None:
    steps = (Step(StepKind.WRITABLE, str(own.workspace)),)
    lines = alone(own, "true", steps=steps, sabotage="fail").output.splitlines()
    assert lines[-1] == "ran"
    stages = {line.split()[1] for line in lines[:-1]}
    assert all(line.startswith("failed") for line in lines[:-1]), lines
    assert {"processes", "capabilities", "nnp", "writable", "landlock", "seccomp"} <= stages


def test_whenever_it_is_killed_nothing_is_left(own: Place) -> None:
    """The attempts end only when every orphan has ended."""
    lines = alone(own, "sleep", "0", sabotage="kill").output.splitlines()
    assert lines[-1] == "ran"
    assert all(line.startswith("killed") for line in lines[:-1]), lines
    assert len(lines) > 8


def test_when_the_server_is_killed_nothing_is_left(own: Place) -> None:
    name = mark()
    with own.start(*ALONE, "--", "sh", "-c", f"setsid sleep {name} & echo up; sleep {name}") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.kill()
    assert gone(name)
