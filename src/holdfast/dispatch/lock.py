"""One dispatcher for each home, and one `up`: locks that their death releases, and that tell who is there."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import daemons
from holdfast.errors import Conflict
from holdfast.local.lock import take_lock

NAME: Final = "dispatcher.lock"
UP: Final = "up.lock"
TRIES: Final = 5  # whoever asks whether there is a dispatcher has the lock for a moment
AGAIN_S: Final = 0.02


@contextlib.asynccontextmanager
async def only_one(home: Path) -> AsyncIterator[None]:
    """Raises Conflict when this home has a dispatcher."""
    async with _held(home, NAME, daemons.DISPATCHER):
        yield


@contextlib.asynccontextmanager
async def only_one_up(home: Path) -> AsyncIterator[None]:
    """Raises Conflict when this home has a dispatcher, or an `up` that is about to have one."""
    async with _held(home, UP, daemons.UP):
        if is_held(home):
            raise _conflict(home)
        yield


@contextlib.asynccontextmanager
async def _held(home: Path, name: str, role: str) -> AsyncIterator[None]:
    fd = os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(TRIES):
            if take_lock(fd):
                break
            await asyncio.sleep(AGAIN_S)
        else:
            raise _conflict(home)
        with daemons.registered(home, role):
            yield
    finally:
        os.close(fd)


def _conflict(home: Path) -> Conflict:
    return Conflict(
        f"there is a dispatcher for {home}", remedy="holdfast status; or give another one another --home"
    )


def is_held(home: Path) -> bool:
    """Whether a dispatcher of this home is alive; what it does is another question."""
    try:
        fd = os.open(home / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not take_lock(fd, shared=True)
    finally:
        os.close(fd)
