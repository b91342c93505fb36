"""Ports of this machine's loopback on which a daemon of Holdfast listens.

A confined command may be given ports of services; a process of ours that is not confined connects it to them.
A daemon would take that process for its user, so such a port is never forwarded. A socket of a daemon is
recognised by a descriptor, named after the socket's inode, that the daemon holds besides (`mark_listener`):
any process could have the same name or command line.

Daemons of another user need no check: they refuse us.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from holdfast.errors import UsageError
from holdfast.local.peers import find_holders, read_link

MARK: Final = "holdfast-listener-"  # and the inode of the socket
TCP_LISTEN: Final = "0A"  # net/tcp_states.h, as the tables print it
MAX_KNOWN: Final = 1024  # listening sockets whose result is cached
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _DUMP, _DONE = 4, 20, 1, 0x300, 3
_NETLINK: Final = struct.Struct("=IHHII")
_DIAG_REQUEST: Final = struct.Struct("=BBBBI48x")
_DIAG_ANSWER: Final = struct.Struct("=4xH58xII")  # struct inet_diag_msg: port, user, inode
_MAX_ANSWER: Final = 64 * 1024
_ANSWER_S: Final = 2.0  # the kernel answers at once
_KNOWN: Final[
    dict[int, bool]
] = {}  # by inode, which no two sockets of a boot share; the owner of a socket never changes


class Listener(NamedTuple):
    uid: int
    inode: int


@contextlib.contextmanager
def mark_listener(sock: socket.socket) -> Iterator[None]:
    """Mark this socket, which listens later, as a daemon's. All processes of this user can see that."""
    if sys.platform != "linux":
        yield
        return
    fd = os.memfd_create(f"{MARK}{os.fstat(sock.fileno()).st_ino}", os.MFD_CLOEXEC)
    try:
        yield
    finally:
        os.close(fd)


def refuse_own_ports(ports: Iterable[int]) -> None:
    """Raises UsageError when a daemon of ours listens on one of them."""
    for port in ports:
        if is_ours(port):
            raise UsageError(
                f"port {port} is a daemon of Holdfast, which no confined command may reach",
                remedy="leave it out; a worker reports with `holdfast handoff`",
            )


def is_ours(port: int) -> bool:
    """Whether a daemon of Holdfast listens on this port of any address here."""
    return any(_is_ours(found) for found in _find_listeners(port))


def recall(port: int) -> bool | None:
    """Like `is_ours`, but from the cache only: None if a socket that listens there has not been checked."""
    known = [_KNOWN.get(found.inode) for found in _find_listeners(port)]
    return None if None in known else any(known)


def parse_listeners(lines: Iterable[str], port: int) -> list[Listener]:
    """Return the listeners on this port, from the lines of /proc/net/tcp or tcp6."""
    ending = f":{port:04X}"
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 10 and fields[1].endswith(ending) and fields[3] == TCP_LISTEN:
            found.append(Listener(int(fields[7]), int(fields[9])))
    return found


def _find_listeners(port: int) -> list[Listener]:
    """Query sock_diag; the tables list every connection besides, also those that ended just now."""
    try:
        return [found for family in (socket.AF_INET, socket.AF_INET6) for found in _ask_kernel(family, port)]
    except (OSError, struct.error):
        return _read_tables(port)


def _ask_kernel(family: int, port: int) -> Iterator[Listener]:
    """Yield the sockets of a family that listen on this port. Raises OSError if sock_diag does not answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as sock:
        sock.settimeout(_ANSWER_S)
        wanted = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << int(TCP_LISTEN, 16))
        length = _NETLINK.size + len(wanted)
        sock.send(_NETLINK.pack(length, _BY_FAMILY, _REQUEST | _DUMP, 1, 0) + wanted)
        while True:
            answer = sock.recv(_MAX_ANSWER)
            while answer:
                length, kind, _, _, _ = _NETLINK.unpack_from(answer)
                if kind == _DONE:
                    return
                if kind != _BY_FAMILY or length < _NETLINK.size:
                    raise OSError
                local, uid, inode = _DIAG_ANSWER.unpack_from(answer, _NETLINK.size)
                if socket.ntohs(local) == port:
                    yield Listener(uid, inode)
                answer = answer[length + 3 & ~3 :]


def _read_tables(port: int) -> list[Listener]:
    found = []
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as lines:
                found += parse_listeners(lines, port)
        except OSError:
            continue  # no IPv6 here
    return found


def _is_ours(listener: Listener) -> bool:
    known = _KNOWN.get(listener.inode)
    if known is None:
        if len(_KNOWN) >= MAX_KNOWN:
            _KNOWN.clear()
        marked = any(_has_mark(pid, listener.inode) for pid, _ in find_holders(listener.inode, listener.uid))
        known = _KNOWN[listener.inode] = marked
    return known


def _has_mark(pid: int, inode: int) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return True  # cannot be checked, so refuse it
    wanted = f"/memfd:{MARK}{inode} (deleted)"
    return any(read_link(f"{folder}/{name}") == wanted for name in names)
