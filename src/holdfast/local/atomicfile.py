"""Atomic file replacement: a reader sees the old content or the new, never a part, also after a crash.

No link is followed: a link of that name is replaced. So `write_below` may write into a directory that a
worker owns: it never writes through what the worker left there, such as links to the user's own files.
"""

import contextlib
import os
from collections.abc import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(
    path: str | os.PathLike[str], data: bytes, *, durable: bool = True, mode: int = 0o600
) -> None:
    """Replace the file; return when it is on the disk. Without `durable` a crash of the machine may undo it.

    Raises:
        OSError: it cannot be written.
    """
    above, name = os.path.split(os.path.abspath(path))
    folder = os.open(above, _FOLDER)
    try:
        replace_at(folder, name, data, durable=durable, mode=mode)
    finally:
        os.close(folder)


def replace_at(folder: int, name: str, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Like `replace_file`, in an open directory. Without `durable` a crash of the machine may undo it.

    For a `mode` other than 0600 the kernel applies the umask. The file has its mode from creation on.

    Raises:
        OSError: it cannot be written; IsADirectoryError where a directory has that name.
    """
    hidden = write_new(folder, data, durable=durable, mode=mode)
    try:
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden, dir_fd=folder)
        raise
    if durable:
        os.fsync(folder)


def write_new(folder: int, data: bytes, *, durable: bool = True, mode: int = 0o600) -> str:
    """Write a new file with this content in an open directory; return its name, for a caller that renames it.

    Raises:
        OSError: it cannot be written.
    """
    hidden = f".{os.urandom(8).hex()}"
    opened = os.open(hidden, _NEW, mode, dir_fd=folder)
    try:
        with open(opened, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(opened)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden, dir_fd=folder)
        raise
    return hidden


def write_below(top: str | os.PathLike[str], names: tuple[str, ...], data: bytes) -> None:
    """Write a file at `names` below `top`, mode 0600; create missing directories.

    Raises:
        OSError: it cannot be written; ELOOP or ENOTDIR where a link stands in place of a directory.
    """
    with open_below(top, names[:-1], make=True) as above:
        replace_at(above, names[-1], data, durable=False)


@contextlib.contextmanager
def open_below(top: str | os.PathLike[str], names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """Open the directory at `names` below `top`; follow no link on the way.

    Raises:
        OSError: it is not there, or cannot be made; ELOOP or ENOTDIR where a link stands in its place.
    """
    with contextlib.ExitStack() as opened:
        above = opened.enter_context(open_folder(os.fspath(top)))
        for name in names:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            above = opened.enter_context(open_folder(name, above))
        yield above


@contextlib.contextmanager
def open_folder(name: str, above: int | None = None) -> Iterator[int]:
    """Open a directory, in `above` if given; a link in its place is refused with ELOOP or ENOTDIR."""
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)
