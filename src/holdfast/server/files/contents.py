"""The whole contents of one file: returned as base64, or stored.

Storing is as atomic as possible for a protocol that writes through hard links and symbolic links and keeps
modes:

* A new file appears complete or not at all. It is written without a name and then linked into
  place, so a failure leaves nothing behind and a watcher never reads half of it. Where the file
  system cannot do that, it is created empty and filled.
* An existing file keeps its inode: a rename would detach it from its other names, its open
  handles, its watchers and its owner. Room for the new bytes is reserved before the first old
  one changes, so a full disk costs nothing, and the length is cut last, so there is no moment
  in which the file is empty. Only a crash or a failing disk in between leaves a mixture.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
import pybase64

from holdfast.errors import InvalidRequest

MAX_READ_BYTES: Final = 512 * 1024 * 1024  # the most that the reference answers
READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO or a device must not block us
WRITE_FLAGS: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
NEW_FILE_MODE: Final = 0o666  # less the umask

SMALL_BYTES: Final = 64 * 1024  # read in one go, in less time than a thread takes to wake
_CHUNK_BYTES: Final = 768 * 1024  # a multiple of 3, so every chunk but the last encodes without padding
_BUFFER_BYTES: Final = 48 * 1024  # likewise; for files without a known size, as in /proc
_NO_RESERVING: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Yield the descriptor, and close it at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def encode(fd: int) -> msgspec.Raw:
    """The rest of an open file as the JSON text of a `fs/readFile` result."""
    size = os.fstat(fd).st_size
    if size > MAX_READ_BYTES:
        raise _too_large()
    if 0 < size <= SMALL_BYTES:
        data = os.read(fd, size + 1)
        if len(data) <= size:  # less than requested: that was all
            return msgspec.Raw(b'{"dataBase64":"%b"}' % pybase64.b64encode(data))
        os.lseek(fd, 0, os.SEEK_SET)  # it grew
    view = memoryview(bytearray(min(_CHUNK_BYTES, size // 3 * 3 + 3 if size else _BUFFER_BYTES)))
    out = bytearray(b'{"dataBase64":"')
    total = filled = 0
    while True:
        got = os.readv(fd, [view[filled:]])
        filled += got
        if got and filled < len(view):
            continue
        total += filled
        if total > MAX_READ_BYTES:
            raise _too_large()
        out += pybase64.b64encode(view[:filled])
        if not got:
            break
        filled = 0
    out += b'"}'
    return msgspec.Raw(out)


def _too_large() -> InvalidRequest:
    return InvalidRequest(f"file is too large to read: limit is {MAX_READ_BYTES} bytes")


def create(parent: int, name: str, data: bytes, *, flags: int = 0, regular_only: bool = False) -> None:
    """Store `data` as `name` in the open directory `parent`, where it did not exist a moment ago.

    `flags` and `regular_only` matter if it exists by now: how to open it, and whether anything but a regular
    file is refused.
    """
    if _link_complete(parent, name, data):
        return
    with closing(os.open(name, WRITE_FLAGS | os.O_CREAT | flags, NEW_FILE_MODE, dir_fd=parent)) as fd:
        overwrite(fd, data, regular_only=regular_only)


def _link_complete(parent: int, name: str, data: bytes) -> bool:
    """Whether the file was created in one step; if not, nothing has changed."""
    try:
        fd = os.open(".", os.O_WRONLY | os.O_TMPFILE, NEW_FILE_MODE, dir_fd=parent)
    except OSError:
        return False  # not supported here; the ordinary way reports the real reason, if there is one
    with closing(fd):
        write_all(fd, data)
        try:
            # os.link follows the link in /proc only if it gets a directory descriptor.
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=parent, follow_symlinks=True)
        except OSError:
            return False  # the name exists by now, it is a dangling link, or there is no /proc
        return True


def overwrite(fd: int, data: bytes, *, regular_only: bool = False) -> None:
    """Make `data` the whole contents of the file open at `fd`, in place."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        if regular_only:
            raise InvalidRequest("path is not a regular file")
        write_all(fd, data)
        return
    if len(data) > status.st_blocks * 512:
        _reserve(fd, len(data), size=status.st_size)
    write_all(fd, data)
    if status.st_size > len(data):
        os.ftruncate(fd, len(data))


def _reserve(fd: int, length: int, *, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as exc:
        if exc.errno in _NO_RESERVING:
            return
        with suppress(OSError):
            os.ftruncate(fd, size)  # a failed reservation may have moved the end
        raise


def write_all(fd: int, data: bytes) -> None:
    """Write every byte at the current position."""
    written = os.write(fd, data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += os.write(fd, rest[written:])
