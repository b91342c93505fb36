"""What both directions of copying share: parsing the two sides, the summary, and retries.

A tree is copied as far as possible: what cannot be read or written is reported at the end and does not stop
the rest. Links and everything that is neither file nor directory are left out and reported too.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from holdfast.client.environment import Environment
from holdfast.errors import ConnectionLost, HoldfastError, NotFound, SessionLost, UsageError, from_os_error
from holdfast.wire.files import Metadata
from holdfast.wire.paths import Convention, PathUri, to_native, to_uri

T = TypeVar("T")
U = TypeVar("U")

CONCURRENT: Final = 8  # files at once: hides the round trips, and holds 8 blocks in memory
ATTEMPTS: Final = 3  # for a file whose connection was lost; each attempt starts from the beginning

_NAMED: Final = re.compile(r"([A-Za-z0-9_-]{1,64}):(.*)", re.DOTALL)

Progress: TypeAlias = Callable[[int, int], None]  # bytes moved, bytes expected


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What to copy where, and which side is the other machine."""

    where: str
    source: str
    destination: str
    upload: bool


@dataclass(frozen=True, slots=True)
class Note:
    path: str
    reason: str


@dataclass(slots=True)
class Summary:
    """What was copied, what was left out on purpose, and what could not be copied."""

    files: int = 0
    directories: int = 0
    bytes: int = 0
    skipped: list[Note] = field(default_factory=list)
    failed: list[Note] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: HoldfastError | None = None  # the first that made something fail

    def skip(self, path: str, reason: str) -> None:
        self.skipped.append(Note(path, reason))

    def fail(self, path: str, error: HoldfastError) -> None:
        self.failed.append(Note(path, str(error)))
        self.error = self.error or error


def parse_job(source: str, destination: str, environment: str | None) -> CopyJob:
    """Parse the two sides as a user writes them: ENV:PATH, or :PATH with the environment given separately.

    Raises:
        UsageError: not exactly one of them is on the other machine.
    """
    sides = [_split_environment(source, environment), _split_environment(destination, environment)]
    match sides:
        case [(where, path), None]:
            return CopyJob(where, path, destination, upload=False)
        case [None, (where, path)]:
            return CopyJob(where, source, path, upload=True)
    which = "both sides are" if all(sides) else "neither side is"
    raise UsageError(
        f"{which} on another machine", remedy="write one as ENV:PATH, or give --env and write it as :PATH"
    )


def _split_environment(side: str, environment: str | None) -> tuple[str, str] | None:
    if re.match(r"(wss?|unix)://", side):
        raise UsageError("an address is no place for a path", remedy="give --env ADDRESS, and :PATH")
    if environment is not None:
        return (environment, side[1:]) if side.startswith(":") else None
    named = _NAMED.fullmatch(side)
    return (named[1], named[2]) if named else None


class CopyTally:
    """Counts the bytes that were moved, and subtracts those that have to be moved again."""

    def __init__(self, progress: Progress | None) -> None:
        self.summary = Summary()
        self._progress = progress
        self._moved = 0
        self._expected = 0

    def expect(self, size: int) -> None:
        self._expected += size
        self.move(0)

    def move(self, size: int) -> None:
        self._moved += size
        if self._progress is not None:
            self._progress(self._moved, max(self._moved, self._expected))

    async def attempt(self, work: Callable[[Callable[[int], None]], Awaitable[None]]) -> int:
        """Do the work, and repeat it if a connection was lost. Return how many bytes it moved."""
        for left in reversed(range(ATTEMPTS)):
            moved = 0

            def count(size: int) -> None:
                nonlocal moved
                moved += size
                self.move(size)

            try:
                await work(count)
                return moved
            except ConnectionLost:
                self.move(-moved)
                if not left:
                    raise
            except OSError as exc:
                self.move(-moved)
                raise name_error(exc) from None
            except BaseException:
                self.move(-moved)
                raise
        raise AssertionError("the last attempt returns or raises")


async def run_all(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all works, CONCURRENT at a time; the first error cancels the others and is raised."""
    waiting = iter(works)

    async def work() -> None:
        for do in waiting:
            await do()

    workers = [asyncio.get_running_loop().create_task(work()) for _ in range(CONCURRENT)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def note_failure(tally: CopyTally, path: str, work: Awaitable[None]) -> None:
    """Copy one file of a tree and note its failure; only a lost session ends the whole copy."""
    try:
        await work
    except SessionLost:
        raise
    except HoldfastError as exc:
        tally.summary.fail(path, exc)


# --- files of this machine


@contextmanager
def open_descriptor(path: str, flags: int, mode: int = 0) -> Iterator[int]:
    """Open a file and yield its descriptor, which is closed when the block ends."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def run_in_thread(call: Callable[[int, T], U], descriptor: int, value: T) -> U:
    """Run a blocking call in a thread.

    Wait for its end even when cancelled: after that the descriptor may be another file.
    """
    work = asyncio.ensure_future(asyncio.to_thread(call, descriptor, value))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def name_error(exc: OSError) -> HoldfastError:
    """Convert a failure of this machine's files, with the name of the file."""
    kind = type(from_os_error(exc))
    name = exc.filename2 or exc.filename
    return kind(f"{name}: {exc.strerror}" if isinstance(name, str) else str(exc.strerror))


# --- paths of the other machine


def resolve_there(environment: Environment, path: str) -> str:
    """Resolve a path as typed against the other machine's working directory.

    Raises:
        UsageError: it is relative and the working directory is unknown, or it is not a path.
    """
    with suppress(UsageError):
        return to_native(to_uri(path).uri)
    if environment.info.cwd is None or "\0" in path:
        raise UsageError(f"{path!r} is not an absolute path", remedy="name it from the root")
    return to_native(PathUri.parse(environment.info.cwd).join(path).uri)


def is_posix(path: str) -> bool:
    return to_uri(path).convention is Convention.POSIX


def join(folder: str, way: str) -> str:
    """The path of an entry below a directory of the other machine."""
    if not way:
        return folder
    separator = "/" if is_posix(folder) else "\\"
    return folder.rstrip(separator) + separator + way.replace("/", separator)


def split_there(path: str) -> tuple[str, str]:
    """Split into directory and name; a root has no name."""
    above, name = to_uri(path).parent(), to_uri(path).basename()
    return (path, "") if above is None or name is None else (to_native(above.uri), name)


async def stat_there(environment: Environment, path: str) -> Metadata | None:
    """The metadata of what is at the path, or None if nothing is."""
    try:
        return await environment.files.stat(path)
    except NotFound:
        return None
    except HoldfastError as exc:
        raise type(exc)(f"{path}: {exc}") from None
