"""Files and trees of the other machine, copied here.

Each file is written under another name beside its place and renamed when it is whole, so that nobody
ever sees a part of it, and whatever interrupts the copy leaves the old file as it was.
"""

import contextlib
import functools
import os
import uuid
from collections.abc import Callable
from contextlib import aclosing
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
from holdfast.client.copying.posix import FileKind, Listed, Mode, checked_way, list_command, parse_list
from holdfast.client.environment import Environment
from holdfast.client.remotepath import to_uri
from holdfast.errors import HoldfastError, NotFound, OperationFailed, RemoteProtocolError, UsageError

MAX_LIST_BYTES: Final = 64 * 1024 * 1024  # of names: half a million files
_NO_SHELL: Final = "the other machine has no POSIX tools: modes are not kept, links are not mentioned"
_MISSING: Final = 127  # what a shell answers for a program that it does not have


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
        HoldfastError: nothing was copied, and why. What fails within a tree is in the summary.
    """
    tally = Tally(progress)
    there = absolute_there(environment, source)
    found = await stat_there(environment, there)
    if found is None:
        raise NotFound(f"{there}: there is no such file or directory")
    if found.is_directory and not recursive:
        raise UsageError(f"{there} is a directory", remedy="give -r to copy it with all that is in it")
    here = _place(destination, split_there(there)[1])
    entries = await _listed(environment, there, tally.summary, tree=found.is_directory)
    if found.is_directory:
        await _Tree(environment, tally, there, here).fetch(entries)
        return tally.summary
    mode = entries[0].mode if entries else None
    if mode is None:
        raise UsageError(f"{there} is neither a file nor a directory")
    tally.expect(found.size)
    tally.summary.bytes = await tally.attempt(functools.partial(_fetch, environment, there, here, mode))
    tally.summary.files = 1
    return tally.summary


def _place(destination: str, name: str) -> str:
    if os.path.isdir(destination):
        return os.path.join(destination, name) if name else destination
    if destination.endswith("/"):
        raise NotFound(f"{destination}: there is no such directory")
    return destination


async def _listed(environment: Environment, there: str, summary: Summary, *, tree: bool) -> list[Listed]:
    """What is at and below a path; what could not be looked into is a failure already."""
    folder, name = (there, ".") if tree else split_there(there)
    root = name if tree else f"./{name}"
    with contextlib.suppress(OperationFailed, UnicodeEncodeError):  # no shell; a name no command can get
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
    return await _walked(environment, there, summary) if tree else [Listed("", FileKind.FILE, Mode())]


async def _walked(environment: Environment, there: str, summary: Summary) -> list[Listed]:
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
        plain = Listed(checked_way(way), FileKind.FILE, Mode())
        entries.append(Listed(plain.path, FileKind.DIRECTORY) if found.is_directory else plain)
    return entries


class _Tree:
    def __init__(self, environment: Environment, tally: Tally, there: str, here: str) -> None:
        self._environment, self._tally = environment, tally
        self._there, self._here = there, here

    async def fetch(self, entries: list[Listed]) -> None:
        self._make_directory("")
        files: list[tuple[str, Mode]] = []
        for entry in entries:
            if entry.mode is not None:
                files.append((entry.path, entry.mode))
            elif entry.kind is FileKind.DIRECTORY:
                self._make_directory(entry.path)
            else:
                self._tally.summary.skip(joined(self._there, entry.path), entry.kind.value)
        await each_of(functools.partial(self._measure, way) for way, _ in files)
        await each_of(functools.partial(self._fetch, way, mode) for way, mode in files)

    def _make_directory(self, way: str) -> None:
        path = os.path.join(self._here, way) if way else self._here
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as exc:
            if not way:
                raise named_error(exc) from None
            self._tally.summary.fail(path, named_error(exc))
            return
        self._tally.summary.directories += 1

    async def _measure(self, way: str) -> None:
        with contextlib.suppress(HoldfastError):  # who cannot be asked cannot be read, and is told then
            self._tally.expect((await self._environment.files.stat(joined(self._there, way))).size)

    async def _fetch(self, way: str, mode: Mode) -> None:
        there, here = joined(self._there, way), os.path.join(self._here, way)
        await guarded(self._tally, there, self._copy(there, here, mode))

    async def _copy(self, there: str, here: str, mode: Mode) -> None:
        size = await self._tally.attempt(functools.partial(_fetch, self._environment, there, here, mode))
        self._tally.summary.bytes += size
        self._tally.summary.files += 1


async def _fetch(
    environment: Environment, there: str, here: str, mode: Mode, count: Callable[[int], None]
) -> None:
    try:
        await _fetch_whole(environment, there, here, mode, count)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, here) from None


async def _fetch_whole(
    environment: Environment, there: str, here: str, mode: Mode, count: Callable[[int], None]
) -> None:
    partial = os.path.join(os.path.dirname(here), f".holdfast-{uuid.uuid4().hex}")
    with opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode.bits()) as descriptor:
        try:
            async with aclosing(environment.files.open_blocks(there)) as blocks:
                async for block in blocks:
                    await in_thread(_write, descriptor, block)
                    count(len(block))
            os.replace(partial, here)
        except BaseException:
            os.unlink(partial)
            raise


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
