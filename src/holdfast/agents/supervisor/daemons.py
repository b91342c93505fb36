"""The daemons of a home: what each says of itself, and who the kernel says is there.

    HOME/daemons/ROLE-PID.json    one card a daemon, locked by it (`flock`) as long as it lives

A card is believed only while its lock is held, and only of the process that began when the card says. What
an older version started has no card; it is found by the sockets that it listens on and the locks that it
holds. Nothing is ever found by its name or its command line.
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

# --- processes as the kernel knows them: found by what they hold, told from each other

CONNECT_S: Final = 1.0  # a listener whose queue is full holds up nobody who only asks who it is
LOOK_S: Final = 0.02  # between looks at a process that is about to end and is not our child
_STATE, _BEGAN = 0, 19  # members of /proc/PID/stat after the name
_GONE: Final = frozenset("ZX")  # nothing is left of it but what its parent has to fetch


class ProcessInfo(NamedTuple):
    """A process that is not taken for a later one with the same number. `began` is in ticks since boot."""

    pid: int
    began: int


class MemoryUse(NamedTuple):
    """In bytes. `pss` counts what several processes share in equal parts; None where the kernel hides it."""

    rss: int
    pss: int | None


def find_process(pid: int) -> ProcessInfo | None:
    """The process that has this number now; None when there is none."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        found = text.rpartition(")")[2].split()
        if found and found[_STATE] not in _GONE:
            return ProcessInfo(pid, int(found[_BEGAN]))
    return None


def is_alive(process: ProcessInfo) -> bool:
    return find_process(process.pid) == process


def find_descendants(process: ProcessInfo) -> list[ProcessInfo]:
    """Everything that descends from it now."""
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
    """Who listens on this unix socket; None when nobody does, or another user."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_S)
        sock.connect(str(path))
        pid, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return find_process(pid) if uid == os.getuid() else None
    return None


def find_lock_holder(path: Path) -> ProcessInfo | None:
    """Who alone holds the lock on this file (`flock`); None when nobody does, or the kernel does not say."""
    with contextlib.suppress(OSError):
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            wanted = fields[1:2] == ["FLOCK"] and fields[3:4] == ["WRITE"] and fields[5:6] == [device]
            if wanted and int(fields[4]) > 0:  # 0 is of another PID namespace
                return find_process(int(fields[4]))
    return None


def send(process: ProcessInfo, signum: signal.Signals) -> bool:
    """Whether there was still such a process to send it to."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):  # the handle is of whoever has the number now
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
    """Those that still live after this time, or when somebody is in a hurry; returns once there are none."""
    living = [one for one in processes if is_alive(one)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while living and not (hasten is not None and hasten.is_set()):
                await asyncio.sleep(LOOK_S)
                living = [one for one in living if is_alive(one)]
    return living


def read_memory(process: ProcessInfo) -> MemoryUse | None:
    """None when it is gone."""
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
    """Which code a process runs: `place` is the directory of the package, `build` changes with its files."""

    version: str
    place: str
    build: str


def describe_difference(mine: Origin, theirs: Origin | None, *, there: bool) -> str | None:
    """What tells the daemon's code from the client's, in words; None when nothing does.

    `theirs` is None of a daemon that does not say; `there` is whether the daemon's place still exists.
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
    """Why a supervisor that runs other code stays, and what to type; None where replacing it loses nothing.

    Workers go on by themselves only while their exec server does, and a dispatcher would start the daemon of
    its own version again. `at` is what says where: "", or --home and the place.
    """
    if not workers and not dispatcher:
        return None
    because = count(workers, "worker runs", "workers run") if workers else "a dispatcher uses it"
    typed = " ".join(filter(None, (DOWN, at, "--workers" if workers else "")))
    again = ", then " + " ".join(filter(None, ("holdfast up", at))) if dispatcher else ""
    told = f"the supervisor runs other code than this command: {differs}"
    return f"{told}; it stays because {because}. To replace it: {typed}{again}"


class DaemonCard(msgspec.Struct, frozen=True):
    """What a daemon says of itself. No secret is in it."""

    role: str
    pid: int
    began: int  # as the kernel counts it, so that no later process of this number is taken for it
    since: float  # seconds since 1970
    origin: Origin
    address: str = ""
    schema: int = 1


class Daemon(msgspec.Struct, frozen=True):
    """One that lives. Without a card it is of a version that had none."""

    role: str
    process: ProcessInfo
    card: DaemonCard | None = None


@functools.cache
def origin() -> Origin:
    """Of the code that this process runs. A daemon asks as it starts: later its files may be others."""
    digest = hashlib.sha256()
    for path in sorted(PLACE.rglob("*.py")):
        with contextlib.suppress(OSError):
            status = path.stat()
            digest.update(f"{path.relative_to(PLACE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return Origin(__version__, str(PLACE), digest.hexdigest()[:16])


@contextlib.contextmanager
def registered(home: Path, role: str, address: str = "") -> Iterator[None]:
    """Say that this process has this role, until the end of the block or its death.

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
    """Raises OperationFailed when no policy could know that this directory is to be hidden."""
    try:
        remember(home)
    except OSError as exc:
        reason = exc.strerror or exc
        raise OperationFailed(
            f"{home} cannot be written down as a home: {reason}",
            remedy=f"make {state_directory()} writable, or set XDG_STATE_HOME",
        ) from None


def prepare(home: Path, role: str) -> tuple[int, Path]:
    """A locked file without a name yet, for `fill`. A child that inherits it holds the lock by living."""
    WorkerRecords(home).prepare()
    remember_home(home)
    folder = home / FOLDER
    path = folder / f"{role.replace(' ', '-')}-{os.getpid()}-{time.monotonic_ns()}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise OperationFailed(f"{folder} cannot be used: {exc.strerror}") from None
    take_lock(fd)  # nobody else knows of it yet
    return fd, path


def fill(fd: int, path: Path, role: str, pid: int, address: str = "") -> None:
    """Write the card of this process and let others find it; of one that is gone there is none."""
    hidden, process = path.with_suffix(".new"), find_process(pid)
    if process is None:
        hidden.unlink(missing_ok=True)
        return
    os.write(fd, msgspec.json.encode(DaemonCard(role, pid, process.began, time.time(), origin(), address)))
    hidden.rename(path)


def find(home: Path) -> list[Daemon]:
    """All that live, the one that started the others first."""
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
    """What the log of a daemon last says of an error; None where it says none, or the daemon has no log."""
    name = _LOGS.get(role)
    with contextlib.suppress(OSError):
        return name and find_last_error(tail(home / name, MAX_LOG_READ).decode("utf-8", "replace"))
    return None


def find_last_error(text: str) -> str | None:
    """The last line of a log that tells of one, without secrets."""
    from holdfast.doctor.explain.redaction import redact_line  # few ask

    line = next((line for line in reversed(text.splitlines()) if _ERROR.match(line)), None)
    return None if line is None else redact_line(line, limit=MAX_ERROR)


def list_living_workers(home: Path) -> list[str]:
    """The workers that are not known to have ended, while somebody is there who owns them."""
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
    """What is in a card, while somebody holds its lock; one that nobody holds is removed."""
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
