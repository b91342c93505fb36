"""Notice new entries in a directory by dnotify (fcntl(2)), which sends a signal and gives no names.

Used by a process whose end another one waits for: the kernel takes ten milliseconds to close an inotify
instance, and none to close this.

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
    """Like `Inotify`, but there is no descriptor to wait for: SIGIO arrives, which must have a handler."""

    fd: Final = -1

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}

    def watch(self, folder: str) -> int:
        """Watch for new entries in this directory, which must not be a link; its number. Raises OSError."""
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
        """Stop watching this directory."""
        self._folders = {folder: fd for folder, fd in self._folders.items() if fd != number}
        os.close(number)

    def read(self) -> tuple[list[tuple[int, bytes]], bool]:
        """No names are known; the flag says that there may be new ones."""
        return [], True
