"""Ports of the host's loopback, let through into a network namespace that has nothing but its own.

For each port, PID 1 inside listens where the service would be, before it gives up its privileges, and sends
the listening sockets out. The process that accepts on them is outside, so only the command runs inside. The
socket itself identifies the command that a connection comes from.

Standard library only, and little of it: this runs in a forked child of the launcher.
"""

import array
import errno
import fcntl
import os
import socket
from typing import Final

from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.kernel.namespaces import NO_LOOPBACK
from holdfast.sandbox.plan.plan import MAX_LOOPBACK_PORTS, Plan
from holdfast.sandbox.protocol import names
from holdfast.sandbox.protocol.names import MAX_HANDED

MAX_LISTENERS: Final = 2 * MAX_LOOPBACK_PORTS + MAX_HANDED
BACKLOG: Final = 128  # connections that wait while the server is busy or at its limit
_NS_GET_USERNS: Final = 0xB701  # linux/nsfs.h
_NO_IPV6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def hand_out(plan: Plan, weakened: tuple[str, ...], channel: int) -> None:
    """Listen on the plan's ports and send the sockets; `weakened` lists what the view lacks.

    Raises:
        StageFailed: a port cannot be listened on, or the receiver of the sockets is gone.
    """
    if NO_LOOPBACK in weakened:
        raise StageFailed("loopback", errno.ENETDOWN)
    listeners: list[socket.socket] = []
    with Stage("loopback"), socket.socket(fileno=channel) as sock:
        for port in plan.loopback_ports:
            listeners.append(_listen(socket.AF_INET, "127.0.0.1", port))
            try:
                listeners.append(_listen(socket.AF_INET6, "::1", port))
            except OSError as exc:
                if exc.errno not in _NO_IPV6:
                    raise
        fds = array.array("i", [listener.fileno() for listener in listeners])
        sock.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    for listener in listeners:
        listener.close()


def hand_out_from(plan: Plan, process: int, channel: int) -> None:
    """Do the same in the network namespace of a process that another program set up.

    A child enters that namespace for this. The sockets for hosts by name are made there too, if the plan has
    them.

    Raises:
        StageFailed: as `hand_out` does.
    """
    with Stage("names" if plan.by_name else "loopback"):
        network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            kernel.in_child(lambda: _hand_out_in(network, plan, channel))
        finally:
            os.close(network)


def _hand_out_in(network: int, plan: Plan, channel: int) -> None:
    # The owner of the user namespace that a network namespace belongs to has all rights in it, once inside.
    users = fcntl.ioctl(network, _NS_GET_USERNS)
    kernel.enter(users, kernel.CLONE_NEWUSER)
    kernel.enter(network, kernel.CLONE_NEWNET)
    try:
        if plan.by_name:
            names.hand_out((), channel)
        if plan.loopback_ports:
            hand_out(plan, (), channel)
    except StageFailed as exc:
        raise OSError(exc.errno, exc.stage) from None


def _listen(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    # No SO_REUSEPORT: with it the command could listen there as well and take the connections.
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
