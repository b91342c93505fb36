"""Commands confined by bubblewrap: the view, the processes around them, and what goes wrong."""

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, Exit, SetupFailed
from holdfast.errors import OperationFailed
from holdfast.light import replace
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind
from holdfast.sandbox.plan.select import Way
from tests.support import confinement, identity
from tests.support.confinement import Outcome
from tests.support.patience import patient
from tests.support.peer import descendants_named, seen_running
from tests.support.root_only import IDENTITIES
from tests.support.tiers import sizes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

REAL: Final = shutil.which("bwrap") or ""
WAIT_S: Final = patient(30.0)
KILLS: Final = 25  # at other moments of a set-up


class Scene:
    """A workspace with something protected and something denied in it, and a place outside."""

    def __init__(self, top: Path, uid: int) -> None:
        self.top, self.uid = top, uid
        self.workspace, self.outside = top / "ws", top / "outside"
        for folder in (".git", "conf/locked", "secrets/vault", "deep/hidden/a/open", "src"):
            (self.workspace / folder).mkdir(parents=True)
        self.outside.mkdir()
        for name, text in {
            "ws/.git/config": "config",
            "ws/secrets/key": "KEY",
            "ws/secrets/vault/inner": "INNER",
            "ws/deep/hidden/file": "HIDDEN",
            "ws/deep/hidden/a/open/file": "open",
            "outside/file": "outside",
        }.items():
            (top / name).write_text(text, "utf-8")
        identity.hand_over(top, uid)
        self.pins = tuple(self.step(StepKind.PIN, name) for name in ("conf", "secrets", "deep"))
        self.rules = (
            self.step(StepKind.WRITABLE, ""),
            self.step(StepKind.READ_ONLY, ".git"),
            self.step(StepKind.READ_ONLY, "conf/locked"),
            self.step(StepKind.MASK_FILE, "secrets/key"),
            self.step(StepKind.MASK_DIRECTORY, "secrets/vault"),
            self.step(StepKind.MASK_DIRECTORY, "deep/hidden"),
            self.step(StepKind.WRITABLE, "deep/hidden/a/open"),
        )
        self.plan = Plan(Base.HOST, (*self.pins, *self.rules), network_off=True, cwd=str(self.workspace))

    def step(self, kind: StepKind, name: str) -> Step:
        return Step(kind, str(self.workspace / name))

    def run(
        self, *argv: str, plan: Plan | None = None, tool: str = REAL, tty: bool = False, typed: str = ""
    ) -> Outcome:
        return confinement.run(plan or self.plan, *argv, uid=self.uid, tool=tool, tty=tty, typed=typed)

    def sh(self, script: str, *, plan: Plan | None = None, tool: str = REAL) -> Outcome:
        return self.run("sh", "-c", script, plan=plan, tool=tool)

    def tree(self) -> list[str]:
        return sorted(str(path) for path in self.top.rglob("*"))

    def empty_plan(self) -> Plan:
        names = ("/usr", "/etc", "/bin", "/lib", "/lib64")
        links = tuple(PlanLink(path, os.readlink(path)) for path in names if os.path.islink(path))
        shown = [path for path in names if os.path.isdir(path) and not os.path.islink(path)]
        readable = tuple(Step(StepKind.READABLE, path) for path in shown)
        return replace(self.plan, base=Base.EMPTY, steps=(*self.pins, *readable, *self.rules), links=links)

    def writable_plan(self) -> Plan:
        masks = tuple(step for step in self.rules if step.kind is StepKind.MASK_FILE)
        above = [self.workspace, self.top, *self.top.parents[:-1]]
        pins = (*(Step(StepKind.PIN, str(path)) for path in reversed(above)), *self.pins)
        return replace(self.plan, steps=(*pins, Step(StepKind.WRITABLE, "/"), *masks))

    def wrapper(self, before: str) -> str:
        """A bubblewrap that does something before it begins."""
        path = self.top / "bwrap"
        path.write_text(f'#!/bin/sh\n{before}\nexec {REAL} "$@"\n', "utf-8")
        path.chmod(0o755)
        return str(path)


@pytest.fixture(params=IDENTITIES)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    top = Path(tempfile.mkdtemp(prefix="holdfast-bwrap-"))  # an ordinary user can not enter pytest's
    try:
        top.chmod(0o755)
        yield Scene(top, request.param)
    finally:
        shutil.rmtree(top)


@pytest.fixture
def mine() -> Iterator[Scene]:
    """As who runs the tests."""
    top = Path(tempfile.mkdtemp(prefix="holdfast-bwrap-"))
    try:
        yield Scene(top, os.getuid())
    finally:
        shutil.rmtree(top)


@pytest.fixture
def mark() -> Iterator[str]:
    """An argument for sleep by which a process can be found; what has it is ended."""
    name = f"8{uuid.uuid4().int % 10**7:07}"
    yield name
    for pid in descendants_named(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# --- the view

BASES: Final = ["plan", "empty_plan", "writable_plan"]


def made(scene: Scene, base: str) -> Plan:
    return scene.plan if base == "plan" else getattr(scene, base)()


@pytest.mark.parametrize("base", BASES)
def test_what_is_denied_cannot_be_read_and_its_parents_not_be_moved(scene: Scene, base: str) -> None:
    before = scene.tree()
    first = scene.sh(
        "cat secrets/key; mv secrets s2; mkdir x; mv secrets x/; rmdir x secrets; chmod 7 secrets/key",
        plan=made(scene, base),
    )
    assert "KEY" not in first.output
    assert first.output.count("Device or resource busy") >= 2
    assert scene.tree() == before


@pytest.mark.parametrize("base", BASES)
def test_files_move_and_link_freely_between_pinned_directories(scene: Scene, base: str) -> None:
    done = scene.sh(
        "echo 1 > conf/a; mv conf/a secrets/b && ln secrets/b src/c && mv src src2 && cat src2/c",
        plan=made(scene, base),
    )
    assert (done.status, done.output) == (0, "1\n")


@pytest.mark.parametrize("base", ["plan", "empty_plan"])
def test_protected_denied_and_granted_again_each_hold(scene: Scene, base: str) -> None:
    before = scene.tree()
    done = scene.sh(
        "echo x > .git/new; rm -f .git/config conf/locked/x; echo x > conf/locked/x; ls secrets/vault;"
        "cat secrets/vault/inner; ls deep/hidden; cat deep/hidden/file; mkdir deep/hidden/x deep/hidden/a/x;"
        "ls deep/hidden/a; cat deep/hidden/a/open/file; echo new > deep/hidden/a/open/file;"
        "mkdir /new /dev/new",
        plan=made(scene, base),
    )
    assert scene.tree() == before
    assert not {"INNER", "HIDDEN"} & set(done.output.split())
    assert "open" in done.output.splitlines()[-3]
    assert (scene.workspace / "deep/hidden/a/open/file").read_text("utf-8") == "new\n"


def test_an_empty_base_shows_only_what_the_plan_names(scene: Scene) -> None:
    done = scene.sh(f"ls /; ls {scene.top}; cat {scene.outside}/file", plan=scene.empty_plan())
    assert not {"home", "root", "var", "sys", "outside"} & set(done.output.split())


def test_the_first_process_inside_has_no_right_that_the_command_lacks(scene: Scene) -> None:
    script = """
        of() { grep -E '^(Uid|Gid|Cap...|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/$1/status; }
        [ "$(of 1)" = "$(of self)" ] && of self
        for n in mnt pid net ipc user; do [ /proc/1/ns/$n -ef /proc/self/ns/$n ] || echo differs; done
        [ /proc/1/root -ef / ] || echo differs
    """
    lines = scene.sh(script).output.splitlines()
    told = dict(line.split(":\t") for line in lines)
    assert {told[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")


def test_where_no_new_proc_is_allowed_the_start_says_so(scene: Scene) -> None:
    done = confinement.run(
        scene.plan, "sh", "-c", "cat /proc/self/comm; (: >> /proc/sys/vm/swappiness) || echo refused",
        uid=scene.uid, tool=REAL, cover_proc=True,
    )  # fmt: skip
    assert done.weakened == ["landlock", "sockets", "proc"]
    assert done.output.startswith("cat\n")
    assert done.output.endswith("refused\n")


# --- paths that are replaced meanwhile


@pytest.mark.parametrize(
    ("kind", "name"),
    [(StepKind.WRITABLE, "src"), (StepKind.READ_ONLY, "src"), (StepKind.MASK_DIRECTORY, "src")],
)
def test_a_link_that_takes_the_place_of_a_directory_is_not_followed(
    scene: Scene, kind: StepKind, name: str
) -> None:
    folder = shlex.quote(str(scene.workspace / name))
    tool = scene.wrapper(f"mv {folder} {folder}2; ln -s ../outside {folder}")
    plan = replace(scene.plan, steps=(*scene.plan.steps, scene.step(kind, name)))
    done = scene.sh("touch ran outside/ran src/ran", plan=plan, tool=tool)
    assert done.failed == "bwrap:bwrap.view"
    assert not list(scene.top.rglob("ran"))


def test_a_path_that_vanished_stops_the_start_and_is_not_made(scene: Scene) -> None:
    for kind in (StepKind.WRITABLE, StepKind.READ_ONLY, StepKind.MASK_DIRECTORY, StepKind.MASK_FILE):
        plan = replace(scene.plan, steps=(*scene.plan.steps, scene.step(kind, "gone")))
        done = scene.sh("touch ran", plan=plan)
        assert (done.failed, done.errno) == (kind.value, errno.ENOENT)
    folder = shlex.quote(str(scene.workspace / "src"))
    tool = scene.wrapper(f"rmdir {folder}")
    plan = replace(scene.plan, steps=(*scene.plan.steps, scene.step(StepKind.WRITABLE, "src")))
    done = scene.sh("touch ran", plan=plan, tool=tool)
    assert (done.failed, done.errno) == ("bwrap:bwrap.source", errno.ENOENT)
    assert not {"ran", "gone", "src"} & set(os.listdir(scene.workspace))


# --- the command's own behaviour comes through


@pytest.mark.parametrize("code", [7, 130, 147, 255])
@pytest.mark.parametrize("tty", [False, True])
def test_the_exit_code_is_the_commands(scene: Scene, code: int, tty: bool) -> None:
    done = scene.run("sh", "-c", f"exit {code}", tty=tty)
    assert (done.status if done.status >= 0 else 128 - done.status) == code


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_death_by_signal_is_128_and_the_signal(scene: Scene, signum: int) -> None:
    assert scene.sh(f"echo out; kill -{signum} $$").status == 128 + signum
    assert scene.sh(f"kill -{signum} $$").output == ""  # a shell would comment on it


def test_the_environment_is_the_commands_and_nobody_elses(scene: Scene) -> None:
    done = scene.run("/usr/bin/env")
    assert sorted(line.split("=")[0] for line in done.output.splitlines()) == ["LANG", "PATH", "TERM"]


def test_what_is_typed_or_piped_arrives(scene: Scene) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    assert scene.run("cat", typed=text).output == text
    assert "got x" in scene.run("sh", "-c", "read a; echo got $a", tty=True, typed="x\n").output


def test_a_shell_on_a_terminal_has_job_control_and_a_name_for_it(scene: Scene) -> None:
    done = scene.run("bash", "-ic", "tty; sleep 60 & jobs; kill %1; wait; stty size; ps -o tty= $$", tty=True)
    assert "job control" not in done.output
    assert "/dev/console" in done.output
    assert "sleep 60 &" in done.output


def test_a_program_that_is_not_there_is_told_from_a_failed_set_up(scene: Scene) -> None:
    assert [scene.run(name).failed for name in ("nothere", "/no/such", "cd")] == ["exec"] * 3
    (scene.workspace / "text").write_text("x", "utf-8")
    for name in ("./text", "./src", "secrets/key"):
        done = scene.run(name)
        assert (done.failed, done.errno) == ("exec", errno.EACCES)


def test_a_view_without_a_shell_or_a_directory_to_start_in_is_a_failed_set_up(scene: Scene) -> None:
    bare = replace(scene.empty_plan(), steps=scene.rules, links=())
    assert scene.sh("true", plan=bare).failed == "bwrap:bwrap.shell"
    elsewhere = replace(scene.plan, cwd=str(scene.workspace / "secrets/vault/inner"))
    assert scene.sh("true", plan=elsewhere).failed == "bwrap:chdir.failed"


@pytest.mark.parametrize(
    ("text", "stage", "code"),
    [
        ("bwrap: setting up uid map: Permission denied", "bwrap:uidmap.eacces", errno.EACCES),
        ("bwrap: No permissions to create new namespace, likely", "bwrap:userns.eperm", errno.EIO),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "bwrap:lo.newaddr", errno.EPERM),
        ("bwrap: Exceeded maximum number of arguments 9000", "bwrap:bwrap.arguments", errno.EIO),
        ("a word nobody knows", "bwrap:bwrap.other", errno.EIO),
        ("", "bwrap:bwrap.other", errno.EIO),
    ],
)
def test_what_bubblewrap_says_is_never_output_and_names_the_cause(
    mine: Scene, text: str, stage: str, code: int
) -> None:
    tool = mine.wrapper(f"echo {shlex.quote(text)} >&2; exit 1")
    done = mine.sh("touch ran", tool=tool)
    assert (done.failed, done.errno, done.output) == (stage, code, "")
    assert not (mine.workspace / "ran").exists()


# --- processes


class Runs:
    """Commands in bubblewrap through a launcher, as the server starts them."""

    def __init__(self, scene: Scene, launcher: LauncherClient) -> None:
        self.scene, self.launcher = scene, launcher
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def start(self, *argv: str, env: dict[str, str] | None = None, program: str | None = None) -> int:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            started = await self.launcher.start(
                Command(argv, program or argv[0], "/", {"PATH": os.defpath, **(env or {})}),
                owner=1,
                streams=(null, null, null),
                tty=False,
                state=None,
                on_exit=lambda end: None if self.ended.done() else self.ended.set_result(end),
                confinement=Confinement(self.scene.plan, Way.BWRAP, REAL),
            )
        finally:
            os.close(null)
        return started.id

    async def end(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return (await asyncio.shield(self.ended)).code


@contextlib.asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Runs]:
    launcher = LauncherClient()
    try:
        yield Runs(scene, launcher)
    finally:
        await launcher.aclose()


async def gone(mark: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while descendants_named(mark):
            await asyncio.sleep(0.01)


async def test_a_signal_reaches_the_command_also_in_a_group_of_its_own(mine: Scene, mark: str) -> None:
    grouped = f"import os, time; os.setpgid(0, 0); open('up', 'w').close(); time.sleep({mark})"
    for argv in (
        ("sh", "-c", f"trap 'exit 9' TERM; : > up; while :; do sleep 0.02; done # {mark}"),
        ("/usr/bin/python3", "-c", f"import signal; signal.signal(15, lambda *_: os._exit(9)); {grouped}"),
    ):
        async with running(mine) as runs, asyncio.timeout(WAIT_S):
            id_ = await runs.start(*argv)
            while not (mine.workspace / "up").exists():
                await asyncio.sleep(0.01)
            runs.launcher.signal(id_, signal.SIGTERM)
            assert await runs.end() == 9
        (mine.workspace / "up").unlink()


async def test_no_variable_is_in_any_list_of_processes_nor_read_by_bubblewrap_itself(
    mine: Scene, mark: str
) -> None:
    debug = mine.workspace / "debug"
    secret = uuid.uuid4().hex
    env = {"TOKEN": secret, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(debug)}
    async with running(mine) as runs:
        id_ = await runs.start("sleep", mark, env=env)
        await seen_running(mark)
        assert descendants_named(secret) == []
        # The dynamic linker of every process that got the variables writes a file named after its number.
        async with asyncio.timeout(WAIT_S):
            while not debug.with_suffix(".2").exists():
                await asyncio.sleep(0.01)
        runs.launcher.signal(id_, signal.SIGKILL)
        assert await runs.end() == 137
    assert {path.suffix for path in mine.workspace.glob("debug.*")} == {".1", ".2"}


async def test_a_command_gets_another_name_when_it_asks_for_one(mine: Scene) -> None:
    async with running(mine) as runs:
        await runs.start("other", "-c", "cat /proc/$$/cmdline > name", program="/bin/sh")
        assert await runs.end() == 0
    assert (mine.workspace / "name").read_bytes().startswith(b"other\0-c\0")


async def test_more_rules_than_bubblewrap_takes_are_a_failed_set_up(mine: Scene) -> None:
    paths = [mine.workspace / f"m{number}" for number in range(3000)]
    for path in paths:
        path.touch()
    masks = (Step(StepKind.MASK_FILE, str(path)) for path in paths)
    mine.plan = replace(mine.plan, steps=(*mine.plan.steps, *masks))
    async with running(mine) as runs:
        with pytest.raises(SetupFailed) as failed:
            await runs.start("true")
    assert failed.value.stage == "bwrap:bwrap.arguments"
    assert failed.value.remedy


async def test_what_detached_itself_ends_with_the_command(mine: Scene, mark: str) -> None:
    async with running(mine) as runs:
        await runs.start("sh", "-c", f"setsid sleep {mark} & exit 3")
        assert await runs.end() == 3
    await gone(mark)


@sizes("steps", quick=range(0, KILLS, 4), deep=range(KILLS))
@pytest.mark.parametrize("victim", ["command", "launcher"])
async def test_whenever_it_is_killed_nothing_is_left(
    mine: Scene, mark: str, victim: str, steps: range
) -> None:
    before, mounts = mine.tree(), Path("/proc/self/mountinfo").read_text("utf-8")
    reached = 0
    for step in steps:
        async with running(mine) as runs:
            await runs.start("true")
            await runs.end()  # now the launcher is there
            starting = asyncio.ensure_future(runs.start("sleep", mark))
            # Not to wait for something: the set-up is cut off a little later each time.
            await asyncio.wait([starting], timeout=step * 0.0015)
            reached += starting.done()
            if victim == "launcher":
                [connection] = runs.launcher._connections
                connection.process.kill()
                connection.process.wait()
            elif starting.done():
                runs.launcher.signal(starting.result(), signal.SIGKILL)
            else:
                starting.cancel()  # which orders the kill
            with contextlib.suppress(asyncio.CancelledError, OperationFailed):
                async with asyncio.timeout(WAIT_S):
                    await starting
            await gone(mark)
    assert mine.tree() == before
    assert Path("/proc/self/mountinfo").read_text("utf-8") == mounts
    assert reached < len(steps)
