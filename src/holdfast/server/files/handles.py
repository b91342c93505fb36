"""Open files of one connection: streamed reads and writes by position."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pybase64

from holdfast.errors import InvalidRequest, NotFound
from holdfast.server.files.contents import NEW_FILE_MODE, WRITE_FLAGS
from holdfast.server.files.files import open_to_read, protocol_errors, refuse_irregular
from holdfast.wire.files import HandleParams, HandleResult, OpenParams, ReadBlockParams, WriteBlockParams
from holdfast.wire.structs import Empty

MAX_HANDLES: Final = 128  # so that one connection cannot use up the descriptors of the server
MAX_ID_BYTES: Final = 32
MAX_BLOCK_BYTES: Final = 1024 * 1024
_MAX_OFFSET: Final = 2**63 - 1


class _Handle:
    """A descriptor and its users; after it is doomed, the last call that uses it closes it."""

    __slots__ = ("doomed", "fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        self.doomed = False


class FileHandles:
    """The handles of one connection. Methods may be called from several threads at once.

    A handle closed while a call uses it stays open until that call is done, so no call can use a descriptor
    that belongs to another file by now.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[str, _Handle] = {}
        self._opening: set[str] = set()
        self._ended = False

    def open(self, params: OpenParams) -> HandleResult:
        """Open a regular file."""
        self.reserve(params.handle_id)
        try:
            fd = open_file(params)
        except BaseException:
            self.release(params.handle_id)
            raise
        return self.adopt(params.handle_id, fd)

    def adopt(self, handle_id: str, fd: int) -> HandleResult:
        """Register an open file under a reserved id."""
        with self._lock:
            self._opening.discard(handle_id)
            if not self._ended:
                self._handles[handle_id] = _Handle(fd)
                return HandleResult(handle_id)
        os.close(fd)
        raise _unknown(handle_id)

    @protocol_errors
    def read_block(self, params: ReadBlockParams) -> msgspec.Raw:
        """Read up to `len` bytes from `offset`, already JSON; an I/O error closes the handle."""
        _check_id(params.handle_id)
        if not 1 <= params.len <= MAX_BLOCK_BYTES:
            raise InvalidRequest(f"file read block length must be between 1 and {MAX_BLOCK_BYTES}")
        with self._using(params.handle_id) as handle:
            try:
                data = _read(handle.fd, params.len, params.offset)
            except OSError:
                self._drop(params.handle_id, handle)
                raise
        out = bytearray(b'{"chunk":"')
        out += pybase64.b64encode(data)
        out += b'","eof":true}' if len(data) < params.len else b'","eof":false}'
        return msgspec.Raw(out)

    @protocol_errors
    def write_block(self, params: WriteBlockParams) -> Empty:
        """Write all of `chunk` at `offset`; the handle stays open even after an error."""
        _check_id(params.handle_id)
        if not 1 <= len(params.chunk) <= MAX_BLOCK_BYTES:
            raise InvalidRequest(f"file write block length must be between 1 and {MAX_BLOCK_BYTES}")
        if params.offset + len(params.chunk) > _MAX_OFFSET:
            raise InvalidRequest("file write range exceeds the signed 64-bit file offset limit")
        with self._using(params.handle_id) as handle:
            rest, offset = memoryview(params.chunk), params.offset
            while rest:
                written = os.pwrite(handle.fd, rest, offset)
                rest, offset = rest[written:], offset + written
        return Empty()

    def close(self, params: HandleParams) -> Empty:
        """Close the handle; closing an unknown one is no error."""
        _check_id(params.handle_id)
        with self._lock:
            if handle := self._handles.pop(params.handle_id, None):
                _doom(handle)
        return Empty()

    def close_all(self) -> None:
        """Close everything at the end of the connection, also files that are just being opened."""
        with self._lock:
            self._ended = True
            for handle in self._handles.values():
                _doom(handle)
            self._handles.clear()

    def release(self, handle_id: str) -> None:
        """Release a reserved id whose file could not be opened."""
        with self._lock:
            self._opening.discard(handle_id)

    def reserve(self, handle_id: str) -> None:
        """Claim an id before its file is opened.

        Raises:
            InvalidRequest: it is in use or too long, or there are too many.
        """
        _check_id(handle_id)
        with self._lock:
            if handle_id in self._handles or handle_id in self._opening:
                raise InvalidRequest(f"file handle `{handle_id}` already exists")
            if len(self._handles) + len(self._opening) >= MAX_HANDLES:
                raise InvalidRequest(f"at most {MAX_HANDLES} file handles may be open per connection")
            self._opening.add(handle_id)

    @contextmanager
    def _using(self, handle_id: str) -> Iterator[_Handle]:
        with self._lock:
            handle = self._handles.get(handle_id)
            if handle is None:
                raise _unknown(handle_id)
            handle.users += 1
        try:
            yield handle
        finally:
            with self._lock:
                handle.users -= 1
                if handle.doomed and not handle.users:
                    os.close(handle.fd)

    def _drop(self, handle_id: str, handle: _Handle) -> None:
        with self._lock:
            if self._handles.get(handle_id) is handle:
                del self._handles[handle_id]
                _doom(handle)


@protocol_errors
def open_file(params: OpenParams) -> int:
    """Open a regular file to `read` it, or to `replace` it, which empties it at once and in place."""
    path = params.path.native()
    return open_to_read(path) if params.mode == "read" else _open_to_replace(path)


def _doom(handle: _Handle) -> None:
    handle.doomed = True
    if not handle.users:
        os.close(handle.fd)


def _unknown(handle_id: str) -> NotFound:
    return NotFound(f"unknown file handle `{handle_id}`")


def _check_id(handle_id: str) -> None:
    if len(handle_id.encode()) > MAX_ID_BYTES:
        raise InvalidRequest(f"file handle ID must not exceed {MAX_ID_BYTES} bytes")


def _open_to_replace(path: str) -> int:
    fd = os.open(path, WRITE_FLAGS | os.O_CREAT, NEW_FILE_MODE)
    try:
        refuse_irregular(fd, path)
        os.ftruncate(fd, 0)  # only now, so that nothing but a regular file is changed
    except BaseException:
        os.close(fd)
        raise
    return fd


def _read(fd: int, length: int, offset: int) -> bytes:
    """Read `length` bytes, fewer only at the end of the file."""
    if offset + length > _MAX_OFFSET:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    data = os.pread(fd, length, offset)
    while data and len(data) < length:
        more = os.pread(fd, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
