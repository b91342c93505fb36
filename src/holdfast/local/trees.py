"""Walk and remove trees that other programs filled: by descriptor, with any depth, modes or names.

No link is followed, nothing is opened by a path of several names, and depth and number are bounded.
"""

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, Final, Literal, NamedTuple, TypeAlias

MAX_DEPTH: Final = 200  # nested directories; each is an open descriptor while we are below it
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Problem: TypeAlias = Literal["", "unreadable", "too deep"]


class TreeEntry(NamedTuple):
    """An entry below the top; `name` is valid in `folder` until the next entry is requested.

    Names are the kernel's: bytes that are not text are surrogates.
    """

    path: str
    name: str
    folder: int
    status: os.stat_result
    problem: Problem = ""  # of a directory: why it was not entered

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class TreeWalk:
    """Everything below a directory, at most `most` entries; a missing directory is empty.

    `enter` decides by its path whether a directory is entered, `order` is the sort key of the names in a
    directory. `whole` is False once something was left out because of number or depth.
    """

    def __init__(
        self,
        top: str | os.PathLike[str],
        *,
        most: int,
        enter: Callable[[str], bool] = lambda _path: True,
        order: Callable[[str], tuple[bool, str]] = lambda name: (False, name),
    ) -> None:
        self._top, self._left, self._enter, self._order = os.fspath(top), most, enter, order
        self.whole = True

    def __iter__(self) -> Iterator[TreeEntry]:
        opened: list[int] = []
        try:
            opened.append(os.open(self._top, _FOLDER))
            waiting = [("", self._names(opened[0]))]
            while opened:
                at, names = waiting[-1]
                name = next(names, None)
                if name is None:
                    waiting.pop()
                    os.close(opened.pop())
                    continue
                entry = self._look(at + name, name, opened[-1], deep=len(opened) >= MAX_DEPTH)
                if entry is None:
                    continue
                if entry.is_folder and not entry.problem and self._enter(entry.path):
                    try:
                        opened.append(os.open(name, _FOLDER, dir_fd=entry.folder))
                        waiting.append((f"{at}{name}/", self._names(opened[-1])))
                    except OSError:
                        entry = entry._replace(problem="unreadable")
                yield entry
        except OSError:  # not a directory
            return
        finally:
            for fd in opened:
                os.close(fd)

    def _names(self, folder: int) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, self._left + 1)]
        except OSError:
            return iter(())
        if len(names) > self._left:
            self.whole = False
            names.pop()
        self._left -= len(names)
        return iter(sorted(names, key=self._order))

    def _look(self, path: str, name: str, folder: int, *, deep: bool) -> TreeEntry | None:
        try:
            status = os.lstat(name, dir_fd=folder)
        except OSError:  # gone meanwhile
            return None
        entry = TreeEntry(path, name, folder, status)
        if deep and entry.is_folder and self._enter(entry.path):
            self.whole = False
            return entry._replace(problem="too deep")
        return entry


def read_regular(name: str, folder: int, most: int) -> bytes | None:
    """Read a file, at most `most` bytes; None if it is not a regular file.

    Raises:
        OSError: it cannot be read.
    """
    with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def read_below(top: str | os.PathLike[str], path: str, most: int) -> bytes | None:
    """Like `read_regular`, by a path below a directory; follow no link.

    Raises:
        OSError: it cannot be read.
    """
    with open_below(top, path) as file:
        return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def open_below(top: str | os.PathLike[str], path: str) -> BinaryIO:
    """Open the entry at a path below a directory, of any kind; follow no link.

    Raises:
        OSError: it cannot be opened.
    """
    *folders, name = path.split("/")
    fd = os.open(os.fspath(top), _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        return open(os.open(name, _READ, dir_fd=fd), "rb")
    finally:
        os.close(fd)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory with its content.

    Directories are moved up to the top before they are emptied, so that none is ever more than one level
    deep.

    Raises:
        OSError: something in it cannot be removed.
    """
    top = os.open(os.fspath(path), _FOLDER)
    try:
        os.fchmod(top, 0o700)
        number = 0
        while folders := _empty(top):
            for name in folders:
                inner = _open_for_removal(name, top)
                try:
                    for below in _empty(inner):
                        os.close(
                            _open_for_removal(below, inner)
                        )  # a directory that is moved must be writable
                        number += 1
                        os.rename(below, f".removed-{number}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _open_for_removal(name: str, above: int) -> int:
    """Open a directory even if its owner has no access; change the mode by descriptor, never by name."""
    closed = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{closed}", 0o700)
        return os.open(f"/proc/self/fd/{closed}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(closed)


def _empty(folder: int) -> list[str]:
    """Remove everything but directories; return the names of the directories."""
    folders = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if is_folder:
            folders.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return folders
