"""The launcher: a small single-threaded process that starts and owns every command.

It exists because forking the server is slow (its heap is large) and unsafe (it has threads), and because a
killed server could not clean up its commands. The launcher is started before the heap grows, imports only a
few standard modules and its own protocol, and owns every child:

* It is a child subreaper: descendants that lose their parent become its children, so it can end
  them all. When its socket closes, for whatever reason, it kills everything below it and exits.
* Each command is a session leader with its own process group. Only the launcher reaps, and only
  the launcher signals, so a process group number cannot have been reused when it is signalled.

Orders and reports are datagrams on one SOCK_SEQPACKET socket (`orders.py`). A start is answered with a pid
once exec happened, or with the errno that stopped it, so a failed start cannot be mistaken for a failed
command. Nothing here assumes that the peer is the process that made the launcher.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from holdfast.sandbox.backends import bwrapped, landlocked
from holdfast.sandbox.kernel import namespaces
from holdfast.sandbox.kernel.kernel import StageFailed
from holdfast.sandbox.launcher.children import Children
from holdfast.sandbox.launcher.spare import Spare
from holdfast.sandbox.protocol import loopback, orders
from holdfast.sandbox.protocol.orders import ConfinementKind, Event, Order
from holdfast.sandbox.watcher import broker, listener, maskguard

_FORKED_WITH: Final = (
    broker,
    bwrapped,
    landlocked,
    loopback,
    maskguard,
)  # imported now, so that forked children find them loaded
_QUIET_MS: Final = 5  # delay before a spare is made: at once, it would slow down the command just started


class Launcher(Children):
    """The loop: receives orders, sends reports, reaps children."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wanted: set[ConfinementKind] = set()  # kinds of spares to make when there is nothing else to do
        self._poll = select.poll()
        self._wake, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)  # we end with the socket, not with a terminal
        super().__init__()

    def run(self) -> None:
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        try:
            while True:
                look_s = self._look_at_limits() if self._limited or self._emptying else None
                waits: list[float] = [_QUIET_MS] if self._wanted else []
                waits += [] if look_s is None else [look_s * 1000]
                ready = [fd for fd, _ in self._poll.poll(min(waits, default=None))]
                for fd in ready:
                    if self._is_ours(fd):
                        self._on_readable(fd)
                if self._wake in ready:
                    os.read(self._wake, 4096)
                    self._reap()
                if self._sock.fileno() in ready and not self._obey():
                    return
                if not ready and self._wanted:
                    self._make_spare()
        except OSError:
            return  # the socket broke: treated as closed
        finally:
            for fd in (self._wake, signal.set_wakeup_fd(-1)):  # the search for processes needs descriptors
                os.close(fd)
            self._end_everything()

    def _obey(self) -> bool:
        try:
            received = orders.receive(self._sock)
        except orders.DescriptorsLost as exc:  # only this start fails, not everything that we own
            self._report(Event(orders.STARTED, orders.id_of(exc.data), 0, errno.EMFILE))
            return True
        if received is None:
            return False
        request, fds = received
        if request.op == orders.START:
            self._start(request, fds)
        elif request.op == orders.BE_WATCHER:
            self._start_watcher(request, fds)
        elif request.op == orders.SIGNAL:
            self._signal(lambda group: group.id == request.id, request.signal)
        elif request.op == orders.END_OWNER:
            self._signal(lambda group: group.owner == request.owner, signal.SIGKILL)
        return True

    def _start_watcher(self, request: Order, fds: list[int]) -> None:
        try:
            pid = self._fork_watcher(fds[0], request)
        except OSError as exc:
            self._report(Event(orders.STARTED, request.id, 0, exc.errno or errno.EAGAIN))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._report(Event(orders.STARTED, request.id, pid))

    def _on_confined(self, kind: ConfinementKind) -> None:
        self._wanted.add(kind)

    def _await(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)

    def _make_spare(self) -> None:
        """Make a spare of a kind that has just worked: a refusing host is not tried again and again."""
        kind = self._wanted.pop()
        if kind not in self._spares:
            with contextlib.suppress(OSError, StageFailed):  # then the next start reports why
                self._spares[kind] = Spare(kind)

    def _report(self, event: Event, fds: Sequence[int] = ()) -> None:
        if fds:
            socket.send_fds(self._sock, [orders.pack_event(event)], fds)
        else:
            self._sock.send(orders.pack_event(event))


def main() -> None:
    """Run as the launcher on the socket whose descriptor is the last argument."""
    os.setsid()  # a signal to the server's group, even SIGKILL, must not end us before our children
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.set_inheritable(False)  # a process that inherits it could give orders, and keep us alive
    namespaces.warm()
    landlocked.warm()
    listener.warm()
    gc.disable()  # nothing here makes cycles, and a collection in a forked child copies every page it touches
    gc.freeze()
    Launcher(sock).run()
