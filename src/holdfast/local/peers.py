"""Which user is at the other end of a connection made on this machine.

A unix socket knows. For TCP on loopback both ends are sockets of this kernel, so the peer's
own socket can be looked up by its addresses and asked for its owner: through sock_diag, which
answers for exactly one socket, or else in the tables under /proc/net.

Only an established socket that a process still holds counts. Once it is closed the kernel
reports owner 0 for what is left of it, and a stranger who writes a request and hangs up at
once would pass for root.
"""

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.local.confinement import HasOptions

NETLINK_SOCK_DIAG: Final = 4  # linux/netlink.h
SOCK_DIAG_BY_FAMILY: Final = 20  # linux/sock_diag.h
NLM_F_REQUEST: Final = 1  # without NLM_F_DUMP: the one socket with this id
TCP_ESTABLISHED: Final = 1  # net/tcp_states.h
ANY_COOKIE: Final = 0xFFFFFFFF  # INET_DIAG_NOCOOKIE

_NLMSGHDR = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2 up to its socket id
_SOCKET_ID = struct.Struct(
    "=4s16s16sIII"
)  # ports (both in network order), source, destination, interface, cookie
_REPLY = struct.Struct("=BBBB48sIIIII")  # inet_diag_msg

_NETLINK_TIMEOUT_S: Final = 1.0  # the kernel answers inside send(); this only stops a wait for a lost message
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


class _End(NamedTuple):
    """One end of a connection, however its address was spelled."""

    address: bytes  # 4 or 16
    port: int


class PeerSocket(NamedTuple):
    """The other end of a TCP connection on this machine."""

    uid: int
    inode: int  # by which /proc/PID/fd names it


def is_allowed(uid: int | None, *, own: int) -> bool:
    """Ourselves and root, who could do anything to us anyway; not somebody we could not identify."""
    return uid is not None and uid in (own, 0)


def uid_of_unix_peer(sock: HasOptions) -> int:
    """The effective user id the peer had when it connected."""
    return _credentials(sock)[1]


def pid_of_unix_peer(sock: HasOptions) -> int:
    """Who listens at the other end of this connection, by the kernel's word."""
    return _credentials(sock)[0]


def _credentials(sock: HasOptions) -> tuple[int, int]:
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
    pid, uid, _ = struct.unpack("=iII", packed)
    return int(pid), int(uid)


def uid_of_peer(local: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """The owner of the peer's socket of a loopback TCP connection, or None if that cannot be told."""
    found = socket_of_peer(local, peer)
    return None if found is None else found.uid


def socket_of_peer(local: tuple[str, int], peer: tuple[str, int]) -> PeerSocket | None:
    """The peer's socket of a loopback TCP connection, or None if that cannot be told.

    `local` and `peer` are this side's own and remote address, as a socket reports them.
    """
    if sys.platform != "linux":
        return None
    here, there = _end(local), _end(peer)
    if len(here.address) != len(there.address):
        return None
    found = _ask_kernel(here, there)
    if found is not None:
        return found
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as lines:
                found = _find(lines, here, there)
        except OSError:
            continue
        if found is not None:
            return found
    return None


def find_socket(table_text: str, local: tuple[str, int], peer: tuple[str, int]) -> PeerSocket | None:
    """The socket at `peer` connected to `local`, in the text of /proc/net/tcp or tcp6."""
    return _find(table_text.splitlines(), _end(local), _end(peer))


def read_socket(answer: bytes, local: tuple[str, int], peer: tuple[str, int]) -> PeerSocket | None:
    """The socket at `peer` connected to `local`, if that is what a sock_diag answer is about."""
    return _read_answer(answer, _end(local), _end(peer))


def _find(lines: Iterable[str], here: _End, there: _End) -> PeerSocket | None:
    port = f"{there.port:04X}"
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or not fields[1].endswith(port):  # most lines end here, and so does the heading
            continue
        if int(fields[3], 16) != TCP_ESTABLISHED or fields[9] == "0":
            continue
        if _table_end(fields[1]) == there and _table_end(fields[2]) == here:
            return PeerSocket(int(fields[7]), int(fields[9]))
    return None


def _end(address: tuple[str, int]) -> _End:
    host, port = address[:2]  # IPv6 adds flow and scope
    return _canonical(ipaddress.ip_address(host.partition("%")[0]).packed, port)


def _table_end(text: str) -> _End:
    """`0100007F:1F90`: each 32-bit word of the address as the processor reads it, the port as a number."""
    words, _, port = text.partition(":")
    packed = b"".join(
        int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8)
    )
    return _canonical(packed, int(port, 16))


def _canonical(packed: bytes, port: int) -> _End:
    """An IPv4 address inside IPv6 is the IPv4 address: the two ends may be of different families."""
    mapped = len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff")
    return _End(packed[12:] if mapped else packed, port)


def _ask_kernel(here: _End, there: _End) -> PeerSocket | None:
    family = socket.AF_INET if len(there.address) == 4 else socket.AF_INET6
    query = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << TCP_ESTABLISHED) + _SOCKET_ID.pack(
        struct.pack("!HH", there.port, here.port), there.address, here.address, 0, ANY_COOKIE, ANY_COOKIE
    )
    head = _NLMSGHDR.pack(_NLMSGHDR.size + len(query), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
            link.settimeout(_NETLINK_TIMEOUT_S)
            link.sendto(head + query, (0, 0))
            answer, (sender, _) = link.recvfrom(4096)
    except OSError:
        return None  # no netlink here: some containers and other kernels
    return _read_answer(answer, here, there) if sender == 0 else None  # 0 is the kernel


def _read_answer(answer: bytes, here: _End, there: _End) -> PeerSocket | None:
    if len(answer) < _NLMSGHDR.size + _REPLY.size:
        return None
    _, kind, _, _, _ = _NLMSGHDR.unpack_from(answer)
    if kind != SOCK_DIAG_BY_FAMILY:
        return None
    family, state, _, _, packed, _, _, _, uid, inode = _REPLY.unpack_from(answer, _NLMSGHDR.size)
    ports, source, destination, _, _, _ = _SOCKET_ID.unpack(packed)
    from_port, to_port = struct.unpack("!HH", ports)
    size = 4 if family == socket.AF_INET else 16
    ends = _canonical(source[:size], from_port), _canonical(destination[:size], to_port)
    # Without an exact match the kernel answers with a listener on the peer's port.
    if ends != (there, here) or state != TCP_ESTABLISHED or inode == 0:
        return None
    return PeerSocket(int(uid), int(inode))
