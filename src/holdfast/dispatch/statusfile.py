"""HOME/dispatcher.json: what the dispatcher of a home last said of itself.

The file outlives its dispatcher, and is never what says that there is one: the lock is.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from holdfast.dispatch import lock
from holdfast.dispatch.rules.dispatcherstatus import Told

NAME: Final = "dispatcher.json"


def write(home: Path, told: Told) -> None:
    """Whole or not at all."""
    hidden = home / f"{NAME}.new"
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.json.encode(told))
    hidden.rename(home / NAME)


def clear(home: Path) -> None:
    """What a predecessor said is not said by whoever comes now."""
    (home / NAME).unlink(missing_ok=True)


def read(home: Path) -> tuple[bool, Told | None]:
    """Whether there is a dispatcher, and what it, or without one the last, said."""
    alive = lock.is_held(home)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return alive, msgspec.json.decode((home / NAME).read_bytes(), type=Told)
    return alive, None
