"""Files that git does not keep, copied by rule from a repository into a worktree of it.

Both sides are walked by descriptor, and no link is followed on either: what a rule names lies in the
repository, and what is written lies in the worktree. Nothing that is there is overwritten.
"""

import contextlib
import errno
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import OperationFailed
from holdfast.local.atomicfile import open_folder

MAX_COPIED: Final = 100  # files; a rule that means more means a build, which is for `setup`
MAX_BYTES: Final = 16 << 20  # of all of them
MAX_LISTED: Final = 20_000  # names in the directories that the rules lead through
LEFT_OUT: Final = frozenset({".git", ".holdfast"})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_HIDDEN: Final = ".copy"  # below .holdfast: half a file is never seen


def missing(repository: Path, worktree: Path, patterns: Sequence[str]) -> list[str]:
    """What the rules name and the worktree lacks, as relative paths.

    Raises:
        OperationFailed: that is more than is copied, or the repository cannot be read.
    """
    found: set[str] = set()
    listed = [0]
    try:
        with open_folder(str(repository)) as top:
            for pattern in patterns:
                found |= set(_matching(top, pattern.split("/"), "", listed))
    except OSError as exc:
        raise OperationFailed(f"cannot read {repository}: {exc.strerror}") from None
    names = sorted(name for name in found if not os.path.lexists(worktree / name))
    if len(names) > MAX_COPIED:
        raise OperationFailed(f"`copy` names {len(names)} files", remedy=f"at most {MAX_COPIED} are copied")
    return names


def copy(repository: Path, worktree: Path, names: Sequence[str]) -> None:
    """Copy these, except what is there by now, and what only a link leads to.

    Raises:
        OperationFailed: they are too large, or cannot be written.
    """
    left = MAX_BYTES
    for name in names:
        try:
            left -= _copied(repository, worktree, name, left)
        except OSError as exc:
            raise OperationFailed(f"cannot copy {name} into {worktree}: {exc.strerror}") from None


def _matching(folder: int, parts: Sequence[str], at: str, listed: list[int]) -> Iterator[str]:
    names = os.listdir(folder)
    listed[0] += len(names)
    if listed[0] > MAX_LISTED:
        raise OperationFailed("`copy` leads through too many files", remedy="name directories, not patterns")
    for name in fnmatch.filter(names, parts[0]):
        kind = stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode)
        if name in LEFT_OUT:
            continue
        if len(parts) == 1 and kind == stat.S_IFREG:
            yield at + name
        elif len(parts) > 1 and kind == stat.S_IFDIR:
            with open_folder(name, folder) as inner:
                yield from _matching(inner, parts[1:], f"{at}{name}/", listed)


def _copied(repository: Path, worktree: Path, name: str, most: int) -> int:
    """How many bytes; none of what is there already."""
    *folders, last = name.split("/")
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(open_folder(str(repository)))
        for folder in folders:
            source = opened.enter_context(open_folder(folder, source))
        with open(os.open(last, _READ, dir_fd=source), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most + 1) if stat.S_ISREG(mode) else b""
        if len(data) > most:
            raise OperationFailed(f"`copy` names more than {MAX_BYTES} bytes", remedy="copy less")
        top = opened.enter_context(open_folder(str(worktree)))
        own = opened.enter_context(_made(".holdfast", top))
        try:
            place = top
            for folder in folders:
                place = opened.enter_context(_made(folder, place))
        except OSError as exc:
            if exc.errno in (errno.ENOTDIR, errno.ELOOP):  # what lies behind a link is not the worktree's
                return 0
            raise
        with open(os.open(_HIDDEN, _WRITE, 0o600, dir_fd=own), "wb") as written:
            written.write(data)
            os.fchmod(written.fileno(), stat.S_IMODE(mode) & 0o777)
        with contextlib.suppress(FileExistsError):
            os.link(_HIDDEN, last, src_dir_fd=own, dst_dir_fd=place)
        os.unlink(_HIDDEN, dir_fd=own)
    return len(data)


@contextlib.contextmanager
def _made(name: str, above: int) -> Iterator[int]:
    """A directory, which is made if there is nothing."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=above)
    with open_folder(name, above) as fd:
        yield fd
