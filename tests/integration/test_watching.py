"""The watcher of a confined command: what it tells, what it does not, and what happens when it is killed."""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, Exit
from holdfast.sandbox.kernel.kernel import PARENT, processes
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from holdfast.sandbox.plan.select import Way
from holdfast.sandbox.watcher import broker, foresight, listener, watcher
from holdfast.server.executor import Executor
from holdfast.server.processes.process import SessionProcess as ServerProcess
from holdfast.wire.processes import DeniedCall
from tests.integration.test_confined import policy
from tests.support import identity
from tests.support.cut import way_to
from tests.support.exec_command import Place
from tests.support.exec_command import place as place_of
from tests.support.peer import WAIT_S, Peer, ready, serving
from tests.support.root_only import IDENTITIES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's"),
]

OUR_WAY = Way.AS_ROOT if identity.AS_ROOT else Way.USER_NAMESPACE
PYTHON = "/usr/bin/python3"
# Prints for each attempt how the kernel really answered: the errno by name, or "done".
ATTEMPTS = """
import errno, os, socket, sys
here, out = os.getcwd(), os.path.join(os.path.dirname(os.getcwd()), "outside")
def sock(kind, path, family=socket.AF_UNIX):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        getattr(s, kind)(path)
def each(*attempts):
    for name, call, *args in attempts:
        try:
            done = call(*args)
            print(name, "done")
        except OSError as exc:
            print(name, errno.errorcode[exc.errno])
"""
FILES = (
    ATTEMPTS
    + """
os.chdir(out)
each(
    ("mkdir", os.mkdir, "d"),
    ("open", os.open, f"{out}/f", os.O_WRONLY),
    ("creat", os.open, "new", os.O_RDWR | os.O_CREAT),
    ("openat", lambda: os.open("f", os.O_WRONLY | os.O_TRUNC, dir_fd=os.open("sub", os.O_RDONLY))),
    ("rename", os.rename, "f", "moved"),
    ("out", os.rename, f"{here}/own", "own"),
    ("in", os.rename, "g", f"{here}/g"),
    ("link", os.link, "f", "linked"),
    ("symlink", os.symlink, "f", "soft"),
    ("unlink", os.unlink, "f"),
    ("rmdir", os.rmdir, "sub/empty"),
    ("chmod", os.chmod, "f", 0o600),
    ("chown", os.chown, "g", -1, -1),
    ("truncate", os.truncate, "f", 0),
    ("mkfifo", os.mkfifo, "fifo"),
    ("utime", os.utime, "sub"),
    ("through", os.open, f"{here}/link", os.O_WRONLY),
    ("dangling", os.open, f"{here}/dangling", os.O_WRONLY | os.O_CREAT),
    ("pin", os.rename, f"{here}/.git", f"{here}/hook"),
)
"""
)
# name, access, path below the top of the place; the errno is the one that was printed
REFUSED = [
    ("mkdir", "create", "outside/d"),
    ("open", "write", "outside/f"),
    ("creat", "create", "outside/new"),
    ("openat", "write", "outside/sub/f"),
    ("rename", "create", "outside/moved"),
    ("out", "create", "outside/own"),
    ("in", "remove", "outside/g"),
    ("link", "create", "outside/linked"),
    ("symlink", "create", "outside/soft"),
    ("unlink", "remove", "outside/f"),
    ("rmdir", "remove", "outside/sub/empty"),
    ("chmod", "write", "outside/f"),
    ("chown", "write", "outside/g"),
    ("truncate", "write", "outside/f"),
    ("mkfifo", "create", "outside/fifo"),
    ("utime", "write", "outside/sub"),
    ("through", "write", "outside/f"),
    ("dangling", "create", "outside/target"),
    ("pin", "remove", "ws/.git"),
]


def fill(made: Place) -> None:
    for name in ("outside/f", "outside/g", "outside/sub/f", "outside/sub/empty/", "ws/own"):
        path = made.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text("text\n", "utf-8")
    (made.workspace / "link").symlink_to("../outside/f")
    (made.workspace / "dangling").symlink_to("../outside/target")
    made.own()


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as made:
        fill(made)
        yield made


@pytest.fixture
def top() -> Iterator[Path]:
    with place_of(identity.SELF) as made:
        fill(made)
        yield made.top


def watched(place: Place, *argv: str, flags: tuple[str, ...] = ()) -> tuple[str, dict[str, Any]]:
    """What it printed, and the report of its end."""
    done = place.run("--watch", "--json", *flags, "--", *argv)
    report: dict[str, Any] = json.loads(done.err.splitlines()[-1])
    return done.out, report


def told(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(denied["access"], denied["path"], denied["errno"]) for denied in report["denials"]}


def test_every_refused_change_is_told_with_its_path_and_the_errno_that_the_program_gets(
    anyone: Place,
) -> None:
    out, report = watched(anyone, PYTHON, "-I", "-c", FILES)
    real = dict(line.split() for line in out.splitlines())
    assert report["watch"] == {"on": True, "why": None}
    assert [name for name, answer in real.items() if answer == "done"] == []
    assert told(report) == {(access, str(anyone.top / path), real[name]) for name, access, path in REFUSED}
    for denied in report["denials"]:
        assert denied["comm"] == "python3"
        assert denied["predicted"] is False
        assert denied["rule"]


def test_with_landlock_alone_what_it_guards_is_told() -> None:
    with place_of(identity.SELF) as made:
        fill(made)
        out, report = watched(made, PYTHON, "-I", "-c", FILES, flags=("--backend", "landlock"))
    real = dict(line.split() for line in out.splitlines())
    unguarded = {"chmod", "chown", "utime"}
    assert {name for name, answer in real.items() if answer == "done"} == unguarded
    # Of both ends of a move the target is named, and the workspace holds something protected.
    rows = [row for row in REFUSED if row[0] not in {*unguarded, "in", "pin"}]
    rows += [("in", "create", "ws/g"), ("pin", "create", "ws/hook")]
    assert told(report) == {(access, str(made.top / path), real[name]) for name, access, path in rows}


def test_the_grant_is_the_directory_if_something_is_to_be_made_in_it(anyone: Place) -> None:
    _, report = watched(anyone, "mkdir", "../outside/a")
    [denied] = report["denials"]
    assert denied["grant"] == f"--allow-write {anyone.outside}"
    assert denied["syscall"] in ("mkdir", "mkdirat")
    assert report["denial"]["path"] == str(anyone.outside / "a")
    assert report["denial"]["confidence"] == 1.0


def test_a_socket_by_path_and_an_address_out_of_reach_are_told(anyone: Place) -> None:
    code = ATTEMPTS + 'each(("bind", sock, "bind", out + "/s"), ("own", sock, "bind", here + "/s"))'
    out, report = watched(anyone, PYTHON, "-I", "-c", code, flags=("--network", "on"))
    assert out.split() == ["bind", "EROFS", "own", "done"]
    assert told(report) == {("create", str(anyone.outside / "s"), "EROFS")}
    code = (
        ATTEMPTS + 'each(*((str(port), sock, "connect", (host, port), socket.AF_INET) for host, port in '
        '(("192.0.2.1", 443), ("127.0.0.1", 9))))'
    )
    out, report = watched(anyone, PYTHON, "-I", "-c", code)
    assert out.split() == ["443", "ENETUNREACH", "9", "ECONNREFUSED"]
    assert told(report) == {("connect", "192.0.2.1:443", "ENETUNREACH")}
    assert report["denials"][0]["grant"] == "--network on"


def test_what_is_hidden_is_told_as_such(anyone: Place) -> None:
    script = "mkdir conf; exit 0"
    assert watched(anyone, "sh", "-c", script)[1]["exitCode"] == 0
    code = ATTEMPTS + (
        'each(("key", os.open, "conf/key", os.O_WRONLY | os.O_CREAT), ("own", os.open, "own", os.O_WRONLY), '
        '("cut", os.open, "own", os.O_WRONLY | os.O_TRUNC), ("gone", os.unlink, "own"))'
    )
    out, report = watched(anyone, PYTHON, "-I", "-c", code, flags=("--deny", "conf", "--deny", "own"))
    real = dict(line.split() for line in out.splitlines())
    assert set(real.values()) == {"EACCES", "EROFS", "EBUSY"}  # how the kernel says it differs
    assert told(report) == {
        ("create", str(anyone.workspace / "conf/key"), real["key"]),
        ("write", str(anyone.workspace / "own"), real["own"]),
        ("write", str(anyone.workspace / "own"), real["cut"]),
        ("remove", str(anyone.workspace / "own"), real["gone"]),
    }


WORK = """
set -e
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git init -q r && cd r
git config user.email a@example.org && git config user.name a
for n in 1 2 3 4 5 6 7 8; do echo $n > f$n; done
git add . && git commit -qm one && git mv f1 g1 && git commit -qam two && git gc -q
sqlite3 x.db "pragma journal_mode=wal; create table t(a); insert into t values(1);" > /dev/null
mkdir -p node_modules/a/lib node_modules/.bin
echo x > node_modules/a/lib/i.js.tmp && mv node_modules/a/lib/i.js.tmp node_modules/a/lib/i.js
ln -s ../a/lib/i.js node_modules/.bin/i && chmod 755 node_modules/a/lib/i.js && touch node_modules/.bin/i
cp -a node_modules/a node_modules/b && rm -rf node_modules/a && truncate -s 0 f2
mkdir -p node_modules/b/lib; rm -f nothing nowhere/nothing; mkdir node_modules 2> /dev/null || true
echo x > /dev/null; echo x > /dev/tty 2> /dev/null || true; test -e .git/index
t=$(mktemp -d) && echo x > $t/f && mv $t/f . && rm -r $t
ls -la / > /dev/null; cat ../../outside/f > /dev/null
"""


def test_of_what_is_allowed_or_fails_for_other_reasons_nothing_is_told(anyone: Place) -> None:
    _, report = watched(anyone, "sh", "-c", WORK)
    assert (report["exitCode"], report["denials"]) == (0, [])
    assert report["watch"]["on"]


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_work_in_a_granted_place_of_a_hidden_home_is_no_denial(anyone: Place, backend: str) -> None:
    """As a dispatcher's: its home is hidden, and the workspace lies in it."""
    (anyone.workspace / "work").mkdir()
    anyone.own()
    flags = ("--backend", backend, "--deny", str(anyone.top), "--allow-write", str(anyone.workspace))
    script = "cd work; mkdir d; echo a > d/f; mv d/f d/g; ln -s g d/l; chmod 600 d/g; rm -r d; exit 1"
    _, report = watched(anyone, "sh", "-c", script, flags=flags)
    assert (report["exitCode"], report["watch"]["on"]) == (1, True)
    assert (report["denial"], report["denials"]) == (None, [])


OPEN_OFTEN = """
import json, os, sys
found = {"": 0}
while found[""] < 50 or found.get("EROFS", 0) < 50:
    try:
        os.close(os.open("switch", os.O_WRONLY))
        found[""] += 1
    except OSError as exc:
        name = os.strerror(exc.errno) if exc.errno != 30 else "EROFS"
        found[name] = found.get(name, 0) + 1
print(json.dumps(found))
"""


def test_a_link_that_changes_while_it_is_looked_at_makes_no_false_denial(anyone: Place) -> None:
    """Somebody outside lets it lead in and out: what was looked at is not always what was opened."""
    over = threading.Event()

    def switch() -> None:
        for n in itertools.cycle((0, 1)):
            (anyone.workspace / "next").symlink_to("own" if n else "../outside/f")
            (anyone.workspace / "next").rename(anyone.workspace / "switch")
            if over.is_set():
                return

    (anyone.workspace / "switch").symlink_to("own")
    switching = threading.Thread(target=switch)
    switching.start()
    try:
        out, report = watched(anyone, PYTHON, "-I", "-c", OPEN_OFTEN)
    finally:
        over.set()
        switching.join()
    answers = json.loads(out)
    assert report["watch"]["on"]
    assert {one["errno"] for one in report["denials"]} <= {"EROFS"}
    assert 0 < sum(one["count"] for one in report["denials"]) <= answers["EROFS"]


@pytest.mark.parametrize("backend", ["bwrap", "none"])
def test_where_there_is_no_watcher_that_is_said(anyone: Place, backend: str) -> None:
    flags = ("--full-access",) if backend == "none" else ("--backend", backend)
    _, report = watched(anyone, "true", flags=flags)
    assert report["exitCode"] == 0
    assert report["watch"]["on"] is False
    assert report["watch"]["why"]
    assert report["denials"] == []


# Be watched by somebody else, who wants to hear of nothing, and become the command.
ELSEWHERE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_char_p))
program = Program(1, (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little"))
libc.prctl(38, 1, 0, 0, 0)
heard = libc.syscall({"x86_64": 317, "aarch64": 277}[os.uname().machine], 1, 8, ctypes.byref(program))
os.set_inheritable(heard, True)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_somebody_else_listens_already_the_command_runs_and_that_is_said() -> None:
    with place_of(identity.SELF) as made:
        command = made.command("--watch", "--json", "--", "sh", "-c", "mkdir ../outside/d; echo ran")
        done = made.call([sys.executable, "-I", "-c", ELSEWHERE, *command])
    report = json.loads(done.err.splitlines()[-1])
    assert done.out == "ran\n"
    assert report["enforcement"]["backend"] != "none"
    assert report["watch"] == {"on": False, "why": "the kernel gives no listener: Device or resource busy"}


OWN_LISTENER = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_char_p))
program = Program(1, (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little"))
numbers = {"x86_64": 317, "aarch64": 277}
def ask(number, *args):
    print(errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *args) < 0 else "done")
ask(numbers[os.uname().machine], 1, 0, ctypes.byref(program))
ask(numbers[os.uname().machine], 1, 8, ctypes.byref(program))
ask(425, 8, ctypes.create_string_buffer(256))
"""


def test_a_listener_of_its_own_is_refused_and_told_and_there_is_no_way_around_by_io_uring(
    anyone: Place,
) -> None:
    out, report = watched(anyone, PYTHON, "-I", "-c", OWN_LISTENER)
    assert out.split() == ["done", "EBUSY", "EPERM"]
    [denied] = report["denials"]
    assert (denied["access"], denied["errno"], denied["syscall"]) == ("listen", "EBUSY", "seccomp")
    assert report["denial"] is None


# --- as a server


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Peer, Executor]]:
    async with serving() as (url, executor), ready(url, holdfast=True) as peer:
        yield peer, executor


async def start(peer: Peer, top: Path, script: str, **more: Any) -> dict[str, Any]:
    more = {"watch": True, "sandbox": policy(top)} | more
    return await peer.start("p", script, cwd=(top / "ws").as_uri(), **more)


def denials(peer: Peer) -> list[dict[str, Any]]:
    return [event["params"] for event in peer.events.get("p", []) if event["method"] == "process/denied"]


async def watcher_of(executor: Executor, *, other_than: int = 0) -> int:
    """The watcher's pid; it is a child of the launcher."""
    current = executor.launcher._current
    assert current is not None
    return await asyncio.to_thread(await_watcher, current.process.pid, other_than=other_than)


def await_watcher(parent: int, *, other_than: int) -> int:
    """The pid of the watcher that is a child of this process, or will be one soon."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        for pid in processes(PARENT, parent):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_bytes()
                if name.strip() == watcher.NAME and pid != other_than:
                    return pid
        time.sleep(0.01)
    raise AssertionError("no watcher runs")


async def test_a_repeated_denial_is_counted_and_told_before_the_exit(top: Path) -> None:
    async with served() as (peer, _):
        started = await start(peer, top, "for n in 1 2 3 4 5; do mkdir ../outside/d; done; exit 4")
        assert started["watch"] == {"on": True, "why": None}
        await peer.closed("p")
        assert peer.methods("p").index("process/exited") > max(
            at for at, method in enumerate(peer.methods("p")) if method == "process/denied"
        )
        assert denials(peer)[-1]["count"] == 5
        assert [one["number"] for one in denials(peer)] == list(range(1, len(denials(peer)) + 1))
        answer = await peer.call("process/denials", {"processId": "p"})
        assert answer == {"denials": [denials(peer)[-1]], "dropped": 0, "unread": 0}
        after = {"processId": "p", "after": denials(peer)[-1]["number"]}
        assert (await peer.call("process/denials", after))["denials"] == []


async def test_on_a_terminal_the_first_watched_call_is_answered_too(top: Path) -> None:
    async with served() as (peer, _):
        await start(peer, top, "test -t 0 && mkdir ../outside/d", tty=True)
        await peer.closed("p")
        assert [one["path"] for one in denials(peer)] == [str(top / "outside/d")]


async def test_only_who_asks_for_it_and_knows_it_is_told(top: Path) -> None:
    async with serving() as (url, _):
        async with ready(url, holdfast=True) as peer:
            assert "watch" not in await start(peer, top, "mkdir ../outside/d", watch=False)
            await peer.closed("p")
            assert denials(peer) == []
        async with ready(url) as peer:
            assert "watch" not in await start(peer, top, "mkdir ../outside/d")
            await peer.closed("p")
            assert denials(peer) == []


async def test_without_a_sandbox_nothing_is_watched(top: Path) -> None:
    async with served() as (peer, _):
        started = await start(peer, top, "mkdir ../outside/d", sandbox=None)
        assert started["watch"]["on"] is False
        await peer.closed("p")
        assert (top / "outside/d").is_dir()
        assert (await peer.call("process/denials", {"processId": "p"}))["denials"] == []


async def test_a_killed_watcher_is_replaced_and_the_command_goes_on(top: Path) -> None:
    script = "while [ ! -e stop ]; do echo x > f; done; mkdir ../outside/late && exit 3; echo over"
    async with served() as (peer, executor):
        await start(peer, top, script)
        pid = 0
        for _ in range(3):
            pid = await watcher_of(executor, other_than=pid)
            os.kill(pid, signal.SIGKILL)
        await watcher_of(executor, other_than=pid)
        (top / "ws/stop").touch()
        await peer.closed("p")
        assert peer.exit_code("p") == 0
        assert peer.output("p", "stdout") == b"over\n"
        assert [one["path"] for one in denials(peer)] == [str(top / "outside/late")]


def test_exec_replaces_its_watcher_too(anyone: Place) -> None:
    script = "while [ ! -e stop ]; do echo x > f; done; mkdir ../outside/late && exit 3; echo over"
    with anyone.start("--watch", "--json", "--", "sh", "-c", script) as child:
        pid = 0
        for _ in range(3):
            pid = await_watcher(child.pid, other_than=pid)
            os.kill(pid, signal.SIGKILL)
        await_watcher(child.pid, other_than=pid)
        (anyone.workspace / "stop").touch()
        out, err = child.communicate(timeout=WAIT_S)
    assert (child.returncode, out) == (0, b"over\n")
    assert told(json.loads(err.splitlines()[-1])) == {("create", str(anyone.outside / "late"), "EROFS")}


async def test_a_watcher_holds_nothing_of_its_launcher_and_ends_with_it(top: Path) -> None:
    async with served() as (peer, executor):
        await start(peer, top, "sleep 1000")
        pid, current = await watcher_of(executor), executor.launcher._current
        assert current is not None
        held, owned = (
            {os.readlink(fd) for fd in Path(f"/proc/{one}/fd").iterdir()}
            for one in (pid, current.process.pid)
        )
        assert not {link for link in held & owned if link.startswith(("socket:", "pipe:"))}
        current.process.kill()
        await asyncio.to_thread(current.process.wait, WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)


async def test_nothing_is_left_of_a_watch_when_its_command_or_its_session_ends(top: Path) -> None:
    async with served() as (peer, executor):
        await start(peer, top, "exec sleep 300")
        pid = await watcher_of(executor)
        assert await peer.call("process/terminate", {"processId": "p"}) == {"running": True}
        await peer.closed("p")
        async with asyncio.timeout(WAIT_S):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)


async def test_what_was_writable_looks_so_until_the_last_call_is_judged(top: Path) -> None:
    view = Plan(Base.HOST, (Step(StepKind.WRITABLE, str(top / "ws")),), network_off=True, cwd=str(top / "ws"))
    launcher = LauncherClient()
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    ours, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open(os.devnull, os.O_RDWR)
    with ours:
        try:
            with inside:
                await launcher.start(
                    Command(("true",), "/bin/true", str(top / "ws"), {}),
                    owner=1,
                    streams=(null, null, null),
                    tty=False,
                    state=None,
                    on_exit=ended.set_result,
                    confinement=Confinement(view, OUR_WAY),
                    watch=inside,
                )
            heard, root, mounts = listener.take(ours.fileno())
            async with asyncio.timeout(WAIT_S):
                assert (await ended).code == 0
            assert not looks_read_only(root, top / "ws")
            os.close(mounts)
            async with asyncio.timeout(WAIT_S):
                while not looks_read_only(root, top / "ws"):
                    await asyncio.sleep(0.01)
            for fd in (heard, root):
                os.close(fd)
        finally:
            os.close(null)
            await launcher.aclose()


def looks_read_only(root: int, path: Path) -> bool:
    fd = os.open(str(path).lstrip("/"), os.O_PATH, dir_fd=root)
    try:
        return bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
    finally:
        os.close(fd)


async def test_a_call_that_a_dead_watcher_had_received_is_answered_by_its_successor(top: Path) -> None:
    """The one moment that killing by chance hardly ever hits: received, and not answered."""
    view = Plan(Base.HOST, (Step(StepKind.WRITABLE, str(top / "ws")),), network_off=True, cwd=str(top / "ws"))
    launcher = LauncherClient()
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    ours, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open(os.devnull, os.O_RDWR)
    memory = os.memfd_create("test", os.MFD_CLOEXEC)
    os.ftruncate(memory, watcher.MEMORY_BYTES)
    with ours, here, there:
        try:
            with inside:
                await launcher.start(
                    Command(("mkdir", "../outside/d"), "mkdir", str(top / "ws"), {"PATH": "/usr/bin:/bin"}),
                    owner=1,
                    streams=(null, null, null),
                    tty=False,
                    state=None,
                    on_exit=ended.set_result,
                    confinement=Confinement(view, OUR_WAY),
                    watch=inside,
                )
            heard, root, mounts = listener.take(ours.fileno())
            await asyncio.to_thread(receive_and_die, heard, memory)
            assert not ended.done()
            gone: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
            await launcher.start_watcher(there, owner=1, on_exit=gone.set_result)
            scene = foresight.encode(foresight.scene_of(view, alone=False, degraded=False))
            socket.send_fds(here, [scene], (heard, root, memory))
            async with asyncio.timeout(WAIT_S):
                assert (await ended).code == 1
                said = json.loads(await asyncio.to_thread(here.recv, 4096))
                here.shutdown(socket.SHUT_RDWR)
                assert (await gone).code == 0
            assert (said["path"], said["errno"]) == (str(top / "outside/d"), "EROFS")
            for fd in (heard, root, mounts):
                os.close(fd)
        finally:
            os.close(null)
            os.close(memory)
            await launcher.aclose()


def receive_and_die(heard: int, memory: int) -> None:
    """As a watcher that is killed right after the kernel has told it of a call."""
    notice = ctypes.create_string_buffer(80)
    assert broker.ioctl(heard, broker.RECEIVE, ctypes.addressof(notice)) == 0
    os.pwrite(memory, notice.raw, 0)


# --- the SDK


async def test_the_client_hears_of_denials_across_a_lost_link(top: Path) -> None:
    script = (
        "mkdir ../outside/a; while [ ! -e go ]; do sleep 0.02; done; mkdir ../outside/b; mkdir ../outside/b"
    )
    async with serving() as (url, _), way_to(url) as way, holdfast.connect(way.url) as env:
        confined = holdfast.Policy.workspace_write(str(top / "ws"))
        process = await env.start(["/bin/sh", "-c", script], cwd=str(top / "ws"), policy=confined, watch=True)
        assert process.watch is not None
        assert process.watch.on
        assert process.denials is not None
        found = []
        async with asyncio.timeout(WAIT_S):
            async for denied in process.denials:
                found.append(denied.path)
                if len(found) == 1:
                    way.cut()
                    (top / "ws/go").touch()
        assert list(dict.fromkeys(found)) == [str(top / "outside/a"), str(top / "outside/b")]
        assert [(one.path, one.count) for one in process.denials.known] == [
            (str(top / "outside/a"), 1),
            (str(top / "outside/b"), 2),
        ]
        assert (await process.wait()).code == 1


def find_pid(script: str) -> int:
    """Of the shell that runs this."""
    told = b"\0".join((b"/bin/sh", b"-c", script.encode(), b""))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == told:
                return int(pid)
    return 0


async def test_what_somebody_else_traces_is_told_as_unconfirmed_and_is_no_denial(top: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    script = f"while [ ! -e go ]; do sleep 0.02; done; mkdir {top}/outside/d; exit 3"
    async with serving() as (url, _), holdfast.connect(url) as env:
        confined = holdfast.Policy.workspace_write(str(top / "ws"))
        process = await env.start(["/bin/sh", "-c", script], cwd=str(top / "ws"), policy=confined, watch=True)
        assert process.denials is not None
        async with asyncio.timeout(WAIT_S):
            while not (pid := find_pid(script)):
                await asyncio.sleep(0.01)
            joined = [strace, "-f", "-qq", "-e", "trace=none", "-o", "/dev/null", "-p", str(pid)]
            with subprocess.Popen(joined) as tracing:  # noqa: ASYNC220 - it ends with what it traces
                while f"TracerPid:\t{tracing.pid}\n" not in Path(f"/proc/{pid}/status").read_text("utf-8"):
                    await asyncio.sleep(0.01)
                (top / "ws/go").touch()
                assert (await process.wait()).code == 3
            assert [one async for one in process.denials] == []
        assert process.denials.known == []
        [unconfirmed] = process.denials.unconfirmed
        assert (unconfirmed.path, unconfirmed.predicted) == (str(top / "outside/d"), True)


async def test_what_was_denied_before_the_start_was_answered_is_told_before_the_end() -> None:
    told: list[str] = []
    process = ServerProcess(
        "p",
        push=lambda message: told.append(json.loads(message)["method"]),
        on_closed=lambda _process: None,
        extended=True,
    )
    process.on_denied(
        DeniedCall("p", 1, "create", "/x", "/x", "openat", "EROFS", False, 1, "sh", 1, 0, None, None)
    )
    assert told == []
    ends = [os.pipe() for _ in range(2)]
    process.attach_pipes(ends[0][0], ends[1][0], None)
    for _, theirs in ends:
        os.close(theirs)
    process.on_exited(Exit(1))  # heard in the same turn of the loop
    await asyncio.sleep(0)
    assert told == ["process/denied", "process/exited", "process/closed"]
