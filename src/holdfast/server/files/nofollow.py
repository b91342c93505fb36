"""File operations that refuse a symbolic link in any component of the path.

The path is walked one name at a time from the root. Every directory on the way is opened without following
links and only to search it, so read permission on the parents is not needed, and the last name is looked up
in the directory that was really reached: a rename or a new link during the walk cannot redirect it. Paths are
absolute and normalized, as `PathUri.native` returns them.
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from holdfast.errors import InvalidRequest, OperationFailed
from holdfast.server.files.contents import READ_FLAGS, WRITE_FLAGS, closing, create, encode, overwrite
from holdfast.wire.files import Metadata

_SEARCH: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


def read_file(path: str) -> msgspec.Raw:
    """The result of `fs/readFile` for a regular file."""
    with _parent_of(path) as (parent, name):
        fd = os.open(name, READ_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    with closing(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidRequest("path is not a regular file")
        return encode(fd)


def write_file(path: str, data: bytes) -> None:
    """Create or overwrite a regular file, with the guarantees of `contents`."""
    with _parent_of(path) as (parent, name):
        try:
            fd = os.open(name, WRITE_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            create(parent, name, data, flags=os.O_NOFOLLOW, regular_only=True)
            return
    with closing(fd):
        overwrite(fd, data, regular_only=True)


def create_directory(path: str, *, recursive: bool) -> None:
    """Create one directory, or with `recursive` all that are missing."""
    if recursive:
        os.close(_reach(_names(path), make_missing=True))
    elif path == "/":
        raise OperationFailed("directory already exists")
    else:
        with _parent_of(path) as (parent, name):
            os.mkdir(name, dir_fd=parent)


def get_metadata(path: str) -> Metadata:
    """The metadata of the entry itself, with its birth time; nothing is opened for reading."""
    *parents, name = _names(path) or ["."]
    with closing(_reach(parents)) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise _is_link()
        return Metadata(
            is_directory=stat.S_ISDIR(status.st_mode),
            is_file=stat.S_ISREG(status.st_mode),
            is_symlink=False,
            size=status.st_size,
            created_at_ms=_birth_ms(parent, name),
            modified_at_ms=status.st_mtime_ns // 1_000_000,
        )


def remove(path: str) -> None:
    """Remove a file or an empty directory."""
    with _parent_of(path) as (parent, name):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise _is_link()
        if stat.S_ISDIR(mode):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)


def _is_link() -> InvalidRequest:
    return InvalidRequest("path contains a symbolic link")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


@contextmanager
def _parent_of(path: str) -> Iterator[tuple[int, str]]:
    names = _names(path)
    if not names:
        raise InvalidRequest("path must name an entry")
    with closing(_reach(names[:-1])) as parent:
        yield parent, names[-1]


def _reach(names: list[str], *, make_missing: bool = False) -> int:
    """Return a search-only descriptor of the directory below the root with these names."""
    fd = os.open("/", _SEARCH)
    for name in names:
        with closing(fd) as outer:
            fd = _enter(outer, name, make_missing=make_missing)
    return fd


def _enter(outer: int, name: str, *, make_missing: bool) -> int:
    try:
        return os.open(name, _SEARCH, dir_fd=outer)
    except FileNotFoundError:
        if not make_missing:
            raise
    with suppress(FileExistsError):  # another process may create it at the same time
        os.mkdir(name, dir_fd=outer)
    return os.open(name, _SEARCH, dir_fd=outer)


# linux/stat.h and linux/fcntl.h: os.stat does not return the birth time on Linux.
_STATX_BTIME: Final = 0x800
_AT_SYMLINK_NOFOLLOW: Final = 0x100


class _Timestamp(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_int64), ("nsec", ctypes.c_uint32), ("reserved", ctypes.c_int32))


class _Statx(ctypes.Structure):
    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("up_to_atime", ctypes.c_uint8 * 60),
        ("atime", _Timestamp),
        ("btime", _Timestamp),
        ("after_btime", ctypes.c_uint8 * 160),
    )


_statx = getattr(ctypes.CDLL(None), "statx", None)
if _statx is not None:
    _statx.restype = ctypes.c_int
    _statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Statx))


def _birth_ms(parent: int, name: str) -> int:
    """The birth time of the entry, or 0 if it is unknown."""
    told = _Statx()
    if _statx is None or _statx(
        parent, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, ctypes.byref(told)
    ):
        return 0
    if not told.mask & _STATX_BTIME:
        return 0
    return int(told.btime.sec) * 1000 + int(told.btime.nsec) // 1_000_000
