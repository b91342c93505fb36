"""A file replaced whole: whoever reads it, also after a crash, sees the old content or the new, never a part.

No link is followed: one of that name is replaced. So `write_below` may write into a directory that a worker
owns: whatever the worker left there, links to the user's own files included, is never written through.
"""

import contextlib
import os
from collections.abc import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(
    path: str | os.PathLike[str], data: bytes, *, durable: bool = True, mode: int = 0o600
) -> None:
    """It is on the disk when this returns; without `durable` a crash of the machine may undo it.

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
    """The same in a directory that is open. Without `durable` a crash of the machine may undo it.

    Of another `mode` the kernel takes what the umask says; the file has it from its first moment.

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
    """The name of a new file with this content in a directory that is open, for a caller that renames it.

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
    """A file at `names` below `top`, mode 0600; directories that are missing are made.

    Raises:
        OSError: it cannot be written; ELOOP or ENOTDIR where a link stands in place of a directory.
    """
    with open_below(top, names[:-1], make=True) as above:
        replace_at(above, names[-1], data, durable=False)


@contextlib.contextmanager
def open_below(top: str | os.PathLike[str], names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """The directory at `names` below `top`; no link is followed on the way.

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
    """A directory, by its name in one that is open; a link in its place is refused with ELOOP or ENOTDIR."""
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)
