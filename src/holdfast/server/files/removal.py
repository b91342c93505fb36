"""Removal of a directory with everything in it."""

import os
from contextlib import suppress
from typing import Final

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(path: str) -> None:
    """Remove the directory at `path`; links in it are removed, never followed.

    Every level is reached through the descriptor of the one above, so swapping a directory for a
    link meanwhile leads nowhere else. What others remove at the same time is no error. One
    descriptor per level is open: the limit on open files bounds the depth.
    """
    levels = [_Level(os.open(path, _OPEN))]
    try:
        levels[0].clear()
        while True:
            level = levels[-1]
            if level.directories:
                name = level.directories[-1]
                try:
                    levels.append(_Level(os.open(name, _OPEN, dir_fd=level.fd)))
                except FileNotFoundError:
                    level.directories.pop()
                    continue
                levels[-1].clear()
            elif len(levels) > 1:
                os.close(levels.pop().fd)
                outer = levels[-1]
                with suppress(FileNotFoundError):
                    os.rmdir(outer.directories.pop(), dir_fd=outer.fd)
            else:
                break
    finally:
        for level in levels:
            os.close(level.fd)
    os.rmdir(path)


class _Level:
    """A directory on the way down, and which of its directories are still to go."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.directories: list[str] = []

    def clear(self) -> None:
        """Remove everything but the directories."""
        others: list[str] = []
        with os.scandir(self.fd) as entries:
            for entry in entries:
                (self.directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        for name in others:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd)
