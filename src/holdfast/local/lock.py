"""A lock on an open file (`flock`). The kernel releases it when its holder ends in any way."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

AGAIN_S: Final = 0.05


def take_lock(fd: int, *, shared: bool = False) -> bool:
    """Try to take the lock; return whether it is ours. Closing the file releases it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, *, within_s: float) -> bool:
    """Wait for the lock at most `within_s` seconds; return whether it is ours."""
    until = time.monotonic() + within_s
    while not take_lock(fd):
        if time.monotonic() > until:
            return False
        time.sleep(AGAIN_S)
    return True


def lock_folder(user: str) -> Path:
    """The folder below the default home of a user, which no worker sees, whichever home is in use."""
    return Path(user) / ".local" / "state" / "holdfast" / "locks"


def open_lock(name: str, *, user: str, home: Path) -> tuple[int, Path]:
    """Open the file of a lock that all homes of one user share; return its descriptor and path.

    The caller locks the descriptor and closes it. No worker can open the file. If the user's home is not
    writable, the file is in this home instead.

    Raises:
        OSError: the file cannot be created.
    """
    folder = lock_folder(user)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        folder = home / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"{name}.lock"
    return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), place
