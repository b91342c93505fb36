"""A lock on an open file, which ends with its holder however that ends (`flock`)."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

AGAIN_S: Final = 0.05


def take_lock(fd: int, *, shared: bool = False) -> bool:
    """Whether it is ours now; closing the file gives it back."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, *, within_s: float) -> bool:
    """Whether it is ours in time."""
    until = time.monotonic() + within_s
    while not take_lock(fd):
        if time.monotonic() > until:
            return False
        time.sleep(AGAIN_S)
    return True


def lock_folder(user: str) -> Path:
    """Below the default home of a user, which no worker sees, whatever the home is that is used."""
    return Path(user) / ".local" / "state" / "holdfast" / "locks"


def open_lock(name: str, *, user: str, home: Path) -> tuple[int, Path]:
    """The file of a lock that all homes of one user share, to be taken and closed, and where it is.

    It lies where no worker can open it; in this home where that user has nothing to write in.

    Raises:
        OSError: there is no place for it.
    """
    folder = lock_folder(user)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        folder = home / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"{name}.lock"
    return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), place
