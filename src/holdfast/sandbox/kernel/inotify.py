"""New entries in directories, by inotify(7): entries that are created or moved there, and optionally files
that are written.

Standard library only, and little of it: an owner of commands loads this with its first start.
"""

import os
import struct
from ctypes import c_char_p, c_int, c_uint32
from typing import Final

from holdfast.sandbox.kernel.kernel import named

# linux/inotify.h
_MODIFY, _CREATE, _MOVED_TO, _OVERFLOW, _IGNORED = 0x2, 0x100, 0x80, 0x4000, 0x8000
_ONLY_DIRECTORY, _NO_LINK = 0x01000000, 0x02000000
_ENTRIES: Final = _CREATE | _MOVED_TO | _ONLY_DIRECTORY | _NO_LINK
_EVENT: Final = struct.Struct("=iIII")
_BATCH: Final = 16 * 1024  # bytes; with a longer backlog the reader checks all paths instead of reading on

_init = named("inotify_init1", c_int)
_add = named("inotify_add_watch", c_int, c_char_p, c_uint32)
_remove = named("inotify_rm_watch", c_int, c_int)


class Inotify:
    """One instance; a user can have only few. Raises OSError."""

    def __init__(self, *, blocking: bool) -> None:
        self.fd = _init(os.O_CLOEXEC | (0 if blocking else os.O_NONBLOCK))

    def watch(self, folder: str, *, written: bool = False) -> int:
        """Watch for new entries in this directory, which must not be a link; return its number.

        A directory that is already watched keeps its number. With `written` also watch for writes to its
        files.

        Raises:
            OSError: ENOSPC when the user has too many watches.
        """
        return _add(self.fd, os.fsencode(folder), _ENTRIES | (_MODIFY if written else 0))

    def leave(self, number: int) -> None:
        """Stop watching this directory."""
        try:
            _remove(self.fd, number)
        except OSError:
            return  # the directory is gone, and its watch with it

    def read(self) -> tuple[list[tuple[int, bytes]], bool]:
        """The names that appeared, each with its directory's number; and whether others may be missing.

        Each call returns at most one batch.
        """
        try:
            data = os.read(self.fd, _BATCH)
        except BlockingIOError:
            return [], False
        if len(data) > _BATCH // 2:
            return [], True  # a process makes more entries than are worth reading
        names, at, lost = [], 0, False
        while at < len(data):
            number, what, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if what & _OVERFLOW:
                lost = True
            elif not what & _IGNORED:
                names.append((number, data[at - length : at].rstrip(b"\0")))
        return names, lost

    def close(self) -> None:
        os.close(self.fd)
