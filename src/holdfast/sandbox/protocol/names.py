"""A network namespace in which hosts have addresses of their own, and the sockets to serve them.

Two blocks of addresses are local there: a process that connects to one of them reaches a socket of the same
namespace, or is refused. PID 1 makes the sockets of a name server, and for each family two sockets that are
neither bound nor connected; all are sent out. A socket stays in the namespace that it was made in. So a
process outside that has these can make more of them (`egress/inside.py`), and only the command runs inside.

Standard library only, and little of it: this runs in a forked child of the launcher.
"""

import errno
import os
import struct

from holdfast.light import Final, Sequence
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.plan.plan import NAME_SERVER

QUESTIONS: Final = 2  # the first two of the sockets that are sent out: they receive the name queries
MAX_HANDED: Final = 7  # queries by datagram, queries by stream, connection attempts, two of each family
PORT: Final = 53
BLOCKS: Final = (  # family, address, length of the prefix; `egress/names.py` has them too
    (2, bytes((198, 18, 0, 0)), 15),
    (10, bytes.fromhex("fd686f6c646661730000000000000000"), 64),
)
_BACKLOG: Final = 32
# linux/netlink.h, linux/rtnetlink.h
_NEW_ROUTE, _REQUEST, _ACK, _CREATE = 24, 1, 4, 0x400
_TABLE_LOCAL, _BY_ADMIN, _HOST_SCOPE, _LOCAL = 255, 4, 254, 2
_DESTINATION, _INTERFACE = 1, 4
_LO: Final = 1  # the first interface of every network namespace
_ROUTE: Final = struct.Struct("=IHHIIBBBBBBBBI")
_ERROR: Final = struct.Struct("=IHHIIi")


def hand_out(weakened: tuple[str, ...], channel: int) -> None:
    """Make the blocks local, and send the sockets; `weakened` lists what the view lacks.

    Raises:
        StageFailed: names cannot be served here.
    """
    from holdfast.sandbox.kernel.namespaces import NO_LOOPBACK  # it is loaded in this process

    if NO_LOOPBACK in weakened:
        raise StageFailed("names", errno.ENETDOWN)
    import _socket as socket

    kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC
    with Stage("names"):
        for family, address, length in BLOCKS:
            try:
                add_local_route(family, address, length)
            except OSError:
                if family == socket.AF_INET:
                    raise  # without IPv6, hosts have IPv4 addresses only
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        stream = socket.socket(socket.AF_INET, kind)
        for sock in (datagrams, stream):
            sock.bind((NAME_SERVER, PORT))
        stream.listen(_BACKLOG)
        # Receives every incoming IPv4 TCP packet: its holder sees connection attempts that no socket
        # accepts.
        attempts = socket.socket(
            socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP
        )
        pair = (socket.socket(socket.AF_INET, kind), socket.socket(socket.AF_INET, kind))
        made = [datagrams, stream, attempts, *pair]
        try:
            made += [socket.socket(socket.AF_INET6, kind), socket.socket(socket.AF_INET6, kind)]
        except OSError as exc:
            if exc.errno != errno.EAFNOSUPPORT:
                raise
        fds = struct.pack(f"{len(made)}i", *(sock.fileno() for sock in made))
        out = socket.socket(fileno=os.dup(channel))
        out.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        for sock in (*made, out):
            sock.close()


def count_handed(fds: Sequence[int]) -> int:
    """The number of sockets for names: they come first, and the last of them are bound to no port."""
    import _socket as socket

    count = 0
    for number, fd in enumerate(fds[:MAX_HANDED], 1):
        sock = socket.socket(fileno=os.dup(fd))
        if sock.getsockname()[1] == 0:
            count = number
        sock.close()
    return count


def add_local_route(family: int, address: bytes, length: int) -> None:
    """Make every address of a block local to this namespace. Raises OSError."""
    import _socket as socket

    attributes = struct.pack("=HH", 4 + len(address), _DESTINATION) + address
    attributes += struct.pack("=HHI", 8, _INTERFACE, _LO)
    head = _ROUTE.pack(
        _ROUTE.size + len(attributes),
        *(_NEW_ROUTE, _REQUEST | _ACK | _CREATE, 1, 0),
        *(family, length, 0, 0, _TABLE_LOCAL, _BY_ADMIN, _HOST_SCOPE, _LOCAL, 0),
    )
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        sock.send(head + attributes)
        answer = sock.recv(4096)
    finally:
        sock.close()
    code = -_ERROR.unpack_from(answer)[-1]
    if code and code != errno.EEXIST:
        raise OSError(code, os.strerror(code))
