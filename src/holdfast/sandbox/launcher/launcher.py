"""The launcher: a small single-threaded process that starts and owns every command.

It exists because forking the server is slow (its heap is large), unsafe (it has threads) and
leaves nobody to clean up when the server is killed. The launcher is started before the heap
grows, imports only a few standard modules and its own protocol, and owns every child:

* It is a child subreaper: descendants that lose their parent become its children, so it can end
  them all. When its socket closes, for whatever reason, it kills everything below it and exits.
* Each command is a session leader with its own process group. Only the launcher reaps, and only
  the launcher signals, so a process group number can not have been reused when it is signalled.

Orders and reports are datagrams on one SOCK_SEQPACKET socket (`orders.py`). A start is answered
with a pid once exec happened, or with the errno that stopped it, so a failed start can not be
mistaken for a failed command. Nothing here assumes that the peer is the process that made the
launcher.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from holdfast.sandbox.backends import bwrapped, confined, landlocked
from holdfast.sandbox.backends.confined import ConfinementKind
from holdfast.sandbox.kernel import kernel, namespaces
from holdfast.sandbox.kernel.kernel import StageFailed
from holdfast.sandbox.launcher.children import Children
from holdfast.sandbox.plan import covers, plan
from holdfast.sandbox.protocol import loopback, orders
from holdfast.sandbox.protocol.orders import Event, Order
from holdfast.sandbox.watcher import broker, listener, maskguard

_FORKED_WITH: Final = (
    broker,
    bwrapped,
    landlocked,
    loopback,
    maskguard,
)  # what a child needs it finds imported
_QUIET_MS: Final = 5  # before a spare is made: made at once it would slow down the command just started
_ORDER_FD: Final = 3  # of a spare; everything above belongs to the launcher


class Spare:
    """A process that has gone half the way to a confined command before anybody asks for one.

    The half that needs no plan: it is forked, PID 1 of its namespaces, and without the host's network.
    Its mounts are still the host's own; it takes its copy of them when it is used, so it shows the
    command what is mounted then. It serves one order and ends with the command, or unused with the launcher.
    """

    def __init__(self, kind: ConfinementKind) -> None:
        """Raises OSError or StageFailed."""
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uid, gid = os.getuid(), os.getgid()
        try:
            self.pid = namespaces.fork(userns=kind.userns)
        except BaseException:
            self._sock.close()
            theirs.close()
            raise
        if self.pid == 0:
            _wait(kind, theirs.detach(), uid=uid, gid=gid)
        theirs.close()

    def use(
        self,
        request: Order,
        fds: Sequence[int],
        *,
        status_fd: int,
        listeners_fd: int = -1,
        masks_fd: int = -1,
    ) -> None:
        """Let it confine a command as `confined.start` would; raises OSError when it is gone."""
        further = (fd for fd in (listeners_fd, masks_fd) if fd >= 0)
        with self._sock:
            orders.send_request(self._sock, request, (*fds, status_fd, *further))


def _wait(kind: ConfinementKind, order_fd: int, *, uid: int, gid: int) -> NoReturn:
    status_fd = -1
    try:
        os.dup2(order_fd, _ORDER_FD, inheritable=False)
        kernel.close_from(_ORDER_FD + 1)
        confined.lead()
        weakened = namespaces.isolate(uid=uid, gid=gid, userns=kind.userns, network_off=kind.network_off)
        received = orders.receive(socket.socket(fileno=_ORDER_FD))
        if received is None:
            os._exit(confined.NOT_STARTED)
        request, fds = received
        view = plan.decode(request.plan)
        masks_fd = fds.pop() if covers.needs_covers(view) else -1
        listeners_fd = fds.pop() if view.loopback_ports else -1
        status_fd = fds.pop()
        channel = confined.Channel(fds[-1], bool(request.flags & orders.WATCH))
        command = confined.command_of(request, fds)
        confined.run(view, command, weakened, status_fd, listeners_fd, masks_fd, channel)
    except BaseException as exc:  # whatever it is, it must not return into the launcher's loop
        confined.fail(status_fd, exc)


class Launcher(Children):
    """The loop: orders in, reports out, children reaped."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._spares: dict[ConfinementKind, Spare] = {}
        self._wanted: set[ConfinementKind] = set()  # spares to make when it is quiet
        self._poll = select.poll()
        self._wake, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)  # our life ends with the socket, not with a terminal
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
            return  # the socket broke: the same as closed
        finally:
            self._end_everything()

    def _obey(self) -> bool:
        received = orders.receive(self._sock)
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

    def _spawn_confined(
        self,
        kind: ConfinementKind,
        view: plan.Plan,
        request: Order,
        fds: list[int],
        report: int,
        listeners: int,
        masks: int,
        enter: Callable[[], None] | None,
    ) -> int:
        """The pid of the process around the command, a spare one if there is one and it needs no limits."""
        spare = None if enter else self._spares.pop(kind, None)
        if spare is not None:
            try:
                spare.use(request, fds, status_fd=report, listeners_fd=listeners, masks_fd=masks)
            except OSError:
                pass  # something ended it; it is reaped like everything else
            else:
                return spare.pid
        return super()._spawn_confined(kind, view, request, fds, report, listeners, masks, enter)

    def _on_confined(self, kind: ConfinementKind) -> None:
        self._wanted.add(kind)

    def _await(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)

    def _make_spare(self) -> None:
        """Only of a kind that has just worked, so a host that refuses is not asked again and again."""
        kind = self._wanted.pop()
        if kind not in self._spares:
            with contextlib.suppress(OSError, StageFailed):  # then the next start says why
                self._spares[kind] = Spare(kind)

    def _report(self, event: Event, fds: Sequence[int] = ()) -> None:
        if fds:
            socket.send_fds(self._sock, [orders.pack_event(event)], fds)
        else:
            self._sock.send(orders.pack_event(event))


def main() -> None:
    """Be the launcher on the socket whose descriptor is the last argument."""
    os.setsid()  # a signal to the server's group, even SIGKILL, must not end us before our children
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.set_inheritable(False)  # whoever holds it could give orders, and keep us alive
    namespaces.warm()
    landlocked.warm()
    listener.warm()
    gc.disable()  # nothing here makes cycles, and a collection in a forked child copies every page it touches
    gc.freeze()
    Launcher(sock).run()
