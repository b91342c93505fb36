"""The watch over a command of `holdfast exec`: as a server's, on a loop without coroutines."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from holdfast.confine.starts import Exit, Sandbox
from holdfast.confine.watching import Watch, unwatchable
from holdfast.loop import Loop
from holdfast.wire.processes import WatchReport


class Owner(Protocol):
    """Whoever owns the command, and forks its watcher."""

    loop: Loop

    def start_watcher(self, fd: int, on_exit: Callable[[Exit], None]) -> int: ...
    def signal(self, id_: int, signum: int) -> None: ...


def begin(owner: Owner, sandbox: Sandbox, name: str) -> "tuple[LocalWatch, None] | tuple[None, WatchReport]":
    """A watch for a command that is about to be started in this sandbox; or why there is none."""
    why = unwatchable(sandbox)
    if why is None:
        try:
            return LocalWatch(owner, sandbox, name), None
        except OSError as exc:
            why = f"the watcher cannot be started: {exc}"
    return None, WatchReport(False, why)


class LocalWatch(Watch):
    """Its watcher is a fork of this process."""

    def __init__(self, owner: Owner, sandbox: Sandbox, name: str) -> None:
        """Raises OSError."""
        self._owned = owner
        super().__init__(owner, 0, sandbox, name, lambda _: None, loop=owner.loop)
        self._fork()

    def reported(self) -> WatchReport:
        """Is the command, whose start has been answered, watched?"""
        self._owned.loop.run_until(self._report.done)
        report: WatchReport = self._report.result()
        return report

    def _new_report(self) -> "Any":
        return Future()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._joined(self._owned.start_watcher(theirs.fileno(), self._died), ours)

    def _again(self) -> None:
        try:
            self._fork()
        except OSError:
            self._died(Exit(1))
