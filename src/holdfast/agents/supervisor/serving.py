"""The supervisor's process: one per home, there while somebody needs it."""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import background, daemons, processes
from holdfast.agents.supervisor.service import Service
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker.book import Book

log = logging.getLogger(__name__)

IDLE_S: Final = 600.0  # without workers and callers; whoever comes next starts it again
_LOOK_S: Final = 1.0


async def serve(home: Path, *, idle_s: float = IDLE_S) -> bool:
    """Supervise until nobody needs it any more; False when another process does already."""
    lock = background.only_one(home)
    if lock is None:
        return False
    try:
        with daemons.registered(home, daemons.SUPERVISOR):  # before anybody can ask which version it is
            await _replace_exec_server(home)
            await _supervise(home, idle_s)
    finally:
        os.close(lock)
    return True


async def _supervise(home: Path, idle_s: float) -> None:
    supervisor = Supervisor(home)
    server = Service(supervisor).server
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    try:
        await supervisor.open()
        async with server.listening(background.supervisor_socket(home)):
            needed_at = asyncio.get_running_loop().time()
            while not ended.is_set():
                if supervisor.alive or server.connections:
                    needed_at = asyncio.get_running_loop().time()
                elif asyncio.get_running_loop().time() - needed_at > idle_s:
                    _end_exec_server(home)  # it has nothing to do without workers
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await ended.wait()
    finally:
        await supervisor.aclose()


async def _replace_exec_server(home: Path) -> None:
    """One that runs other code, and owns no worker, makes room for one that runs ours."""
    if any(record.phase != "ended" for record in Book(home)):
        return
    found = daemons.of_role(home, daemons.OWNER)
    if any(background.difference(one) is not None for one in found):
        _end_exec_server(home)
        await processes.left([one.process for one in found], background.START_S)


def _end_exec_server(home: Path) -> None:
    """Who it is, the kernel says."""
    if (process := processes.listener(home / "exec.sock")) is not None:
        processes.send(process, signal.SIGTERM)
