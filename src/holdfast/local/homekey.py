"""Keys of a home, readable by its owner only. No policy shows a home, so no confined command can read them.

HOME/handoff.key    signs the tokens of runs; created once
HOME/access.key     the token that clients present to the daemons of the home; renewed by each supervisor
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from holdfast.errors import StartupError
from holdfast.local.atomicfile import replace_file, write_new

HANDOFF: Final = "handoff.key"
ACCESS: Final = "access.key"
SIZE: Final = 32  # bytes, as the hash it is used with


def load(home: Path, name: str = HANDOFF) -> bytes:
    """Return the key of this name in this home; the first caller creates it.

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


def access_token(home: Path) -> str:
    """Return the token that the daemons of this home require now.

    Raises:
        StartupError: as `load` does.
    """
    return load(home, ACCESS).hex()


def rotate_access(home: Path) -> None:
    """Replace the token. Daemons read it anew for each client, so connected clients are not disconnected.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(home / ACCESS, secrets.token_bytes(SIZE))


def _make(home: Path, name: str) -> None:
    """Create the key atomically: a process killed half way leaves no key, and of two creators one wins."""
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
