"""A process that is prepared half-way for a confined command before its plan is known.

It does the half that needs no plan: it is forked, is PID 1 of its namespaces, and has left the host's
network if its kind asks for that. Its mounts are still the host's own. It copies them when it is used, so
the command sees what is mounted at that time. A spare serves one order and ends with the command; unused, it
ends with its maker.

The launcher makes a spare when it has nothing else to do, for the next command. `holdfast exec` makes one
before anything else, and meanwhile loads the modules that plan its command. So modules that only the second
half needs are not imported before the fork.

Standard library only, and little of it.
"""

import errno
import os

from holdfast.light import Final, NamedTuple, NoReturn, Sequence
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.orders import ConfinementKind, Order

_ORDER_FD: Final = 3  # number in a spare; every descriptor above belongs to its maker
_NOT_STARTED: Final = 125  # same as `confined.NOT_STARTED`; unused, since no report says that anything ran


class Spare:
    """A waiting spare; the process that makes it must have one thread."""

    def __init__(self, kind: ConfinementKind) -> None:
        """Raises OSError: the host does not allow it."""
        import _socket as socket

        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uid, gid = os.getuid(), os.getgid()
        try:
            if self._sock.fileno() < _ORDER_FD:  # of the pair, this is the lower number
                raise OSError(errno.EBADF, "a standard stream is closed")
            self.pid = kernel.clone(kernel.CLONE_NEWPID | (kernel.CLONE_NEWUSER if kind.userns else 0))
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
        """Have the spare confine a command as `confined.start` would. Raises OSError if the spare is gone."""
        further = (fd for fd in (listeners_fd, masks_fd) if fd >= 0)
        try:
            orders.send_request(self._sock, request, (*fds, status_fd, *further))
        finally:
            self._sock.close()


class EarlyStart(NamedTuple):
    """A spare for a command whose plan is still being made, and the kind of confinement that it fits."""

    kind: ConfinementKind
    spare: Spare


def begin_early(kind: ConfinementKind) -> EarlyStart | None:
    """Make a spare now; return None if the host refuses: the start itself will report it."""
    try:
        return EarlyStart(kind, Spare(kind))
    except OSError:
        return None


def _wait(kind: ConfinementKind, order_fd: int, *, uid: int, gid: int) -> NoReturn:
    """Run as a spare. A refusal by the host before an order arrives is reported to the order's sender."""
    try:
        os.dup2(order_fd, _ORDER_FD, inheritable=False)
        kernel.close_from(_ORDER_FD + 1)
        _serve(kind, uid=uid, gid=gid)
    finally:  # no exception may return into the maker's code
        os._exit(_NOT_STARTED)


def _serve(kind: ConfinementKind, *, uid: int, gid: int) -> None:
    """Prepare, and carry out one order; return only if no order arrives."""
    import _socket as socket

    from holdfast.sandbox.backends import confined
    from holdfast.sandbox.kernel import namespaces
    from holdfast.sandbox.plan import plan

    weakened: tuple[str, ...] = ()
    refused: OSError | kernel.StageFailed | None = None
    try:
        confined.lead()
        weakened = namespaces.isolate(uid=uid, gid=gid, userns=kind.userns, network_off=kind.network_off)
    except (OSError, kernel.StageFailed) as exc:
        refused = exc
    namespaces.warm()
    received = orders.receive(socket.socket(fileno=_ORDER_FD))
    if received is None:
        return
    request, fds = received
    view = plan.decode(request.plan)
    masks_fd = fds.pop() if view.covers else -1
    listeners_fd = fds.pop() if view.listens else -1
    status_fd = fds.pop()
    try:
        if refused is not None:
            raise refused
        channel = confined.Channel(fds[-1], bool(request.flags & orders.WATCH))
        command = confined.command_of(request, fds)
        confined.run(view, command, weakened, status_fd, listeners_fd, masks_fd, channel)
    except BaseException as exc:
        confined.fail(status_fd, exc)
