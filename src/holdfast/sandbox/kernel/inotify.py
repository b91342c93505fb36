"""What appears in directories, as the kernel tells it: inotify(7), for entries that are made or moved there,
and where that is asked for, written.

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
_BATCH: Final = 16 * 1024  # bytes; who is behind by more looks at everything instead of reading on

_init = named("inotify_init1", c_int)
_add = named("inotify_add_watch", c_int, c_char_p, c_uint32)
_remove = named("inotify_rm_watch", c_int, c_int)


class Inotify:
    """One instance; of those a user has few. Raises OSError."""

    def __init__(self, *, blocking: bool) -> None:
        self.fd = _init(os.O_CLOEXEC | (0 if blocking else os.O_NONBLOCK))

    def watch(self, folder: str, *, written: bool = False) -> int:
        """Hear of what appears in this directory, which is no link; its number, the same if it is watched.

        With `written` also of files in it that are written to.

        Raises:
            OSError: ENOSPC when the user has too many watches.
        """
        return _add(self.fd, os.fsencode(folder), _ENTRIES | (_MODIFY if written else 0))

    def leave(self, number: int) -> None:
        """No more of this directory."""
        try:
            _remove(self.fd, number)
        except OSError:
            return  # it is gone, and its watch with it

    def read(self) -> tuple[list[tuple[int, bytes]], bool]:
        """Names that appeared since, each with the number of its directory; and whether there may be others.

        A part of them at a time.
        """
        try:
            data = os.read(self.fd, _BATCH)
        except BlockingIOError:
            return [], False
        if len(data) > _BATCH // 2:
            return [], True  # somebody makes more than is worth being read
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
