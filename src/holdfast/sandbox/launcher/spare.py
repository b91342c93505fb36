"""A spare: a process that has gone half the way to a confined command before anybody asks for one.

The half that needs no plan: it is forked, PID 1 of its namespaces, and without the host's network.
Its mounts are still the host's own; it takes its copy of them when it is used, so it shows the
command what is mounted then, not what was mounted when it was made.

Standard library only, and little of it: this runs in the launcher and in a forked child of it.
"""

import os
import socket
from collections.abc import Sequence
from typing import Final, NoReturn

from holdfast.sandbox.backends import confined
from holdfast.sandbox.backends.confined import ConfinementKind
from holdfast.sandbox.kernel import kernel, namespaces
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol.orders import Request, receive, send_request

_ORDER_FD: Final = 3  # everything above belongs to the launcher


class Spare:
    """One such process. It serves one order and ends with the command, or unused with the launcher."""

    def __init__(self, kind: ConfinementKind) -> None:
        """Raises OSError or SetupFailed."""
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

    def use(self, request: Request, fds: Sequence[int], *, status_fd: int, listeners_fd: int = -1) -> None:
        """Let it confine a command as `confined.start` would; raises OSError when it is gone."""
        listeners = (listeners_fd,) if listeners_fd >= 0 else ()
        with self._sock:
            send_request(self._sock, request, (*fds, status_fd, *listeners))


def _wait(kind: ConfinementKind, order_fd: int, *, uid: int, gid: int) -> NoReturn:
    status_fd = -1
    try:
        os.dup2(order_fd, _ORDER_FD, inheritable=False)
        kernel.close_from(_ORDER_FD + 1)
        confined.lead()
        weakened = namespaces.isolate(uid=uid, gid=gid, userns=kind.userns, network_off=kind.network_off)
        received = receive(socket.socket(fileno=_ORDER_FD))
        if received is None:
            os._exit(confined.NOT_STARTED)
        request, fds = received
        view = plan.decode(request.plan)
        listeners_fd = fds.pop() if view.loopback_ports else -1
        status_fd = fds.pop()
        watch_fd = confined.watch_of(request, fds)
        confined.run(view, confined.command_of(request, fds), weakened, status_fd, listeners_fd, watch_fd)
    except BaseException as exc:  # whatever it is, it must not return into the launcher's loop
        confined.report_failure(status_fd, exc)
        os._exit(confined.NOT_STARTED)
