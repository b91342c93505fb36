"""The plain file methods: each takes its params, accesses the disk and returns the answer.

Synchronous on purpose: they run in a thread pool, or in a confined worker. `sandbox` members are handled
before these functions are called.
"""

import errno
import functools
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

import msgspec
import pybase64

from holdfast.errors import InvalidRequest, OperationFailed, from_os_error
from holdfast.server.files import contents, nofollow
from holdfast.wire import files as wire
from holdfast.wire.paths import ForeignPath, uri_of
from holdfast.wire.structs import Empty

MAX_DIRECTORY_ENTRIES: Final = 50_000  # the most that the reference answers; bounds the message
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_RANGE_BYTES: Final = 1 << 30  # per call; the kernel copies without passing the bytes through us
_BLOCK_BYTES: Final = 256 * 1024  # where the kernel cannot copy
_NO_RANGES: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NOT_BASE64: Final = re.compile(rb"[^A-Za-z0-9+/]")


def protocol_errors(operation: Callable[_P, _R]) -> Callable[_P, _R]:
    """Convert exceptions of the operating system or for a foreign path to those of the file methods."""

    @functools.wraps(operation)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return operation(*args, **kwargs)
        except OSError as exc:
            raise from_os_error(exc) from exc
        except ForeignPath as exc:  # bad params in all other methods
            raise InvalidRequest(str(exc)) from None

    return guarded


@protocol_errors
def read_file(params: wire.LinkAwareParams) -> msgspec.Raw:
    """The contents of a regular file as base64, already JSON."""
    path = params.path.native()
    if params.follow_symlinks is False:
        return nofollow.read_file(path)
    with contents.closing(open_to_read(path)) as fd:
        return contents.encode(fd)


@protocol_errors
def read_small_file(params: wire.LinkAwareParams) -> msgspec.Raw | None:
    """The contents of a file that is read quickly, as base64; None for any other file."""
    if params.follow_symlinks is False:
        return None
    with contents.closing(open_to_read(params.path.native())) as fd:
        return contents.encode(fd) if os.fstat(fd).st_size <= contents.SMALL_BYTES else None


def open_to_read(path: str) -> int:
    """Open a regular file; everything else is refused without waiting for it."""
    fd = os.open(path, contents.READ_FLAGS)
    try:
        refuse_irregular(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def refuse_irregular(fd: int, path: str) -> None:
    """Raise `InvalidRequest` unless `fd`, opened at `path`, is a regular file."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise InvalidRequest(f"path `{lossy(path)}` is not a file")


@protocol_errors
def write_file(params: wire.WriteFileParams) -> Empty:
    """Create or overwrite a file; `contents` documents the state after a failure."""
    data = _decode(params.data_base64)
    path = params.path.native()
    if params.follow_symlinks is False:
        nofollow.write_file(path, data)
        return Empty()
    try:
        fd = os.open(path, contents.WRITE_FLAGS)
    except FileNotFoundError:
        with contents.closing(os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)) as parent:
            contents.create(parent, os.path.basename(path), data)
    else:
        with contents.closing(fd):
            contents.overwrite(fd, data)
    return Empty()


def _decode(text: str) -> bytes:
    """Strict base64: standard alphabet, padded, no stray bits in the last symbol."""
    try:
        data = pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    else:
        if not text.endswith("=") or pybase64.b64encode_as_string(data[len(data) // 3 * 3 :]) == text[-4:]:
            return data
    wrong = _NOT_BASE64.search(text.rstrip("=").encode("utf-8", "replace"))
    detail = f"Invalid symbol {wrong[0][0]}, offset {wrong.start()}." if wrong else "Invalid padding"
    raise InvalidRequest(f"fs/writeFile requires valid base64 dataBase64: {detail}") from None


@protocol_errors
def create_directory(params: wire.CreateDirectoryParams) -> Empty:
    """Create a directory, by default with its missing parents."""
    path = params.path.native()
    recursive = params.recursive is not False
    if params.follow_symlinks is False:
        nofollow.create_directory(path, recursive=recursive)
    elif recursive:
        make_directories(path)
    else:
        os.mkdir(path)
    return Empty()


def make_directories(path: str) -> None:
    """Create missing directories; other processes may do the same at the same time."""
    missing: list[str] = []
    while not _make_one(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        if not _make_one(each):
            os.mkdir(each)  # its parent existed a moment ago; this raises the current reason


def _make_one(path: str) -> bool:
    """Create a directory if missing; False if its parent is missing."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        return False
    except OSError:
        if not os.path.isdir(path):
            raise
    return True


@protocol_errors
def get_metadata(params: wire.LinkAwareParams) -> wire.Metadata:
    """The metadata of a path; by default of a link's target."""
    path = params.path.native()
    if params.follow_symlinks is False:
        return nofollow.get_metadata(path)
    status = os.lstat(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if is_link:
        status = os.stat(path)
    return wire.Metadata(
        is_directory=stat.S_ISDIR(status.st_mode),
        is_file=stat.S_ISREG(status.st_mode),
        is_symlink=is_link,
        size=status.st_size,
        created_at_ms=0,  # the reference reports it only when links are not followed
        modified_at_ms=max(0, status.st_mtime_ns // 1_000_000),
    )


@protocol_errors
def canonicalize(params: wire.PathParams) -> wire.CanonicalPath:
    """The path with every link resolved; it must exist."""
    return wire.CanonicalPath(uri_of(os.path.realpath(params.path.native(), strict=True)))


@protocol_errors
def read_directory(params: wire.PathParams) -> wire.DirectoryListing:
    """The entries in file system order; a link counts as its target, a dangling one is left out."""
    found: list[wire.DirectoryEntry] = []
    with os.scandir(params.path.native()) as entries:
        for entry in entries:
            if entry.is_symlink():
                try:
                    mode = os.stat(entry.path).st_mode
                except OSError:
                    continue
                is_directory, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
            else:
                is_directory = entry.is_dir(follow_symlinks=False)
                is_file = entry.is_file(follow_symlinks=False)
            found.append(wire.DirectoryEntry(lossy(entry.name), is_directory, is_file))
            if len(found) > MAX_DIRECTORY_ENTRIES:
                raise OperationFailed(
                    f"fs/readDirectory returned {len(found)} entries; limit is {MAX_DIRECTORY_ENTRIES}"
                )
    return wire.DirectoryListing(found)


def lossy(name: str) -> str:
    """A native name as text, U+FFFD standing for bytes that are not UTF-8."""
    if name.isascii():
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@protocol_errors
def remove(params: wire.RemoveParams) -> Empty:
    """Remove a file, a link or a directory; with `force`, the default, a missing path is no error."""
    path = params.path.native()
    recursive = params.recursive is not False
    try:
        if params.follow_symlinks is False:
            if recursive:
                raise OperationFailed("recursive no-follow removal is unsupported")
            nofollow.remove(path)
        elif not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        elif recursive and path != "/":  # a request to delete the whole machine is certainly a mistake
            remove_tree(path)
        else:
            os.rmdir(path)
    except FileNotFoundError:
        if params.force is False:
            raise
    return Empty()


def remove_tree(path: str) -> None:
    """Remove the directory at `path`; links in it are removed, never followed.

    Every level is opened through the descriptor of the one above, so replacing a directory by a link has no
    effect. Files that other processes remove at the same time are no error. One descriptor per level is open:
    the limit on open files bounds the depth.
    """
    levels = [_Level(os.open(path, _OPEN))]
    try:
        levels[0].clear()
        while True:
            level = levels[-1]
            if level.directories:
                name = level.directories[-1]
                try:
                    levels.append(_Level(os.open(name, _OPEN, dir_fd=level.fd)))
                except FileNotFoundError:
                    level.directories.pop()
                    continue
                levels[-1].clear()
            elif len(levels) > 1:
                os.close(levels.pop().fd)
                outer = levels[-1]
                with suppress(FileNotFoundError):
                    os.rmdir(outer.directories.pop(), dir_fd=outer.fd)
            else:
                break
    finally:
        for level in levels:
            os.close(level.fd)
    os.rmdir(path)


class _Level:
    """A directory on the way down, and its subdirectories that are not removed yet."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.directories: list[str] = []

    def clear(self) -> None:
        """Remove everything but the directories."""
        others: list[str] = []
        with os.scandir(self.fd) as entries:
            for entry in entries:
                (self.directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        for name in others:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd)


@protocol_errors
def copy(params: wire.CopyParams) -> Empty:
    """Copy a file over another, recreate a link, or merge a directory into another."""
    source, destination = params.source_path.native(), params.destination_path.native()
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        if not params.recursive:
            raise InvalidRequest("fs/copy requires recursive: true when sourcePath is a directory")
        _refuse_overlap(source, destination)
        _copy_tree(source, destination)
    elif stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), destination)
    elif stat.S_ISREG(mode):
        _copy_file(source, destination)
    else:
        raise InvalidRequest("fs/copy only supports regular files, directories, and symlinks")
    return Empty()


def _refuse_overlap(source: str, destination: str) -> None:
    real = os.path.realpath(source, strict=True)
    target = os.path.realpath(destination)  # its last names may be missing
    if os.path.commonpath([real, target]) == real:
        raise InvalidRequest("fs/copy cannot copy a directory to itself or one of its descendants")


def _copy_tree(source: str, destination: str) -> None:
    pending = [(source, destination)]
    while pending:
        here, there = pending.pop()
        make_directories(there)
        with os.scandir(here) as listing:
            entries = list(listing)
        for entry in entries:
            target = os.path.join(there, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            elif entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, target))
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.path, target)


def _copy_file(source: str, destination: str) -> None:
    """Copy bytes and permissions; a file onto itself stays as it is, a failed new copy is removed."""
    with contents.closing(os.open(source, contents.READ_FLAGS | os.O_NOFOLLOW)) as reader:
        status = os.fstat(reader)
        writer, is_new = _open_destination(destination, status.st_mode & 0o777)
        with contents.closing(writer):
            try:
                _fill(reader, writer, status)
            except BaseException:
                if is_new:
                    with suppress(OSError):
                        os.unlink(destination)
                raise


def _open_destination(path: str, mode: int) -> tuple[int, bool]:
    with suppress(FileExistsError):
        return os.open(path, contents.WRITE_FLAGS | os.O_CREAT | os.O_EXCL, mode), True
    return os.open(path, contents.WRITE_FLAGS | os.O_CREAT, mode), False


def _fill(reader: int, writer: int, source: os.stat_result) -> None:
    target = os.fstat(writer)
    if os.path.samestat(source, target):
        return
    if not stat.S_ISREG(target.st_mode):
        _transfer(reader, writer)
        return
    permissions = stat.S_IMODE(source.st_mode)
    if (source.st_uid, source.st_gid) != (target.st_uid, target.st_gid):
        permissions &= ~(stat.S_ISUID | stat.S_ISGID)  # or a copy would grant its new owner's rights
    os.fchmod(writer, permissions)  # first, so that nobody can read what the source did not permit
    os.ftruncate(writer, _transfer(reader, writer))
    if permissions & (stat.S_ISUID | stat.S_ISGID):
        os.fchmod(writer, permissions)  # the kernel clears these bits when an ordinary user writes


def _transfer(reader: int, writer: int) -> int:
    """Copy to the end of `reader`; return the number of bytes."""
    copied = 0
    try:
        while count := os.copy_file_range(reader, writer, _RANGE_BYTES):
            copied += count
    except OSError as exc:
        if copied or exc.errno not in _NO_RANGES:
            raise
    # Files without a known size, as in /proc, look empty to copy_file_range.
    while block := os.read(reader, _BLOCK_BYTES):
        contents.write_all(writer, block)
        copied += len(block)
    return copied
