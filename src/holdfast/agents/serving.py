"""The supervisor's process: one per home, there while somebody needs it."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final

from holdfast.agents import background
from holdfast.agents.control import Server
from holdfast.agents.service import Service
from holdfast.agents.supervisor import Supervisor

log = logging.getLogger(__name__)

IDLE_S: Final = 600.0  # without workers and callers; whoever comes next starts it again
_LOOK_S: Final = 1.0


async def serve(home: Path, *, idle_s: float = IDLE_S) -> bool:
    """Supervise until nobody needs it any more; False when another process does already."""
    lock = background.only_one(home)
    if lock is None:
        return False
    supervisor = Supervisor(home)
    server = Server(Service(supervisor).methods)
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    try:
        await supervisor.open()
        async with await server.listen(background.supervisor_socket(home)):
            needed_at = asyncio.get_running_loop().time()
            while not ended.is_set():
                if supervisor.alive or server.connections:
                    needed_at = asyncio.get_running_loop().time()
                elif asyncio.get_running_loop().time() - needed_at > idle_s:
                    _end_exec_server(home)
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await ended.wait()
            await server.aclose()
    finally:
        await supervisor.aclose()
        os.close(lock)
    return True


def _end_exec_server(home: Path) -> None:
    """It has nothing to do without workers; who it is, the kernel says."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(home / "exec.sock"))
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid == os.getuid():
            os.kill(pid, signal.SIGTERM)
