"""The plain file methods: each takes its params, touches the disk and answers.

Synchronous on purpose: they run in a thread pool, or in a confined worker. `sandbox` members are
dealt with before these functions are called.
"""

import functools
import os
import re
import stat
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import msgspec
import pybase64

from holdfast.errors import InvalidRequest, OperationFailed, from_os_error
from holdfast.server.files import nofollow
from holdfast.server.files.contents import READ_FLAGS, SMALL_BYTES, WRITE_FLAGS, create, encoded, overwrite
from holdfast.server.files.removal import remove_tree
from holdfast.wire.files import (
    CanonicalPath,
    CreateDirectoryParams,
    DirectoryEntry,
    DirectoryListing,
    LinkAwareParams,
    Metadata,
    PathParams,
    RemoveParams,
    WriteFileParams,
)
from holdfast.wire.paths import ForeignPath, uri_of
from holdfast.wire.structs import Empty

MAX_DIRECTORY_ENTRIES: Final = 50_000  # what the reference answers at most; bounds the message

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NOT_BASE64: Final = re.compile(rb"[^A-Za-z0-9+/]")


def protocol_errors(operation: Callable[_P, _R]) -> Callable[_P, _R]:
    """What the operating system or a foreign path raises, as the file methods answer it."""

    @functools.wraps(operation)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return operation(*args, **kwargs)
        except OSError as exc:
            raise from_os_error(exc) from exc
        except ForeignPath as exc:  # bad params everywhere else
            raise InvalidRequest(str(exc)) from None

    return guarded


@protocol_errors
def read_file(params: LinkAwareParams) -> msgspec.Raw:
    """The contents of a regular file as base64, already JSON."""
    path = params.path.native()
    if params.follow_symlinks is False:
        return nofollow.read_file(path)
    fd = open_to_read(path)
    try:
        return encoded(fd)
    finally:
        os.close(fd)


@protocol_errors
def read_small_file(params: LinkAwareParams) -> msgspec.Raw | None:
    """The same for a file that is read quickly; None if it is not one."""
    if params.follow_symlinks is False:
        return None
    fd = open_to_read(params.path.native())
    try:
        return encoded(fd) if os.fstat(fd).st_size <= SMALL_BYTES else None
    finally:
        os.close(fd)


def open_to_read(path: str) -> int:
    """A descriptor of a regular file; everything else is refused without waiting for it."""
    fd = os.open(path, READ_FLAGS)
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
def write_file(params: WriteFileParams) -> Empty:
    """Create or overwrite a file; `contents` says what holds if that fails half-way."""
    data = _decoded(params.data_base64)
    path = params.path.native()
    if params.follow_symlinks is False:
        nofollow.write_file(path, data)
        return Empty()
    try:
        fd = os.open(path, WRITE_FLAGS)
    except FileNotFoundError:
        _create(path, data)
        return Empty()
    try:
        overwrite(fd, data)
    finally:
        os.close(fd)
    return Empty()


def _create(path: str, data: bytes) -> None:
    parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        create(parent, os.path.basename(path), data)
    finally:
        os.close(parent)


def _decoded(text: str) -> bytes:
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
def create_directory(params: CreateDirectoryParams) -> Empty:
    """Make a directory, with its missing parents unless told otherwise."""
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
    """Make what is missing; fine if others do the same at the same time."""
    missing: list[str] = []
    while not _made(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        if not _made(each):
            os.mkdir(each)  # its parent was there a moment ago; this says what is wrong now


def _made(path: str) -> bool:
    """Whether there is a directory now; False if its parent is missing."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        return False
    except OSError:
        if not os.path.isdir(path):
            raise
    return True


@protocol_errors
def get_metadata(params: LinkAwareParams) -> Metadata:
    """What the path is; of a link's target unless told otherwise."""
    path = params.path.native()
    if params.follow_symlinks is False:
        return nofollow.get_metadata(path)
    status = os.lstat(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if is_link:
        status = os.stat(path)
    return Metadata(
        is_directory=stat.S_ISDIR(status.st_mode),
        is_file=stat.S_ISREG(status.st_mode),
        is_symlink=is_link,
        size=status.st_size,
        created_at_ms=0,  # the reference tells it only when links are not followed
        modified_at_ms=max(0, status.st_mtime_ns // 1_000_000),
    )


@protocol_errors
def canonicalize(params: PathParams) -> CanonicalPath:
    """The path with every link resolved; it must exist."""
    return CanonicalPath(uri_of(os.path.realpath(params.path.native(), strict=True)))


@protocol_errors
def read_directory(params: PathParams) -> DirectoryListing:
    """The entries in the order of the file system; links count as what they lead to, or not at all."""
    found: list[DirectoryEntry] = []
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
            found.append(DirectoryEntry(lossy(entry.name), is_directory, is_file))
            if len(found) > MAX_DIRECTORY_ENTRIES:
                raise OperationFailed(
                    f"fs/readDirectory returned {len(found)} entries; limit is {MAX_DIRECTORY_ENTRIES}"
                )
    return DirectoryListing(found)


def lossy(name: str) -> str:
    """A native name as text, U+FFFD standing for bytes that are not UTF-8."""
    if name.isascii():
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@protocol_errors
def remove(params: RemoveParams) -> Empty:
    """Remove a file, a link or a directory; with `force`, which is the default, also what is not there."""
    path = params.path.native()
    recursive = params.recursive is not False
    try:
        if params.follow_symlinks is False:
            if recursive:
                raise OperationFailed("recursive no-follow removal is unsupported")
            nofollow.remove(path)
        elif not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        elif recursive and path != "/":  # nobody who asks to empty the machine means it
            remove_tree(path)
        else:
            os.rmdir(path)
    except FileNotFoundError:
        if params.force is False:
            raise
    return Empty()
