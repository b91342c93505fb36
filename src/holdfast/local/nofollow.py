"""Writing into a directory that a worker owns: below a descriptor, no link followed, replaced by a rename.

Whatever the worker left there, links to the user's own files included, is replaced and never written through.
"""

import contextlib
import os
import secrets

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_below(top: str | os.PathLike[str], names: tuple[str, ...], data: bytes) -> None:
    """A file at `names` below `top`, whole or not at all, mode 0600; directories that are missing are made.

    Raises:
        OSError: it cannot be written; ELOOP or ENOTDIR where a link stands in place of a directory.
    """
    with contextlib.ExitStack() as opened:
        above = _enter(opened, os.fspath(top), None)
        for name in names[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            above = _enter(opened, name, above)
        hidden = f".{secrets.token_hex(8)}"
        with open(os.open(hidden, _NEW, 0o600, dir_fd=above), "wb") as file:
            file.write(data)
        os.rename(hidden, names[-1], src_dir_fd=above, dst_dir_fd=above)


def _enter(opened: contextlib.ExitStack, name: str, above: int | None) -> int:
    fd = os.open(name, _FOLDER, dir_fd=above)
    opened.callback(os.close, fd)
    return fd
