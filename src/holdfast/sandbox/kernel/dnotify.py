"""That something appeared in a directory, told by a signal and without a name: dnotify, fcntl(2).

For a process that is waited for: to close an inotify instance takes the kernel ten milliseconds, this none.

Standard library only, and little of it.
"""

import fcntl
import os

from holdfast.light import Final

# linux/fcntl.h
_F_NOTIFY: Final = 1026
_CREATE, _MULTISHOT = 0x4, 0x80000000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Dnotify:
    """As `Inotify`, but nothing is awaited: SIGIO comes, which must have a handler."""

    fd: Final = -1

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}

    def watch(self, folder: str) -> int:
        """Hear of what appears in this directory, which is no link; its number. Raises OSError."""
        if folder not in self._folders:
            fd = os.open(folder, _FOLDER)
            try:
                fcntl.fcntl(fd, _F_NOTIFY, _CREATE | _MULTISHOT)
            except OSError:
                os.close(fd)
                raise
            self._folders[folder] = fd
        return self._folders[folder]

    def leave(self, number: int) -> None:
        """No more of this directory."""
        self._folders = {folder: fd for folder, fd in self._folders.items() if fd != number}
        os.close(number)

    def read(self) -> tuple[list[tuple[int, bytes]], bool]:
        """No names, and there may be any."""
        return [], True
