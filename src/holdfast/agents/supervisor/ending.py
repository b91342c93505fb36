"""Ending the daemons of a home, and everything they started."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import background, daemons, messages, processes
from holdfast.agents.supervisor.daemons import Daemon
from holdfast.agents.supervisor.processes import ProcessInfo
from holdfast.errors import HoldfastError

GONE_S: Final = 15.0  # for a daemon to end by itself: what it owns has to end first
LEAVE_S: Final = 60.0  # for a dispatcher to give its runs back, with their workers and teardowns
LOCK_TRIES: Final = 50  # of a tenth of a second: whoever asks whether there is a supervisor has it a moment


async def end(
    home: Path,
    ending: Sequence[Daemon],
    signum: signal.Signals = signal.SIGTERM,
    *,
    within_s: float = GONE_S,
    hasten: asyncio.Event | None = None,
) -> None:
    """End daemons with everything below them: asked first, and killed when that takes too long.

    A daemon may have been started by another one; those that are not named here are left alone.
    """
    there = {one.process for one in ending}
    others = {one.process for one in daemons.find(home)} - there
    family = _with_below(there) - _with_below(others)
    for process in there:
        processes.send(process, signum)
    stubborn = await processes.left(there, within_s, hasten)
    family |= _with_below(stubborn) - _with_below(others)
    for process in stubborn:
        processes.send(process, signal.SIGKILL)
    # What they owned ends on its own once they are gone: launchers see their socket close.
    for process in await processes.left(family, within_s, hasten):
        processes.send(process, signal.SIGKILL)
    await processes.left(family, GONE_S)


async def end_background(home: Path, hasten: asyncio.Event | None = None) -> bool:
    """End the supervisor and the exec server that owns the workers, with all workers that are left.

    False when somebody started a supervisor again meanwhile, which is left alone.
    """
    await end(home, daemons.of_role(home, daemons.SUPERVISOR), hasten=hasten)
    lock: int | None = None
    for _ in range(LOCK_TRIES):
        if (lock := background.only_one(home)) is not None:
            break
        await asyncio.sleep(0.1)
    if lock is None:
        return False
    try:
        await end(home, daemons.of_role(home, daemons.OWNER), hasten=hasten)
    finally:
        os.close(lock)
    return True


async def stop_workers(home: Path, ids: Sequence[str], *, grace_s: float) -> None:
    """Through the supervisor, if there is one, so that each one's record says how it ended."""
    try:
        client = await background.connect(home)
    except HoldfastError:
        return
    try:

        async def stop(id: str) -> None:
            with contextlib.suppress(HoldfastError):  # it ended meanwhile, or the supervisor did
                asked = messages.StopParams(id, grace_s)
                await client.call(messages.STOP, asked, timeout_s=GONE_S)

        await asyncio.gather(*(stop(id) for id in ids))
    finally:
        await client.aclose()


def processes_of(home: Path) -> list[ProcessInfo]:
    """Every process of the home: its daemons and all that descends from them."""
    return sorted(_with_below({one.process for one in daemons.find(home)}))


def _with_below(some: Collection[ProcessInfo]) -> set[ProcessInfo]:
    return {*some, *(child for one in some for child in processes.below(one))}
