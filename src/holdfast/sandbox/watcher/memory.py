"""The memory of another process, read by its pid.

Standard library only, and little of it: the broker and the watcher read the arguments of calls with this.
"""

import ctypes
import mmap
import os
from ctypes import c_int, c_long, c_size_t, c_ulong, c_void_p
from typing import Final

MAX_PATH: Final = 4096  # PATH_MAX
_PAGE: Final = mmap.PAGESIZE


class _Vector(ctypes.Structure):
    _fields_ = (("base", c_void_p), ("length", c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_read_memory = ctypes.CFUNCTYPE(c_long, c_int, c_void_p, c_ulong, c_void_p, c_ulong, c_ulong, use_errno=True)(
    ("process_vm_readv", _libc)
)


class Memory:
    """Reads the memory of other processes, by pid."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_PAGE)
        self._here = _Vector(ctypes.addressof(self._buffer), 0)
        self._there = _Vector(0, 0)
        self._pointers = ctypes.addressof(self._here), ctypes.addressof(self._there)

    def read(self, pid: int, address: int, length: int) -> bytes:
        """Raises OSError."""
        self._here.length = self._there.length = length
        self._there.base = address
        got = _read_memory(pid, self._pointers[0], 1, self._pointers[1], 1, 0)
        if got < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return ctypes.string_at(self._buffer, got)

    def text(self, pid: int, address: int) -> bytes:
        """A string up to its zero byte, page by page: the following page may not exist. Raises OSError."""
        found = b""
        while len(found) < MAX_PATH:
            more = self.read(pid, address, _PAGE - address % _PAGE)
            head, zero, _ = more.partition(b"\0")
            found += head
            if zero:
                break
            address += len(more)
        return found[:MAX_PATH]
