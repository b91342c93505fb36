"""The daemons of a home: what each says of itself, and who the kernel says is there.

    HOME/daemons/ROLE-PID.json    one card a daemon, locked by it (`flock`) as long as it lives

A card is believed only while its lock is held, and only of the process that began when the card says. What
an older version started has no card; it is found by the sockets that it listens on and the locks that it
holds. Nothing is ever found by its name or its command line.
"""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast import __version__
from holdfast.agents.supervisor import processes
from holdfast.agents.supervisor.processes import ProcessInfo
from holdfast.agents.worker.book import WorkerRecords
from holdfast.errors import OperationFailed
from holdfast.home import state_directory
from holdfast.local import homes
from holdfast.local.lock import take_lock

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


def explain_keeping(differs: str, *, workers: int, dispatcher: bool) -> str | None:
    """Why a supervisor that runs other code stays, and what to type; None where replacing it loses nothing.

    Workers go on by themselves only while their exec server does, and a dispatcher would start the daemon of
    its own version again.
    """
    if not workers and not dispatcher:
        return None
    because = f"{workers} workers run" if workers else "a dispatcher uses it"
    typed = f"{DOWN} --workers" if workers else DOWN
    again = ", then holdfast up" if dispatcher else ""
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
        homes.remember(home)
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
    hidden, process = path.with_suffix(".new"), processes.find_process(pid)
    if process is None:
        hidden.unlink(missing_ok=True)
        return
    os.write(fd, msgspec.json.encode(DaemonCard(role, pid, process.began, time.time(), origin(), address)))
    hidden.rename(path)


def find(home: Path) -> list[Daemon]:
    """All that live, the one that started the others first."""
    found = [Daemon(card.role, ProcessInfo(card.pid, card.began), card) for card in _cards(home)]
    known = {(one.role, one.process) for one in found}
    held = [(role, processes.find_lock_holder(home / name)) for name, role in _LOCKS.items()]
    held += [(role, processes.find_listener(home / name)) for name, role in _SOCKETS.items()]
    for role, process in held:
        if process is not None and (role, process) not in known:
            known.add((role, process))
            found.append(Daemon(role, process))
    return sorted(found, key=lambda one: (_ORDER.index(one.role) if one.role in _ORDER else 9, one.process))


def find_by_role(home: Path, *roles: str) -> list[Daemon]:
    return [one for one in find(home) if one.role in roles]


def list_living_workers(home: Path) -> list[str]:
    """The workers that are not known to have ended, while somebody is there who owns them."""
    if processes.find_listener(home / "exec.sock") is None:
        return []
    return sorted(record.id for record in WorkerRecords(home) if record.phase != "ended")


def _cards(home: Path) -> Iterator[DaemonCard]:
    with contextlib.suppress(OSError):
        for path in sorted((home / FOLDER).glob("*.json")):
            card = _read_held_card(path)
            if card is not None and processes.is_alive(ProcessInfo(card.pid, card.began)):
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
            return msgspec.json.decode(file.read(), type=DaemonCard)
        return None
    finally:
        os.close(fd)
