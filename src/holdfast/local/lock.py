"""A lock on an open file, which ends with its holder however that ends (`flock`)."""

import fcntl
import time
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
