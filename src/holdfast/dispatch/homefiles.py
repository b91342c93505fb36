"""The files of a dispatcher in its home: a lock that its death releases, and the status it last wrote.

There is one dispatcher for each home, and one `up`. HOME/dispatcher.json outlives its dispatcher, so it never
proves that one is running: the lock does.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.supervisor import daemons
from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport
from holdfast.errors import Conflict
from holdfast.local.atomicfile import write_below
from holdfast.local.lock import take_lock

LOCK: Final = "dispatcher.lock"
UP: Final = "up.lock"
STATUS: Final = "dispatcher.json"
TRIES: Final = 5  # a process that checks whether there is a dispatcher holds the lock for a moment
AGAIN_S: Final = 0.02


@contextlib.asynccontextmanager
async def only_one(home: Path) -> AsyncIterator[None]:
    """Raises Conflict when this home has a dispatcher."""
    async with _hold(home, LOCK, daemons.DISPATCHER):
        yield


@contextlib.asynccontextmanager
async def only_one_up(home: Path) -> AsyncIterator[None]:
    """Raises Conflict when this home has a dispatcher, or an `up` that is about to have one."""
    async with _hold(home, UP, daemons.UP):
        if is_held(home):
            raise _already_there(home)
        yield


@contextlib.asynccontextmanager
async def _hold(home: Path, name: str, role: str) -> AsyncIterator[None]:
    fd = os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(TRIES):
            if take_lock(fd):
                break
            await asyncio.sleep(AGAIN_S)
        else:
            raise _already_there(home)
        with daemons.registered(home, role):
            yield
    finally:
        os.close(fd)


def _already_there(home: Path) -> Conflict:
    return Conflict(f"a dispatcher runs for {home} already", remedy="holdfast status")


def is_held(home: Path) -> bool:
    """Whether a dispatcher of this home is alive; this does not say whether it makes progress."""
    try:
        fd = os.open(home / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not take_lock(fd, shared=True)
    finally:
        os.close(fd)


class StatusFile:
    """The status file of a dispatcher. An older report never overwrites a newer one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._writing = threading.Lock()
        self._last = 0
        self._written = 0

    def number(self) -> int:
        """The sequence number for a report that is made now."""
        self._last += 1
        return self._last

    def write(self, told: DispatcherReport, number: int) -> None:
        """Write the report atomically.

        Nothing is written if a newer report is there: the thread of a cancelled caller may come late.
        """
        with self._writing:
            if number > self._written:
                write_below(self._home, (STATUS,), msgspec.json.encode(told))
                self._written = number


def clear_status(home: Path) -> None:
    """Remove the status of the previous dispatcher, so that it is not taken for the new one's."""
    (home / STATUS).unlink(missing_ok=True)


def read_status(home: Path) -> tuple[bool, DispatcherReport | None]:
    """Whether a dispatcher is running, and its last report, or that of the last one when none is running."""
    alive = is_held(home)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return alive, decoding.decode((home / STATUS).read_bytes(), DispatcherReport)
    return alive, None
