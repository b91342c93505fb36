"""Sockets of a command's network namespace, created from outside of it.

The namespace passed us the sockets for a name server and, for each family, two sockets that are neither bound
nor connected (`sandbox/protocol/names.py`). A connection between those two yields a third socket at the
accepting end. All three are then disconnected, which makes them as new. We use the third to listen: it
belongs to the same namespace. So an address gets its listener when its name is resolved, without a process or
a privilege inside.
"""

import ctypes
import socket
import struct
from collections.abc import Sequence
from ctypes import c_int, c_uint, c_void_p
from typing import Final

from holdfast.egress.addresses import Address
from holdfast.sandbox.kernel.kernel import named
from holdfast.sandbox.kernel.sockowner import Kind, find_program

MAX_LOOKS: Final = 64  # lookups of programs, of one command: each walks over all processes
BACKLOG: Final = 256  # connections in the accept queue
_MAKE_S: Final = 0.5  # both ends are ours, on the same loopback
_LOOPBACK: Final[dict[int, str]] = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_FREEBIND: Final = 78  # linux/in6.h: IPV6_FREEBIND; for IPv4 every local address can be bound
_SYN, _ACK = 0x02, 0x10
_ATTACH_FILTER: Final = 26  # asm-generic/socket.h: SO_ATTACH_FILTER
# linux/bpf_common.h: X = length of the IP header; A = the flags behind it; pass SYN without ACK, truncated
_BEGINS: Final = (
    (0xB1, 0, 0, 0),
    (0x50, 0, 0, 13),
    (0x54, 0, 0, _SYN | _ACK),
    (0x15, 0, 1, _SYN),
    (0x06, 0, 0, 128),
    (0x06, 0, 0, 0),
)
_UNSPECIFIED: Final = struct.pack("=HHIQ", 0, 0, 0, 0)  # struct sockaddr of AF_UNSPEC
_connect = named("connect", c_int, c_void_p, c_uint)


class InsideSockets:
    """The sockets of one namespace; `close` closes all of them."""

    def __init__(self, fds: Sequence[int]) -> None:
        """Takes ownership of these descriptors, in the order of `sandbox/protocol/names.py`."""
        self.datagrams, self.stream, self.attempts, *rest = (socket.socket(fileno=fd) for fd in fds)
        _attach_filter(self.attempts)
        self._looked = 0
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {
            first.family: (first, second) for first, second in zip(rest[::2], rest[1::2], strict=True)
        }

    @property
    def families(self) -> frozenset[int]:
        return frozenset(self._pairs)

    def listen(self, address: Address, port: int) -> socket.socket:
        """Create a non-blocking socket that listens there, inside. Raises OSError."""
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        made = self._make(family)
        try:
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, _FREEBIND, 1)
            made.bind((str(address), port))
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        return made

    def find_program(self, kind: Kind, port: int) -> str | None:
        """The program inside that has the socket at this port; None: unknown, or after MAX_LOOKS lookups."""
        if self._looked >= MAX_LOOKS:
            return None
        self._looked += 1
        return find_program(self.datagrams, kind, port)

    def _make(self, family: int) -> socket.socket:
        """Create another socket of the namespace."""
        acceptor, caller = self._pairs[family]
        made: socket.socket | None = None
        try:
            acceptor.settimeout(_MAKE_S)
            caller.settimeout(_MAKE_S)
            acceptor.bind((_LOOPBACK[family], 0))
            acceptor.listen(1)
            caller.connect(acceptor.getsockname()[:2])
            made, _ = acceptor.accept()  # if a process inside connected first, its connection serves as well
            _disconnect(made)
        except OSError:
            if made is not None:
                made.close()
            raise
        finally:
            for sock in (caller, acceptor):
                _disconnect(sock)
        return made

    def close(self) -> None:
        for sock in (
            self.datagrams,
            self.stream,
            self.attempts,
            *(sock for pair in self._pairs.values() for sock in pair),
        ):
            sock.close()


def read_attempt(packet: bytes) -> tuple[str, int] | None:
    """The destination of a packet of `attempts`; None if it does not begin a connection."""
    length = 4 * (packet[0] & 0xF) if packet else 0
    if len(packet) < length + 14 or length < 20 or packet[length + 13] & (_SYN | _ACK) != _SYN:
        return None
    return socket.inet_ntoa(packet[16:20]), int.from_bytes(packet[length + 2 : length + 4])


def _attach_filter(sock: socket.socket) -> None:
    """Let through only packets that begin a connection: all others belong to established connections."""
    program = b"".join(struct.pack("=HBBI", *step) for step in _BEGINS)
    steps = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(_BEGINS), ctypes.addressof(steps))
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, described)


def _disconnect(sock: socket.socket) -> None:
    """Reset a socket: neither connected nor listening, at no port. Raises OSError."""
    address = ctypes.create_string_buffer(_UNSPECIFIED)
    _connect(sock.fileno(), ctypes.addressof(address), len(_UNSPECIFIED))
