"""Copy files and trees from this machine to the other one, and from the other one to this.

On this machine each file is written under a temporary name beside its place and renamed when it is complete.
So no reader ever sees a partial file, and an interrupted copy leaves the old file as it was.

The protocol cannot rename files on the other machine. So all files are written to a directory that only their
owner can enter, beside their places. When everything has arrived a shell moves them, so an interrupted copy
leaves the old files as they were. Where there is no such shell, files are written in place.
"""

import asyncio
import contextlib
import functools
import os
import stat
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from holdfast.client.copying.copying import (
    CopyTally,
    Progress,
    Summary,
    is_posix,
    join,
    name_error,
    note_failure,
    open_descriptor,
    resolve_there,
    run_all,
    run_in_thread,
    split_there,
    stat_there,
)
from holdfast.client.copying.posix import (
    FileKind,
    FileMode,
    ListedFile,
    check_way,
    list_command,
    parse_failures,
    parse_list,
    put_script,
)
from holdfast.client.environment import Environment
from holdfast.client.files import BLOCK_BYTES
from holdfast.errors import (
    HoldfastError,
    InvalidRequest,
    NotFound,
    OperationFailed,
    RemoteProtocolError,
    UsageError,
)
from holdfast.wire.paths import to_uri

MAX_LIST_BYTES: Final = 64 * 1024 * 1024  # of names: half a million files
_NO_SHELL: Final = "the other machine has no POSIX tools: modes are not kept, links are not mentioned"
_MISSING: Final = 127  # exit status of a shell for a program that it cannot find
FAREWELL_S: Final = 5.0  # to remove the staging directory
_IN_PLACE: Final = "the other machine has no POSIX shell: files are written in place, modes are not kept"
_SCRIPT: Final = "put"


@dataclass(frozen=True, slots=True)
class _File:
    way: str  # relative to the source; empty for the source itself
    path: str
    size: int
    mode: FileMode


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
        HoldfastError: nothing was copied; it says why. Failures within a tree are in the summary.
    """
    tally = CopyTally(progress)
    try:
        found = os.stat(source)
    except OSError as exc:
        raise name_error(exc) from None
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
        files = [_File("", source, found.st_size, FileMode.of(found.st_mode))]
    for file in files:
        tally.expect(file.size)
    job = _Upload(environment, tally, target, tree=tree)
    async with job.staged():
        await run_all(functools.partial(job.send, number, file) for number, file in enumerate(files))
        await job.put(files)
    if not tree and tally.summary.error is not None:
        raise tally.summary.error
    return tally.summary


def _scan(source: str, summary: Summary) -> tuple[list[_File], list[str]]:
    """List everything below a directory; links and special files are left out."""
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
                    files.append(_File(way, entry.path, found.st_size, FileMode.of(found.st_mode)))
                else:
                    summary.skip(entry.path, (FileKind.LINK if entry.is_symlink() else FileKind.OTHER).value)
        except OSError as exc:
            summary.fail(os.path.join(source, folder), name_error(exc))
    return files, directories


async def _target(environment: Environment, destination: str, name: str, *, tree: bool) -> str:
    """Find the destination path, and check that the directory above it exists."""
    there = resolve_there(environment, destination)
    found = await stat_there(environment, there)
    if found is not None and found.is_directory:
        return join(there, name)
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
    for way in directories:  # in order: parents come first
        path = join(target, way)
        try:
            await environment.files.make_directory(path)
            summary.directories += 1
        except (InvalidRequest, NotFound, OperationFailed) as exc:
            summary.fail(path, exc)


class _Upload:
    """The files of one upload."""

    def __init__(self, environment: Environment, tally: CopyTally, target: str, *, tree: bool) -> None:
        self._environment, self._tally = environment, tally
        self._target, self._tree = target, tree
        self._stage: str | None = None
        self._sent: dict[int, int] = {}

    @contextlib.asynccontextmanager
    async def staged(self) -> AsyncIterator[None]:
        """Create and finally remove the staging directory, if there can be one."""
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
            return  # its directory exists, so the missing program is the shell
        if result.code != 0:
            why = result.stderr.decode("utf-8", "replace").strip()
            raise InvalidRequest(f"{above} cannot be written to: {why}")
        self._stage = join(above, name)

    async def send(self, number: int, file: _File) -> None:
        """Send one file, to the staging directory or to its place."""
        path = join(self._target, file.way) if self._stage is None else join(self._stage, str(number))
        work = self._send(number, file, path)
        await (note_failure(self._tally, file.path, work) if self._tree else work)

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
        # A link that was put into the tree since the scan may lead out of it.
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if self._tree else 0)
        with open_descriptor(file.path, flags) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{file.path} is not a file any more")
            first = await run_in_thread(_read, descriptor, BLOCK_BYTES)
            if len(first) < BLOCK_BYTES:
                await self._environment.files.write(path, first)
                count(len(first))
            else:
                await self._environment.files.write_blocks(path, _blocks(descriptor, first, count))

    async def put(self, files: list[_File]) -> None:
        """Move everything that was sent to its place."""
        failures: dict[int, str] = {}
        if self._stage is not None and self._sent:
            moves = [(n, files[n].mode, join(self._target, files[n].way)) for n in sorted(self._sent)]
            await self._environment.files.write(join(self._stage, _SCRIPT), put_script(moves))
            result = await self._environment.run(["/bin/sh", f"./{_SCRIPT}"], cwd=self._stage)
            if result.code != 0:
                raise OperationFailed(result.stderr.decode("utf-8", "replace").strip() or "the shell failed")
            failures = parse_failures(result.stdout)
        for number, size in self._sent.items():
            if number in failures:
                path = join(self._target, files[number].way)
                self._tally.summary.fail(path, OperationFailed(f"{path}: {failures[number]}"))
            else:
                self._tally.summary.files += 1
                self._tally.summary.bytes += size


async def _blocks(descriptor: int, block: bytes, count: Callable[[int], None]) -> AsyncIterator[bytes]:
    while block:
        yield block
        count(len(block))
        block = await run_in_thread(_read, descriptor, BLOCK_BYTES)


def _read(descriptor: int, size: int) -> bytes:
    """Read this many bytes, or fewer at the end of the file."""
    block = os.read(descriptor, size)
    while 0 < len(block) < size:
        more = os.read(descriptor, size - len(block))
        if not more:
            break
        block += more
    return block


def _name(source: str) -> str:
    return os.path.basename(os.path.abspath(source))


# --- from there to here


async def download(
    environment: Environment,
    source: str,
    destination: str,
    *,
    recursive: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Copy a file, or with `recursive` a tree, into the directory `destination` or to that name.

    Raises:
        HoldfastError: nothing was copied; it says why. Failures within a tree are in the summary.
    """
    tally = CopyTally(progress)
    there = resolve_there(environment, source)
    found = await stat_there(environment, there)
    if found is None:
        raise NotFound(f"{there}: there is no such file or directory")
    if found.is_directory and not recursive:
        raise UsageError(f"{there} is a directory", remedy="give -r to copy it with all that is in it")
    here = _place_here(destination, split_there(there)[1])
    entries = await _list(environment, there, tally.summary, tree=found.is_directory)
    if found.is_directory:
        await _Download(environment, tally, there, here).fetch(entries)
        return tally.summary
    mode = entries[0].mode if entries else None
    if mode is None:
        raise UsageError(f"{there} is neither a file nor a directory")
    tally.expect(found.size)
    tally.summary.bytes = await tally.attempt(functools.partial(_fetch, environment, there, here, mode))
    tally.summary.files = 1
    return tally.summary


def _place_here(destination: str, name: str) -> str:
    if os.path.isdir(destination):
        return os.path.join(destination, name) if name else destination
    if destination.endswith("/"):
        raise NotFound(f"{destination}: there is no such directory")
    return destination


async def _list(environment: Environment, there: str, summary: Summary, *, tree: bool) -> list[ListedFile]:
    """List what is at and below a path; directories that cannot be read are noted as failures."""
    folder, name = (there, ".") if tree else split_there(there)
    root = name if tree else f"./{name}"
    with contextlib.suppress(OperationFailed, UnicodeEncodeError):  # no shell; name unfit for a command
        root.encode()
        if is_posix(there):
            result = await environment.run(list_command(root), cwd=folder, max_output_bytes=MAX_LIST_BYTES)
            if result.dropped_bytes:
                raise UsageError(f"{there} has too many files", remedy="copy what is in it one by one")
            if result.code != _MISSING:
                for line in result.stderr.decode("utf-8", "replace").splitlines():
                    summary.fail(there, OperationFailed(line))
                return sorted(parse_list(result.stdout, root), key=lambda entry: entry.path)
    summary.warnings.append(_NO_SHELL)
    return await _walk(environment, there, summary) if tree else [ListedFile("", FileKind.FILE, FileMode())]


async def _walk(environment: Environment, there: str, summary: Summary) -> list[ListedFile]:
    walk = await environment.files.walk(there)
    if walk.truncated:
        raise UsageError(f"{there} has too many files", remedy="copy what is in it one by one")
    for unreadable in walk.unreadable:
        summary.fail(unreadable.path, OperationFailed(unreadable.reason))
    entries, root = [], to_uri(there)
    for found in walk.entries:
        way = to_uri(found.path).relative_to(root)
        if not way:
            raise RemoteProtocolError("the server named a file that is not below the directory")
        plain = ListedFile(check_way(way), FileKind.FILE, FileMode())
        entries.append(ListedFile(plain.path, FileKind.DIRECTORY) if found.is_directory else plain)
    return entries


class _Download:
    def __init__(self, environment: Environment, tally: CopyTally, there: str, here: str) -> None:
        self._environment, self._tally = environment, tally
        self._there, self._here = there, here

    async def fetch(self, entries: list[ListedFile]) -> None:
        self._make_directory("")
        files: list[tuple[str, FileMode]] = []
        for entry in entries:
            if entry.mode is not None:
                files.append((entry.path, entry.mode))
            elif entry.kind is FileKind.DIRECTORY:
                self._make_directory(entry.path)
            else:
                self._tally.summary.skip(join(self._there, entry.path), entry.kind.value)
        await run_all(functools.partial(self._measure, way) for way, _ in files)
        await run_all(functools.partial(self._fetch, way, mode) for way, mode in files)

    def _make_directory(self, way: str) -> None:
        path = os.path.join(self._here, way) if way else self._here
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as exc:
            if not way:
                raise name_error(exc) from None
            self._tally.summary.fail(path, name_error(exc))
            return
        self._tally.summary.directories += 1

    async def _measure(self, way: str) -> None:
        with contextlib.suppress(HoldfastError):  # such a file cannot be read either, which is reported
            self._tally.expect((await self._environment.files.stat(join(self._there, way))).size)

    async def _fetch(self, way: str, mode: FileMode) -> None:
        there, here = join(self._there, way), os.path.join(self._here, way)
        await note_failure(self._tally, there, self._copy(there, here, mode))

    async def _copy(self, there: str, here: str, mode: FileMode) -> None:
        size = await self._tally.attempt(functools.partial(_fetch, self._environment, there, here, mode))
        self._tally.summary.bytes += size
        self._tally.summary.files += 1


async def _fetch(
    environment: Environment, there: str, here: str, mode: FileMode, count: Callable[[int], None]
) -> None:
    try:
        await _fetch_whole(environment, there, here, mode, count)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, here) from None


async def _fetch_whole(
    environment: Environment, there: str, here: str, mode: FileMode, count: Callable[[int], None]
) -> None:
    partial = os.path.join(os.path.dirname(here), f".holdfast-{uuid.uuid4().hex}")
    with open_descriptor(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode.bits()) as descriptor:
        try:
            async with aclosing(environment.files.open_blocks(there)) as blocks:
                async for block in blocks:
                    await run_in_thread(_write_all, descriptor, block)
                    count(len(block))
            os.replace(partial, here)
        except BaseException:
            os.unlink(partial)
            raise


def _write_all(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
