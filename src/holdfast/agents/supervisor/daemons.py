"""The daemons of a home: the card that each writes about itself, and the processes that the kernel reports.

    HOME/daemons/ROLE-PID.json    one card per daemon, locked by it (`flock`) as long as it lives

A card is valid only while its lock is held, and only for the process with the start time on the card. Daemons
of older versions have no card; they are found by the sockets that they listen on and the locks that they
hold. Daemons are never found by name or command line.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from holdfast import __version__, decoding
from holdfast.agents.worker.book import WorkerRecords, tail
from holdfast.errors import OperationFailed
from holdfast.home import remember, state_directory
from holdfast.local.lock import take_lock
from holdfast.local.shown import count

# --- processes as the kernel knows them: found by the locks and sockets they hold, identified by start time

CONNECT_S: Final = 1.0  # so that a listener with a full queue does not block the query for its identity
LOOK_S: Final = 0.02  # between looks at a process that is about to end and is not our child
_STATE, _BEGAN = 0, 19  # members of /proc/PID/stat after the name
_GONE: Final = frozenset("ZX")  # dead, except for the exit status that its parent must fetch


class ProcessInfo(NamedTuple):
    """A process, distinguishable from a later one with the same pid. `began` is in ticks since boot."""

    pid: int
    began: int


class MemoryUse(NamedTuple):
    """In bytes.

    `pss` divides shared memory among the processes that share it; None if the kernel hides it.
    """

    rss: int
    pss: int | None


def find_process(pid: int) -> ProcessInfo | None:
    """Return the process that has this pid now; None if there is none."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        found = text.rpartition(")")[2].split()
        if found and found[_STATE] not in _GONE:
            return ProcessInfo(pid, int(found[_BEGAN]))
    return None


def is_alive(process: ProcessInfo) -> bool:
    return find_process(process.pid) == process


def find_descendants(process: ProcessInfo) -> list[ProcessInfo]:
    """Return all present descendants of a process."""
    found: list[ProcessInfo] = []
    waiting = [process.pid]
    while waiting:
        for task in _tasks(waiting.pop()):
            with contextlib.suppress(OSError):
                children = [int(word) for word in (task / "children").read_text("ascii").split()]
                found += [one for child in children if (one := find_process(child)) is not None]
                waiting += children
    return found


def find_listener(path: Path) -> ProcessInfo | None:
    """Return the process that listens on this unix socket; None if none does, or one of another user."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_S)
        sock.connect(str(path))
        pid, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return find_process(pid) if uid == os.getuid() else None
    return None


def find_lock_holder(path: Path) -> ProcessInfo | None:
    """Return the process with the exclusive lock (`flock`) on a file; None if none, or if it is unknown."""
    with contextlib.suppress(OSError):
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            wanted = fields[1:2] == ["FLOCK"] and fields[3:4] == ["WRITE"] and fields[5:6] == [device]
            if wanted and int(fields[4]) > 0:  # 0: the process is in another PID namespace
                return find_process(int(fields[4]))
    return None


def send(process: ProcessInfo, signum: signal.Signals) -> bool:
    """Send a signal; return whether the process still existed."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):  # the handle belongs to the process that has the pid now
            return False
        signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


async def wait_for_end(
    processes: Iterable[ProcessInfo], within_s: float, hasten: asyncio.Event | None = None
) -> list[ProcessInfo]:
    """Wait until all have ended, up to `within_s` or until `hasten` is set; return those that still live."""
    living = [one for one in processes if is_alive(one)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while living and not (hasten is not None and hasten.is_set()):
                await asyncio.sleep(LOOK_S)
                living = [one for one in living if is_alive(one)]
    return living


def read_memory(process: ProcessInfo) -> MemoryUse | None:
    """Return the memory use of a process; None if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = _sizes(Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii"))
        return MemoryUse(found["Rss"], found["Pss"]) if is_alive(process) else None
    with contextlib.suppress(OSError, ValueError, KeyError):
        found = _sizes(Path(f"/proc/{process.pid}/status").read_text("utf-8", "replace"))
        return MemoryUse(found["VmRSS"], None)
    return None


def _sizes(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {row[0].removesuffix(":"): int(row[1]) * 1024 for row in rows}


def _tasks(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


# --- daemons

DOWN: Final = "holdfast down"
FOLDER: Final = "daemons"
PLACE: Final = Path(__file__).resolve().parents[2]

UP: Final = "up"
DISPATCHER: Final = "dispatcher"
SUPERVISOR: Final = "supervisor"
OWNER: Final = "worker server"  # the exec server that owns the workers
EXEC: Final = "exec server"  # the one for clients such as codex, which is part of `up`
DASHBOARD: Final = "dashboard"
_ORDER: Final = (UP, DISPATCHER, EXEC, DASHBOARD, SUPERVISOR, OWNER)
_LOCKS: Final = {"dispatcher.lock": DISPATCHER}
_SOCKETS: Final = {"supervisor.sock": SUPERVISOR, "exec.sock": OWNER}
_LOGS: Final = {SUPERVISOR: "supervisor.log", OWNER: "exec.log"}
MAX_LOG_READ: Final = 256 * 1024  # bytes: the end of a log, however long it has become
MAX_ERROR: Final = 300  # characters: one line for people
_ERROR: Final = re.compile(r"\d\d:\d\d:\d\d (?:error|critical) ")


class Origin(msgspec.Struct, frozen=True):
    """The code that a process runs: `place` is the directory of the package, `build` a hash of its files."""

    version: str
    place: str
    build: str


def describe_difference(mine: Origin, theirs: Origin | None, *, there: bool) -> str | None:
    """Describe how the daemon's code differs from the client's; None if it does not.

    `theirs` is None for a daemon without a card; `there` is whether the daemon's place still exists.
    """
    if theirs is None:
        return "it does not say which version it is, so it is an older one"
    if not there:
        return f"it was installed in {theirs.place}, which is gone"
    if theirs.version != mine.version:
        return f"it is version {theirs.version} of {theirs.place}, and this is {mine.version}"
    if theirs.place != mine.place:
        return f"it was installed in {theirs.place}, and this in {mine.place}"
    if theirs.build != mine.build:
        return f"the files in {theirs.place} have changed since it was started"
    return None


def explain_keeping(differs: str, *, workers: int, dispatcher: bool, at: str = "") -> str | None:
    """Explain why a supervisor with other code stays, and what to type; None if replacing it loses nothing.

    Workers go on by themselves only while their exec server does, and a dispatcher would start the daemon of
    its own version again. `at` are the options that name the home: "", or --home and the path.
    """
    if not workers and not dispatcher:
        return None
    because = count(workers, "worker runs", "workers run") if workers else "a dispatcher uses it"
    typed = " ".join(filter(None, (DOWN, at, "--workers" if workers else "")))
    again = ", then " + " ".join(filter(None, ("holdfast up", at))) if dispatcher else ""
    told = f"the supervisor runs other code than this command: {differs}"
    return f"{told}; it stays because {because}. To replace it: {typed}{again}"


class DaemonCard(msgspec.Struct, frozen=True):
    """What a daemon publishes about itself. It holds no secret."""

    role: str
    pid: int
    began: int  # start time in kernel ticks, to distinguish it from a later process with this pid
    since: float  # seconds since 1970
    origin: Origin
    address: str = ""
    schema: int = 1


class Daemon(msgspec.Struct, frozen=True):
    """A living daemon. Without a card it is of a version that had none."""

    role: str
    process: ProcessInfo
    card: DaemonCard | None = None


@functools.cache
def origin() -> Origin:
    """Return the origin of the code of this process. Daemons call it at start: the files may change later."""
    digest = hashlib.sha256()
    for path in sorted(PLACE.rglob("*.py")):
        with contextlib.suppress(OSError):
            status = path.stat()
            digest.update(f"{path.relative_to(PLACE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return Origin(__version__, str(PLACE), digest.hexdigest()[:16])


@contextlib.contextmanager
def registered(home: Path, role: str, address: str = "") -> Iterator[None]:
    """Register this process in this role, until the end of the block or its death.

    Raises:
        OperationFailed: the home cannot be written.
    """
    fd, path = prepare(home, role)
    try:
        try:
            fill(fd, path, role, os.getpid(), address)
        except OSError as exc:
            raise OperationFailed(f"{home} cannot be written: {exc.strerror}") from exc
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def remember_home(home: Path) -> None:
    """Register this directory as a home, so that policies hide it. Raises OperationFailed if that fails."""
    try:
        remember(home)
    except OSError as exc:
        reason = exc.strerror or exc
        raise OperationFailed(
            f"{home} cannot be written down as a home: {reason}",
            remedy=f"make {state_directory()} writable, or set XDG_STATE_HOME",
        ) from None


def prepare(home: Path, role: str) -> tuple[int, Path]:
    """Create a locked card file under a hidden name, for `fill`. A child that inherits it keeps the lock."""
    WorkerRecords(home).prepare()
    remember_home(home)
    folder = home / FOLDER
    path = folder / f"{role.replace(' ', '-')}-{os.getpid()}-{time.monotonic_ns()}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise OperationFailed(f"{folder} cannot be used: {exc.strerror}") from None
    take_lock(fd)  # cannot fail: no other process knows the file yet
    return fd, path


def fill(fd: int, path: Path, role: str, pid: int, address: str = "") -> None:
    """Write the card of a process and publish it; if the process is gone, remove the file."""
    hidden, process = path.with_suffix(".new"), find_process(pid)
    if process is None:
        hidden.unlink(missing_ok=True)
        return
    os.write(fd, msgspec.json.encode(DaemonCard(role, pid, process.began, time.time(), origin(), address)))
    hidden.rename(path)


def find(home: Path) -> list[Daemon]:
    """Return all living daemons in the order of roles: those that start others come first."""
    found = [Daemon(card.role, ProcessInfo(card.pid, card.began), card) for card in _cards(home)]
    known = {(one.role, one.process) for one in found}
    held = [(role, find_lock_holder(home / name)) for name, role in _LOCKS.items()]
    held += [(role, find_listener(home / name)) for name, role in _SOCKETS.items()]
    for role, process in held:
        if process is not None and (role, process) not in known:
            known.add((role, process))
            found.append(Daemon(role, process))
    return sorted(found, key=lambda one: (_ORDER.index(one.role) if one.role in _ORDER else 9, one.process))


def find_by_role(home: Path, *roles: str) -> list[Daemon]:
    return [one for one in find(home) if one.role in roles]


def read_last_error(home: Path, role: str) -> str | None:
    """Return the last error in the log of a daemon; None if there is none, or the daemon has no log."""
    name = _LOGS.get(role)
    with contextlib.suppress(OSError):
        return name and find_last_error(tail(home / name, MAX_LOG_READ).decode("utf-8", "replace"))
    return None


def find_last_error(text: str) -> str | None:
    """Return the last line of a log that reports an error, with secrets redacted; None if there is none."""
    from holdfast.doctor.explain.redaction import redact_line  # imported late: rarely needed

    line = next((line for line in reversed(text.splitlines()) if _ERROR.match(line)), None)
    return None if line is None else redact_line(line, limit=MAX_ERROR)


def list_living_workers(home: Path) -> list[str]:
    """Return the workers not known to have ended; empty if no exec server that owns them is running."""
    if find_listener(home / "exec.sock") is None:
        return []
    return sorted(record.id for record in WorkerRecords(home) if record.phase != "ended")


def _cards(home: Path) -> Iterator[DaemonCard]:
    with contextlib.suppress(OSError):
        for path in sorted((home / FOLDER).glob("*.json")):
            card = _read_held_card(path)
            if card is not None and is_alive(ProcessInfo(card.pid, card.began)):
                yield card


def _read_held_card(path: Path) -> DaemonCard | None:
    """Read a card while its daemon holds the lock; a card without a holder is removed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if take_lock(fd, shared=True):
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError, msgspec.MsgspecError), open(fd, "rb", closefd=False) as file:
            return decoding.decode(file.read(), DaemonCard)
        return None
    finally:
        os.close(fd)
