"""The two background processes: the exec server that owns the workers, and the supervisor.

The first process that needs one of them starts it, in a session of its own. Neither is a child of the other:
the supervisor may die and be started again while the exec server keeps the workers. They inherit only
environment variables that carry no secret. A client replaces a supervisor that runs other code if nothing is
lost by that; the new supervisor does the same with the exec server.
"""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.agents.supervisor import daemons, messages
from holdfast.agents.supervisor.daemons import Daemon, ProcessInfo
from holdfast.agents.worker import book
from holdfast.errors import HoldfastError, OperationFailed, SessionAttached, Unreachable
from holdfast.home import default_home
from holdfast.local import homekey
from holdfast.local.linux import require_linux
from holdfast.local.lock import take_lock
from holdfast.sandbox.plan import prerequisites
from holdfast.unixrpc.client import PeerGone, RpcClient

if TYPE_CHECKING:
    from holdfast.client.environment import Environment

log = logging.getLogger(__name__)

RESUME_S: Final = 60.0  # how long the exec server may take to notice that the previous supervisor is gone
START_S: Final = 20.0  # for an interpreter to start, on a machine that is busy with agents
ALREADY: Final = 75  # exit status of a supervisor that finds another one at work
KEEP: Final = "7d"  # how long workers are kept if no supervisor comes back
_LOG_TAIL: Final = 2000
_PASSED: Final = (
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
)
_TOLD: Final[set[str]] = set()  # warnings already logged: a process may connect often
_STARTED: Final[list["subprocess.Popen[bytes]"]] = []  # never waited for: they are meant to outlive us

GONE_S: Final = 15.0  # for a daemon to end by itself: the processes that it owns must end first
LEAVE_S: Final = 60.0  # for a dispatcher to give its runs back, with their workers and teardowns
LOCK_TRIES: Final = 50  # every 0.1 s: a process that checks for a supervisor holds the lock for a moment

T = TypeVar("T")


def exec_address(home: Path) -> str:
    return f"unix://{home / 'exec.sock'}"


def is_listening(home: Path) -> bool:
    """Return whether an exec server listens. Does not wait for one that is too slow to accept."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(home / "exec.sock"))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def supervisor_socket(home: Path) -> Path:
    return home / "supervisor.sock"


async def connect(home: Path) -> RpcClient:
    """Connect to the running supervisor. Raises Unreachable if there is none."""
    return await RpcClient.connect(
        supervisor_socket(home),
        "supervisor",
        (messages.CHANGE, messages.OUTPUT),
        max_line=messages.MAX_LINE,
        token=lambda: homekey.access_token(home),
    )


async def reach_supervisor(home: Path) -> RpcClient:
    """Connect to the supervisor of this home; start it if there is none.

    A supervisor that runs other code than this process is replaced if it is not needed; otherwise a warning
    is logged.

    Raises:
        OperationFailed: it does not start; its log says why.
        SandboxUnavailable: this machine cannot confine processes.
    """
    require_linux("a worker", "the same on a Linux machine; here: holdfast exec --env NAME|URL -- COMMAND")
    book.WorkerRecords(home).prepare()
    argv = [*prerequisites.command(), "worker", "supervise", "--home", str(home)]

    def spawn() -> "subprocess.Popen[bytes]":
        return _spawn(argv, home / "supervisor.log")

    client = await _reach(lambda: connect(home), "the supervisor", spawn, home / "supervisor.log")
    try:
        replaced = await _is_to_be_replaced(home, client)
    except BaseException:  # mainly cancellation
        await client.aclose()
        raise
    if replaced:
        await client.aclose()
        await _send_away(daemons.find_by_role(home, daemons.SUPERVISOR))
        client = await _reach(lambda: connect(home), "the supervisor", spawn, home / "supervisor.log")
    return client


async def _is_to_be_replaced(home: Path, client: RpcClient) -> bool:
    """Return whether this supervisor runs other code and is not needed; if it is needed, log a warning."""
    found = await asyncio.to_thread(daemons.find_by_role, home, daemons.SUPERVISOR, daemons.DISPATCHER)
    ours = {process.pid for process in _STARTED}  # replacing our own child again would change nothing
    supervisors = [one for one in found if one.role == daemons.SUPERVISOR and one.process.pid not in ours]
    differs = next((words for one in supervisors if (words := difference(one)) is not None), None)
    if differs is None:
        return False
    dispatcher = any(one.role == daemons.DISPATCHER and one.process.pid != os.getpid() for one in found)
    try:
        alive = await client.call(messages.COUNT, messages.ListParams())
    except PeerGone:
        return False
    at = "" if home == default_home().absolute() else f"--home {shlex.quote(str(home))}"
    told = daemons.explain_keeping(differs, workers=len(alive), dispatcher=dispatcher, at=at)
    if told is None:
        return True
    if told not in _TOLD:
        _TOLD.add(told)
        log.warning("%s", told)
    return False


def difference(daemon: Daemon) -> str | None:
    """Describe how a daemon's code differs from ours; None if it does not."""
    theirs = daemon.card.origin if daemon.card is not None else None
    there = theirs is not None and Path(theirs.place).is_dir()
    return daemons.describe_difference(daemons.origin(), theirs, there=there)


async def _send_away(ending: Sequence[Daemon]) -> None:
    """End supervisors. Their workers stay for the next one, so nothing is lost."""
    for one in ending:
        daemons.send(one.process, signal.SIGTERM)
    if await daemons.wait_for_end([one.process for one in ending], START_S):
        raise OperationFailed("a supervisor of another version does not end", remedy=daemons.DOWN)


async def open_session(home: Path, *, resume: str | None = None) -> "Environment":
    """Open a session with the running exec server. Raises Unreachable if there is none."""
    from holdfast.client.environment import Environment  # imported late: most callers use only the supervisor

    return await Environment.open(exec_address(home), token=homekey.access_token(home), resume=resume)


async def resume_session(home: Path, session_id: str) -> "Environment":
    """Resume a session. Retry while the exec server listens, because a slow server is not a dead one.

    Raises:
        HoldfastError: the session is gone.
    """
    until = asyncio.get_running_loop().time() + RESUME_S
    while True:
        try:
            return await open_session(home, resume=session_id)
        except (SessionAttached, Unreachable):
            if asyncio.get_running_loop().time() > until or not is_listening(home):
                raise
        await asyncio.sleep(0.02)


async def reach_exec_server(home: Path) -> "Environment":
    """Open a session with the exec server of this home; start the server if there is none."""
    address = exec_address(home)
    argv = [*prerequisites.command(), "serve", "--listen", address, "--keep", KEEP]
    argv += ["--home", str(home)]

    def spawn() -> "subprocess.Popen[bytes]":
        card, path = daemons.prepare(home, daemons.OWNER)
        try:
            process = _spawn(argv, home / "exec.log", card)
            daemons.fill(card, path, daemons.OWNER, process.pid, address)
        finally:
            os.close(card)  # the server inherited it, and holds the lock as long as it lives
        return process

    return await _reach(
        lambda: open_session(home), "the exec server of the workers", spawn, home / "exec.log"
    )


async def _reach(
    connect: Callable[[], Awaitable[T]], what: str, spawn: Callable[[], "subprocess.Popen[bytes]"], log: Path
) -> T:
    try:
        return await connect()
    except Unreachable:
        process = spawn()
    try:
        async with asyncio.timeout(START_S):
            while True:
                gone = process.poll() is not None
                try:
                    return await connect()
                except Unreachable as exc:
                    if gone and process.returncode != ALREADY:
                        said, remedy = book.read_failure(log, _LOG_TAIL)
                        raise OperationFailed(
                            f"{what} does not start: {said or exc}", remedy=remedy
                        ) from None
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise OperationFailed(f"{what} does not start within {START_S:g} s") from None


def _spawn(argv: Sequence[str], log: Path, *inherited: int) -> "subprocess.Popen[bytes]":
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            argv,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            pass_fds=inherited,
            cwd="/",
            env=_environment(os.environ),
        )
    finally:
        os.close(fd)
    _STARTED.append(process)
    return process


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in _PASSED if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith(("LC_", "HOLDFAST_"))}
    return kept


def take_supervisor_lock(home: Path) -> int | None:
    """Take the lock of the supervisor of this home, held until closed. None if another process has it."""
    fd = os.open(home / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if take_lock(fd):
        return fd
    os.close(fd)
    return None


async def end(
    home: Path,
    ending: Sequence[Daemon],
    signum: signal.Signals = signal.SIGTERM,
    *,
    within_s: float = GONE_S,
    hasten: asyncio.Event | None = None,
) -> None:
    """End daemons with all their descendants: ask first, and kill them if that takes too long.

    A daemon may have started another one; daemons that are not in `ending` are left alone.
    """
    there = {one.process for one in ending}
    others = {one.process for one in daemons.find(home)} - there
    family = with_descendants(there) - with_descendants(others)
    for process in there:
        daemons.send(process, signum)
    stubborn = await daemons.wait_for_end(there, within_s, hasten)
    family |= with_descendants(stubborn) - with_descendants(others)
    for process in stubborn:
        daemons.send(process, signal.SIGKILL)
    # The processes that they owned end by themselves: their launchers see their socket close.
    for process in await daemons.wait_for_end(family, within_s, hasten):
        daemons.send(process, signal.SIGKILL)
    await daemons.wait_for_end(family, GONE_S)


async def end_background(home: Path, hasten: asyncio.Event | None = None) -> bool:
    """End the supervisor and the exec server that owns the workers, with all remaining workers.

    False if another process started a supervisor meanwhile, which is left alone.
    """
    await end(home, daemons.find_by_role(home, daemons.SUPERVISOR), hasten=hasten)
    lock: int | None = None
    for _ in range(LOCK_TRIES):
        if (lock := take_supervisor_lock(home)) is not None:
            break
        await asyncio.sleep(0.1)
    if lock is None:
        return False
    try:
        await end(home, daemons.find_by_role(home, daemons.OWNER), hasten=hasten)
    finally:
        os.close(lock)
    return True


async def stop_workers(home: Path, ids: Sequence[str], *, grace_s: float) -> None:
    """Stop workers through the supervisor, if there is one, so that their records say how they ended."""
    try:
        client = await connect(home)
    except HoldfastError:
        return
    try:

        async def stop(id: str) -> None:
            with contextlib.suppress(HoldfastError):  # it ended meanwhile, or the supervisor did
                asked = messages.StopParams(id, grace_s)
                await client.call(messages.STOP, asked, timeout_s=GONE_S)

        await asyncio.gather(*(stop(id) for id in ids))
    finally:
        await client.aclose()


def with_descendants(some: Collection[ProcessInfo]) -> set[ProcessInfo]:
    """Return these processes and all their present descendants."""
    return {*some, *(child for one in some for child in daemons.find_descendants(one))}
