"""Finds and reads files in the state directory of a CLI.

The worker writes there, so we follow no links, never block, and read at most a bounded part: a link, a pipe
or an endless file must neither delay us nor lead us out of the directory.
"""

import fnmatch
import os
import stat
from collections.abc import Iterator
from typing import Final

MAX_ENTRIES: Final = 2_000  # directory entries examined to find a file; a worker can make any number
MAX_TAIL: Final = 256 * 1024  # bytes of one read, from the end: room for several of the largest lines


def find_files(folder: str, place: str) -> list[str]:
    """Return the paths below the folder with components that match the patterns of `place`."""
    return list(_find(folder, place.split("/"), [MAX_ENTRIES]))


def _find(folder: str, parts: list[str], left: list[int]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if not fnmatch.fnmatchcase(entry.name, parts[0]):
                    continue
                if len(parts) == 1:
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    yield from _find(entry.path, parts[1:], left)
    except OSError:
        return


def read_tail(path: str, begin: int = 0) -> tuple[bytes, int]:
    """Return the end of a file from `begin` on, at most MAX_TAIL bytes, and the offset after it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", begin
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return b"", begin
        data = os.pread(fd, MAX_TAIL, max(begin, about.st_size - MAX_TAIL))
        return data, max(begin, about.st_size - MAX_TAIL) + len(data)
    except OSError:
        return b"", begin
    finally:
        os.close(fd)


class LogTail:
    """Reads the lines that a CLI adds to its log files."""

    def __init__(self, folder: str, place: str) -> None:
        self._folder = folder
        self._place = place
        self._read: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}

    def read(self) -> list[str]:
        """Return the complete lines since the last call."""
        lines: list[bytes] = []
        for path in sorted(find_files(self._folder, self._place)):
            data, end = read_tail(path, self._read.get(path, 0))
            if data:
                *whole, rest = (self._rest.get(path, b"") + data).split(b"\n")
                self._read[path], self._rest[path] = end, rest[-MAX_TAIL:]
                lines += whole
        return [line.decode("utf-8", "replace") for line in lines]
