"""A key of a home, made once, for its owner alone: HOME/handoff.key, under which tokens are minted."""

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from holdfast.errors import StartupError
from holdfast.local.atomicfile import write_new

NAME: Final = "handoff.key"
SIZE: Final = 32  # bytes, as the hash it is used with


def load(home: Path, name: str = NAME) -> bytes:
    """The key of this name in this home; the first who asks makes it.

    Raises:
        StartupError: it cannot be made or read, or others than its owner can read it.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return _read(home / name)
        _make(home, name)
        return _read(home / name)
    except OSError as exc:
        raise StartupError(f"cannot use {home / name}: {exc.strerror}") from None


def _make(home: Path, name: str) -> None:
    """Whole or not at all: whoever is killed half way leaves no key, and of two makers one wins."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        hidden = home / write_new(folder, secrets.token_bytes(SIZE))
        try:
            with contextlib.suppress(FileExistsError):
                os.link(hidden, home / name)
        finally:
            hidden.unlink()
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(place: Path) -> bytes:
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        key = file.read(SIZE + 1)
    if (
        not stat.S_ISREG(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise StartupError(f"{place} is not its owner's alone", remedy=f"chmod 600 {place}")
    if len(key) != SIZE:
        raise StartupError(
            f"{place} is no key",
            remedy="remove it; what was signed with it is refused then, such as reports of runs under way",
        )
    return key
