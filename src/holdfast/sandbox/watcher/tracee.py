"""What a watched process asks about, seen from outside: its memory, and files as it sees them.

Standard library only: the watcher imports this.
"""

import ctypes
import errno
import mmap
import os
import stat
from ctypes import c_int, c_long, c_size_t, c_ulong, c_void_p
from typing import Final

from holdfast.sandbox.kernel.kernel import numbered
from holdfast.sandbox.watcher.foresight import Terrain

MAX_PATH: Final = 4096  # PATH_MAX
MAX_LINKS: Final = 8  # dangling links followed by hand
_PAGE: Final = mmap.PAGESIZE
_O_PATH: Final = os.O_PATH | os.O_CLOEXEC
_IN_ROOT: Final = 0x10  # RESOLVE_IN_ROOT
_SPECIAL: Final = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)


class _Vector(ctypes.Structure):
    _fields_ = (("base", c_void_p), ("length", c_size_t))


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_read_memory = ctypes.CFUNCTYPE(c_long, c_int, c_void_p, c_ulong, c_void_p, c_ulong, c_ulong, use_errno=True)(
    ("process_vm_readv", _libc)
)
_openat2 = numbered(437, c_int, ctypes.c_char_p, c_void_p, c_size_t)


class Memory:
    """Of another process, read by its number."""

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
        """A string up to its zero, page by page: what follows may not be there. Raises OSError."""
        found = b""
        while len(found) < MAX_PATH:
            more = self.read(pid, address, _PAGE - address % _PAGE)
            head, zero, _ = more.partition(b"\0")
            found += head
            if zero:
                break
            address += len(more)
        return found[:MAX_PATH]


class View:
    """The files as the command sees them, from its root on."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._hows = {
            follow: _How(_O_PATH | (0 if follow else os.O_NOFOLLOW), 0, _IN_ROOT) for follow in (0, 1)
        }

    def _open(self, path: bytes, *, follow: bool) -> int:
        how = self._hows[follow]
        return _openat2(self._root, path.lstrip(b"/") or b".", ctypes.addressof(how), ctypes.sizeof(how))

    def look(self, path: bytes, *, follow: bool, whole: bool) -> Terrain:
        """What is at this path, resolved as the kernel would.

        Unless the `whole` is wanted, what is not on a read-only mount is not looked at any further.
        """
        for _ in range(MAX_LINKS):
            try:
                fd = self._open(path, follow=follow)
            except OSError as exc:
                if exc.errno != errno.ENOENT:
                    return Terrain(shown(os.path.normpath(path)), exists=False, reachable=False)
            else:
                return self._found(fd, whole=whole)
            target = self._dangling(path) if follow else None
            if target is None:
                break
            path = os.path.join(os.path.dirname(path.rstrip(b"/")), target)
        folder, name = os.path.split(path.rstrip(b"/"))
        try:
            fd = self._open(folder, follow=True)
        except OSError:
            return Terrain(shown(os.path.normpath(path)), exists=False, reachable=False)
        above = self._found(fd, whole=whole, name=name)
        return above._replace(exists=False, special=False, directory=False)

    def _found(self, fd: int, *, whole: bool, name: bytes = b"") -> Terrain:
        try:
            read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
            if not (read_only or whole):
                return Terrain("")  # nothing here decides about it, whatever it is
            path = os.readlink(b"/proc/self/fd/%d" % fd)
            kind = stat.S_IFMT(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
        resolved = shown(os.path.join(path, name) if name else path)
        return Terrain(
            resolved, special=kind in _SPECIAL, directory=kind == stat.S_IFDIR, read_only=read_only
        )

    def _dangling(self, path: bytes) -> bytes | None:
        try:
            fd = self._open(path, follow=False)
        except OSError:
            return None
        try:
            return os.readlink(b"", dir_fd=fd)
        except OSError:
            return None
        finally:
            os.close(fd)


def name_of(pid: int) -> str:
    """What the process is called; empty if it is gone."""
    try:
        fd = os.open(b"/proc/%d/comm" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return shown(os.read(fd, 64).rstrip(b"\n"))
    except OSError:
        return ""
    finally:
        os.close(fd)


def shown(data: bytes) -> str:
    """A path as text that can be sent, whatever its bytes."""
    return data.decode("utf-8", "backslashreplace")
