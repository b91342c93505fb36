"""The ports of this machine's loopback that a command of `holdfast exec` may reach.

They are served by a process of their own, a fork of ours: whoever uses no ports does not load what they need.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from typing import Final, NoReturn

from holdfast.confine.loopback import DRAIN_S, Loopback
from holdfast.sandbox.kernel import kernel

_STOP_S: Final = DRAIN_S + 3.0  # what was sent right before the end arrives, or is cut off


class Ports:
    """The process that accepts on the listening sockets of one command."""

    def __init__(self, listeners: Sequence[int]) -> None:
        """Takes the sockets over. Raises OSError."""
        self._sock, theirs = socket.socketpair()
        parent = os.getpid()
        try:
            if os.fork() == 0:
                _be(parent, theirs, listeners)
        finally:
            theirs.close()
            for fd in listeners:
                os.close(fd)

    def end(self) -> None:
        """The command has ended: wait until what it sent has arrived."""
        with self._sock:
            self._sock.settimeout(_STOP_S)
            try:
                self._sock.shutdown(socket.SHUT_WR)
                self._sock.recv(1)
            except OSError:
                return  # it is late, or gone; either way it is killed with the rest


def _be(parent: int, told: socket.socket, listeners: Sequence[int]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.die_with_parent(signal.SIGKILL)
        kept = {told.fileno(), *listeners}
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in kept:
                _close(fd)  # a pipe of the command that we hold would never end
        if os.getppid() == parent:
            asyncio.run(_serve(told, listeners))
            code = 0
    finally:
        os._exit(code)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the one that listed them


async def _serve(told: socket.socket, listeners: Sequence[int]) -> None:
    served = Loopback()
    served.open(0, listeners)
    told.setblocking(False)
    await asyncio.get_running_loop().sock_recv(told, 1)
    await served.aclose()
