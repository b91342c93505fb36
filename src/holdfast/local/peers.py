"""Admission of local peers: which user is at the other end of a connection, and how confined the process is.

The kernel reports the user of a unix socket. For TCP on loopback both ends are sockets of this kernel, so the
peer's socket is looked up by its addresses to find its owner: through sock_diag, which answers for exactly
one socket, or else in the tables under /proc/net.

Only an established socket that a process still holds counts. For the rest of a closed socket the kernel
reports owner 0, so a stranger who writes a request and hangs up at once would pass for root.

A user id gives the owner of a process, not its permissions: a confined command has the same user id. The
kernel reports the confinement: a confined command has more seccomp filters, no new privileges or other
namespaces, whether we or another program confined it. The comparison is with our own process, so that a
daemon in a container serves its neighbours.

A process is inspected while we hold a descriptor of it (pidfd), and must still live afterwards, so that we
never read about another process that got its number. A process that cannot be inspected counts as confined.

Loads no event loop: the first connection may come before there is one.
"""

import errno
import functools
import ipaddress
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.errors import PeerRefused

if TYPE_CHECKING:
    import asyncio

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

SO_PEERPIDFD: Final = 77  # linux 6.5; asm-generic/socket.h
NAMESPACES: Final = ("user", "mnt", "pid", "net", "ipc")

UNKNOWN: Final = "the kernel does not tell which process it is"
REMEDY: Final = (
    "run it outside of the sandbox; a worker reports with `holdfast handoff`, and cannot start other workers"
)
_ONLY_OWNER: Final = "only the user who runs this server may connect without a token"


class HasOptions(Protocol):
    """A socket, or the socket object that a transport exposes."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


class _End(NamedTuple):
    """One end of a connection, independent of how its address was written."""

    address: bytes  # 4 or 16
    port: int


class PeerSocket(NamedTuple):
    """The other end of a TCP connection on this machine."""

    uid: int
    inode: int  # /proc/PID/fd names it by this


class ChecksToken(Protocol):
    """Checks the header `Authorization` of a connection."""

    def check(self, authorization: str | None, now: float, /) -> None:
        """Raises PeerRefused."""


def check_caller(tokens: ChecksToken | None, authorization: str | None, own: Any, peer: Any) -> None:
    """Check the token if tokens are required; else the user of the peer, and that it is no more confined.

    Raises:
        PeerRefused: the connection is refused.
    """
    if tokens is not None:
        tokens.check(authorization, time.time())
        return
    found = check_owner(own, peer)
    refuse_confined(find_excess_of_holders(found.inode, found.uid))


def check_owner(own: Any, peer: Any) -> PeerSocket:
    """Return the socket at the other end of a loopback connection, found by both of its addresses.

    Raises:
        PeerRefused: its owner is another user, or it is gone.
    """
    found = None if peer is None else socket_of_peer(own, peer)  # None: it was reset meanwhile
    if found is None or not is_allowed(found.uid, own=os.getuid()):
        raise PeerRefused(_ONLY_OWNER)
    return found


def check_unix_peer(sock: HasOptions) -> None:
    """Check the user and the confinement of a unix socket's peer. Raises PeerRefused."""
    if not is_allowed(uid_of_unix_peer(sock), own=os.getuid()):
        raise PeerRefused(_ONLY_OWNER)
    refuse_confined(find_excess_of_unix_peer(sock))


def is_allowed(uid: int | None, *, own: int) -> bool:
    """Allow our own user and root, who has power over us anyway; refuse an unidentified user."""
    return uid is not None and uid in (own, 0)


def uid_of_unix_peer(sock: HasOptions) -> int:
    """The effective user id the peer had when it connected."""
    return _credentials(sock)[1]


def pid_of_unix_peer(sock: HasOptions) -> int:
    """The process at the other end of this connection, as the kernel reports it (SO_PEERCRED)."""
    return _credentials(sock)[0]


def _credentials(sock: HasOptions) -> tuple[int, int]:
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
    pid, uid, _ = struct.unpack("=iII", packed)
    return int(pid), int(uid)


def uid_of_peer(local: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """The owner of the peer's socket of a loopback TCP connection, or None if it cannot be determined."""
    found = socket_of_peer(local, peer)
    return None if found is None else found.uid


def socket_of_peer(local: tuple[str, int], peer: tuple[str, int]) -> PeerSocket | None:
    """The peer's socket of a loopback TCP connection, or None if it cannot be determined.

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
        if len(fields) < 10 or not fields[1].endswith(port):  # rejects most lines, and the heading
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


class Surroundings(NamedTuple):
    """How confined a process is, as the kernel reports it."""

    no_new_privileges: bool
    filters: int  # seccomp filters; each one adds to those before it
    namespaces: tuple[str, ...]


def find_excess(ours: Surroundings, theirs: Surroundings | None) -> str | None:
    """Describe in what they are more confined than we; None if they are not."""
    if theirs is None:
        return UNKNOWN
    if theirs.no_new_privileges and not ours.no_new_privileges:
        return "it may not gain privileges"
    if theirs.filters > ours.filters:
        return "it has more seccomp filters"
    differing = [
        name
        for name, mine, other in zip(NAMESPACES, ours.namespaces, theirs.namespaces, strict=True)
        if mine != other
    ]
    return f"it is in another {' and '.join(differing)} namespace" if differing else None


def refuse_confined(excess: str | None) -> None:
    """Raises PeerRefused for a process that is more confined than we."""
    if excess is not None:
        raise PeerRefused(f"a process that is more confined may not use this one: {excess}", remedy=REMEDY)


def parse_status(text: str, namespaces: tuple[str, ...]) -> Surroundings | None:
    """Parse /proc/PID/status; None where a field is missing."""
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    try:
        filtered = int(fields["Seccomp"]) != 0
        filters = int(fields["Seccomp_filters"]) if filtered else 0
        return Surroundings(int(fields["NoNewPrivs"]) != 0, filters, namespaces)
    except (KeyError, ValueError):
        return None


def read_surroundings(process: int | str) -> Surroundings | None:
    """Read the surroundings of a process by its number, or of "self"; None where they cannot be read."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            text = file.read()
        return parse_status(text, tuple(os.readlink(f"/proc/{process}/ns/{name}") for name in NAMESPACES))
    except OSError:
        return None


@functools.cache
def _ours() -> Surroundings:
    found = read_surroundings("self")
    if found is None:
        raise AssertionError("/proc tells nothing of ourselves")
    return found


def find_excess_of_unix_peer(sock: HasOptions) -> str | None:
    """Describe in what the process that connected this unix socket is more confined than we, or None."""
    pid = pid_of_unix_peer(sock)
    if pid <= 0:
        return UNKNOWN  # our PID namespace does not show the process
    try:
        fd = _peer_descriptor(sock, pid)
    except OSError:
        return UNKNOWN
    try:
        return _judge(fd, pid)
    finally:
        os.close(fd)


def find_excess_of_holders(inode: int, uid: int) -> str | None:
    """The same for every process of a user that holds the socket with this inode; without one, UNKNOWN."""
    reasons = [_judge_holder(pid, path, inode) for pid, path in find_holders(inode, uid)]
    if not reasons:
        return UNKNOWN
    return next((reason for reason in reasons if reason is not None), None)


def _peer_descriptor(sock: HasOptions, pid: int) -> int:
    """Open a pidfd of the peer. Raises OSError when the process is gone."""
    try:
        return int(struct.unpack("=i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))[0])
    except OSError as exc:
        if exc.errno != errno.ENOPROTOOPT:
            raise  # its number may belong to another process by now
        return os.pidfd_open(pid)  # an older kernel


def _judge(fd: int, pid: int) -> str | None:
    found = read_surroundings(pid)
    ended, _, _ = select.select([fd], [], [], 0)
    return UNKNOWN if ended else find_excess(_ours(), found)


def _judge_holder(pid: int, path: str, inode: int) -> str | None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return UNKNOWN
    try:
        # Read the link again: the pidfd keeps the number from being reused.
        return _judge(fd, pid) if os.readlink(path) == f"socket:[{inode}]" else UNKNOWN
    except OSError:
        return UNKNOWN
    finally:
        os.close(fd)


def find_holders(inode: int, uid: int) -> Iterator[tuple[int, str]]:
    """Processes of this user that hold the socket, each with its link; only those that we may inspect."""
    wanted = f"socket:[{inode}]"
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        folder = f"/proc/{name}/fd"
        try:
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            for descriptor in os.listdir(folder):
                path = f"{folder}/{descriptor}"
                if read_link(path) == wanted:
                    yield int(name), path
                    break
        except OSError:
            continue  # it ended, or we may not inspect it


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed meanwhile


class Lobby:
    """Connections that wait to be authenticated: at most `most`, each for a short time.

    When it is full, the connection that waits longest is dropped. So a client that authenticates at once is
    served, however many others stay silent. Without `within_s` a connection may wait until it leaves or is
    dropped.
    """

    def __init__(self, most: int, within_s: float | None = None) -> None:
        self._most = most
        self._within_s = within_s
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle | None] = {}

    def enter(self, transport: "asyncio.Transport") -> None:
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.abort()
        timer = None
        if self._within_s is not None:
            import asyncio

            timer = asyncio.get_running_loop().call_later(self._within_s, transport.abort)
        self._waiting[transport] = timer

    def leave(self, transport: "asyncio.Transport") -> None:
        """Remove a connection that is authenticated or closed; ignore one that is not waiting."""
        timer = self._waiting.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Drop all waiting connections; each leaves when its connection is closed."""
        for transport in list(self._waiting):
            transport.abort()

    def __len__(self) -> int:
        return len(self._waiting)
