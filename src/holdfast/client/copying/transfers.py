"""Files and trees of this machine, copied to the other one.

The protocol cannot rename. So all files go into a directory that only their owner can enter, beside
their places, and when everything is there a shell moves them; whatever interrupts the copy leaves the
old files as they were. Where there is no such shell, files are written in place.
"""

import asyncio
import contextlib
import functools
import os
import stat
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from holdfast.client.copying.copying import (
    Progress,
    Summary,
    Tally,
    absolute_there,
    each_of,
    guarded,
    in_thread,
    is_posix,
    joined,
    named_error,
    opened,
    split_there,
    stat_there,
)
from holdfast.client.copying.posix import FileKind, Mode, parse_failures, put_script
from holdfast.client.environment import Environment
from holdfast.client.files import BLOCK_BYTES
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError

FAREWELL_S: Final = 5.0  # to remove what was not put in place
_IN_PLACE: Final = "the other machine has no POSIX shell: files are written in place, modes are not kept"
_SCRIPT: Final = "put"


@dataclass(frozen=True, slots=True)
class _File:
    way: str  # from the source down; nothing for the source itself
    path: str
    size: int
    mode: Mode


async def upload(
    environment: Environment,
    source: str,
    destination: str,
    *,
    recursive: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Copy a file, or with `recursive` a tree, into the directory `destination` or to that name.

    Raises:
        HoldfastError: nothing was copied, and why. What fails within a tree is in the summary.
    """
    tally = Tally(progress)
    try:
        found = os.stat(source)
    except OSError as exc:
        raise named_error(exc) from None
    tree = stat.S_ISDIR(found.st_mode)
    if tree and not recursive:
        raise UsageError(f"{source} is a directory", remedy="give -r to copy it with all that is in it")
    if not tree and not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{source} is neither a file nor a directory")
    target = await _target(environment, destination, _name(source), tree=tree)
    if tree:
        files, directories = await asyncio.to_thread(_scan, source, tally.summary)
        await _make_directories(environment, target, directories, tally.summary)
    else:
        files = [_File("", source, found.st_size, Mode.of(found.st_mode))]
    for file in files:
        tally.expect(file.size)
    job = _Upload(environment, tally, target, tree=tree)
    async with job.staged():
        await each_of(functools.partial(job.send, number, file) for number, file in enumerate(files))
        await job.put(files)
    if not tree and tally.summary.error is not None:
        raise tally.summary.error
    return tally.summary


def _scan(source: str, summary: Summary) -> tuple[list[_File], list[str]]:
    """Everything below a directory, links and the like left out."""
    files: list[_File] = []
    directories: list[str] = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(os.path.join(source, folder)), key=lambda entry: entry.name)
            for entry in entries:
                way = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(way)
                    waiting.append(way)
                elif entry.is_file(follow_symlinks=False):
                    found = entry.stat(follow_symlinks=False)
                    files.append(_File(way, entry.path, found.st_size, Mode.of(found.st_mode)))
                else:
                    summary.skip(entry.path, (FileKind.LINK if entry.is_symlink() else FileKind.OTHER).value)
        except OSError as exc:
            summary.fail(os.path.join(source, folder), named_error(exc))
    return files, directories


async def _target(environment: Environment, destination: str, name: str, *, tree: bool) -> str:
    """Where it goes, with everything above it there."""
    there = absolute_there(environment, destination)
    found = await stat_there(environment, there)
    if found is not None and found.is_directory:
        return joined(there, name)
    if found is None and destination.endswith("/") and not tree:
        raise NotFound(f"{there}: there is no such directory")
    if found is not None and tree:
        raise UsageError(f"{there} is not a directory")
    above = split_there(there)[0]
    outside = await stat_there(environment, above)
    if outside is None or not outside.is_directory:
        raise NotFound(f"{above}: there is no such directory")
    return there


async def _make_directories(
    environment: Environment, target: str, directories: list[str], summary: Summary
) -> None:
    try:
        await environment.files.make_directory(target)
    except HoldfastError as exc:
        raise type(exc)(f"{target}: {exc}") from None
    summary.directories = 1
    for way in directories:  # in order: those above come first
        path = joined(target, way)
        try:
            await environment.files.make_directory(path)
            summary.directories += 1
        except (InvalidRequest, NotFound, OperationFailed) as exc:
            summary.fail(path, exc)


class _Upload:
    """The files of one copy on their way."""

    def __init__(self, environment: Environment, tally: Tally, target: str, *, tree: bool) -> None:
        self._environment, self._tally = environment, tally
        self._target, self._tree = target, tree
        self._stage: str | None = None
        self._sent: dict[int, int] = {}

    @contextlib.asynccontextmanager
    async def staged(self) -> AsyncIterator[None]:
        """With the directory for what is not in place yet, if there can be one."""
        above = self._target if self._tree else split_there(self._target)[0]
        name = f".holdfast-{uuid.uuid4().hex}"
        if is_posix(above):
            await self._make_stage(above, name)
        if self._stage is None:
            self._tally.summary.warnings.append(_IN_PLACE)
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._environment.files.remove(self._stage, recursive=True, missing_ok=True)

    async def _make_stage(self, above: str, name: str) -> None:
        command = ["/bin/sh", "-c", 'umask 077 && mkdir "$1"', "sh", name]
        try:
            result = await self._environment.run(command, cwd=above)
        except OperationFailed:
            return  # its directory exists, so it is the shell that does not
        if result.code != 0:
            why = result.stderr.decode("utf-8", "replace").strip()
            raise InvalidRequest(f"{above} cannot be written to: {why}")
        self._stage = joined(above, name)

    async def send(self, number: int, file: _File) -> None:
        """One file, into the stage or to its place."""
        path = joined(self._target, file.way) if self._stage is None else joined(self._stage, str(number))
        work = self._send(number, file, path)
        await (guarded(self._tally, file.path, work) if self._tree else work)

    async def _send(self, number: int, file: _File, path: str) -> None:
        try:
            self._sent[number] = await self._tally.attempt(functools.partial(self._write, file, path))
        except BaseException:
            if self._stage is None:
                with contextlib.suppress(HoldfastError, TimeoutError):
                    async with asyncio.timeout(FAREWELL_S):
                        await self._environment.files.remove(path, missing_ok=True)
            raise

    async def _write(self, file: _File, path: str, count: Callable[[int], None]) -> None:
        # A link that came into the tree meanwhile may lead out of it.
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if self._tree else 0)
        with opened(file.path, flags) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{file.path} is not a file any more")
            first = await in_thread(_read, descriptor, BLOCK_BYTES)
            if len(first) < BLOCK_BYTES:
                await self._environment.files.write(path, first)
                count(len(first))
            else:
                await self._environment.files.write_blocks(path, _blocks(descriptor, first, count))

    async def put(self, files: list[_File]) -> None:
        """Move everything that was sent to its place."""
        failures: dict[int, str] = {}
        if self._stage is not None and self._sent:
            moves = [(n, files[n].mode, joined(self._target, files[n].way)) for n in sorted(self._sent)]
            await self._environment.files.write(joined(self._stage, _SCRIPT), put_script(moves))
            result = await self._environment.run(["/bin/sh", f"./{_SCRIPT}"], cwd=self._stage)
            if result.code != 0:
                raise OperationFailed(result.stderr.decode("utf-8", "replace").strip() or "the shell failed")
            failures = parse_failures(result.stdout)
        for number, size in self._sent.items():
            if number in failures:
                path = joined(self._target, files[number].way)
                self._tally.summary.fail(path, OperationFailed(f"{path}: {failures[number]}"))
            else:
                self._tally.summary.files += 1
                self._tally.summary.bytes += size


async def _blocks(descriptor: int, block: bytes, count: Callable[[int], None]) -> AsyncIterator[bytes]:
    while block:
        yield block
        count(len(block))
        block = await in_thread(_read, descriptor, BLOCK_BYTES)


def _read(descriptor: int, size: int) -> bytes:
    """As many bytes, unless the file ends."""
    block = os.read(descriptor, size)
    while 0 < len(block) < size:
        more = os.read(descriptor, size - len(block))
        if not more:
            break
        block += more
    return block


def _name(source: str) -> str:
    return os.path.basename(os.path.abspath(source))
