"""Connect to a host that was allowed: its name is resolved once, every address is checked, and one of these
addresses is dialled. So the name cannot change its meaning in between.

If the host itself needs an upstream proxy, that proxy resolves the name again, so the address that it dials
cannot be pinned. We check the addresses from our own resolver all the same, if it knows the name.
"""

import asyncio
import contextlib
import errno
import functools
import ipaddress
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.egress import upstream as upstreams
from holdfast.egress.addresses import Address, is_loopback, is_public, unmap
from holdfast.egress.hosts import Host, HostRule
from holdfast.egress.upstream import Scheme, Upstream, Upstreams
from holdfast.local.listeners import is_ours, recall

RESOLVE_S: Final = 2.0  # as in the reference: a slower name server counts as one that does not answer
CONNECT_S: Final = 10.0  # for all addresses of a name together
STAGGER_S: Final = 0.25  # RFC 8305: the head start of each address over the next
MAX_ADDRESSES: Final = 8  # of a name that are tried; all of them are checked
MAX_LOOKUPS: Final = 64  # at once, of the whole process: each takes a thread until its name server answers
MAX_OWN_LOOKUPS: Final = 16  # of one command, which may choose slow name servers
MAX_HEAD: Final = 16 * 1024  # of a proxy's answer to CONNECT

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]  # returns the addresses of a name, as text
FindDenial: TypeAlias = Callable[[Address], HostRule | None]


class NotPublic(OSError):
    """The name leads to an address that is not public, and no rule allows that."""

    def __init__(self, address: Address) -> None:
        super().__init__(errno.EACCES, f"the host has the address {address}, which is not public")
        self.address = address


class AddressDenied(OSError):
    """The name leads to an address that a rule denies."""

    def __init__(self, address: Address, rule: HostRule) -> None:
        super().__init__(errno.EACCES, f"the host has the address {address}, which is denied")
        self.address, self.rule = address, rule


class LookupFailed(OSError):
    """The name has no address, or the resolver did not answer in time."""


_looking = threading.BoundedSemaphore(MAX_LOOKUPS)


async def look_up(name: str) -> Sequence[str]:
    """The addresses of a name, from this host's resolver.

    It runs in a thread of its own that is not joined, so a caller can give up at once. Names of this machine
    itself are not sent to the resolver (RFC 6761).

    Raises:
        OSError: the name has no address, or too many lookups are running.
    """
    if name == "localhost" or name.endswith((".localhost", ".localhost.")):
        return ("127.0.0.1", "::1")
    if not _looking.acquire(blocking=False):
        raise LookupFailed(errno.EAGAIN, "too many names are being looked up")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def tell(found: Sequence[str], problem: OSError | None) -> None:
        if answer.done():
            return
        if problem is None:
            answer.set_result(found)
        else:
            answer.set_exception(problem)

    def ask() -> None:
        found: list[str] = []
        problem: OSError | None = None
        try:
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as exc:
            problem = LookupFailed(errno.ENOENT, str(exc))
        finally:
            _looking.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the result is not needed
            loop.call_soon_threadsafe(tell, found, problem)

    try:
        threading.Thread(target=ask, name="holdfast-lookup", daemon=True).start()
    except RuntimeError:  # no threads are left, as under a limit of processes
        _looking.release()
        raise LookupFailed(errno.EAGAIN, "too many names are being looked up") from None
    return await answer


class Lookups:
    """The lookups of one command: one at a time for a name, MAX_OWN_LOOKUPS in total; further ones wait.

    A lookup goes on after all callers gave up, because its thread does.
    """

    def __init__(self, resolve: Resolver = look_up) -> None:
        self._resolve = resolve
        self._turn = asyncio.Semaphore(MAX_OWN_LOOKUPS)
        self._open: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def __call__(self, name: str) -> Sequence[str]:
        """The addresses of a name. Raises OSError."""
        if name not in self._open:
            asking = self._open[name] = asyncio.get_running_loop().create_task(self._ask(name))
            asking.add_done_callback(functools.partial(self._forget, name))
        return await asyncio.shield(self._open[name])

    async def _ask(self, name: str) -> Sequence[str]:
        async with self._turn:
            return await self._resolve(name)

    def _forget(self, name: str, asked: "asyncio.Task[Sequence[str]]") -> None:
        del self._open[name]
        if not asked.cancelled():
            asked.exception()  # retrieve it: all callers may have given up


async def is_daemon(port: int) -> bool:
    """Whether a daemon of ours listens on this port; use a thread only for sockets that are not cached."""
    known = recall(port)
    return await asyncio.to_thread(is_ours, port) if known is None else known


def is_own(address: Address) -> bool:
    """Whether an address belongs to an interface of this machine; tried with bind."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))
    except OSError:
        return False
    return True


def deny_nothing(_address: Address) -> HostRule | None:
    return None


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a host, resolved and checked: its addresses, or the upstream proxy on the way."""

    host: Host
    addresses: tuple[Address, ...]
    above: Upstream | None = None


@dataclass(frozen=True, slots=True)
class Dialer:
    """Connects to outside hosts. Resolver and checks are arguments for tests."""

    resolve: Resolver = field(default_factory=Lookups)
    upstream: Upstreams = upstreams.NONE
    is_own: Callable[[Address], bool] = is_own
    is_daemon: Callable[[int], Awaitable[bool]] = is_daemon

    async def dial(
        self, host: Host, port: int, *, private: bool = False, find_denial: FindDenial = deny_nothing
    ) -> socket.socket:
        """Connect to a host, through the upstream proxy if there is one; return a non-blocking socket.

        Raises:
            NotPublic: one of its addresses is not public or is this machine's own, and `private` is not set.
            AddressDenied: a rule denies one of its addresses.
            OSError: the name has no address, or no address accepts the connection.
        """
        return await self.connect(await self.find(host, private=private, find_denial=find_denial), port)

    async def find(
        self,
        host: Host,
        *,
        private: bool = False,
        scheme: Scheme = "https",
        find_denial: FindDenial = deny_nothing,
    ) -> Route:
        """Find the way to a host. The name is resolved here and nowhere else.

        Raises:
            NotPublic, AddressDenied, OSError: as `dial` does.
        """
        above = self.upstream.lead_to(scheme, host)
        found: list[Address] = []
        if host.address is not None:
            found = [host.address]
        else:
            try:
                found = await self._ask(host.name)
            except LookupFailed:
                if above is None:
                    raise
        for address in found:
            if (rule := find_denial(address)) is not None:
                raise AddressDenied(address, rule)
            if not private and (not is_public(address) or self.is_own(address)):
                raise NotPublic(address)
        return Route(host, tuple(found), above)

    async def connect(self, route: Route, port: int) -> socket.socket:
        """Connect along this route.

        Raises:
            NotPublic: the listener is a daemon of ours, which would take us for its user.
            OSError: no address accepts the connection.
        """
        if route.above is None:
            return await self._connect_directly(route, port)
        sock = await self.reach(route.above)
        try:
            await tunnel(sock, route.above, route.host, port)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _connect_directly(self, route: Route, port: int) -> socket.socket:
        sock = await connect(route.addresses, port)
        try:
            address = unmap(ipaddress.ip_address(sock.getpeername()[0]))
            here = is_loopback(address) or self.is_own(address)
            # Checked after the connection is made: this is the process that listens.
            if here and await self.is_daemon(port):
                raise NotPublic(address)
        except BaseException:
            sock.close()
            raise
        return sock

    async def reach(self, above: Upstream) -> socket.socket:
        """Connect to an upstream proxy, which the host itself configured, so it may have any address.

        Raises:
            OSError: it does not accept the connection.
        """
        try:
            addresses = [unmap(ipaddress.ip_address(above.host))]
        except ValueError:
            addresses = await self._ask(above.host)
        return await connect(addresses, above.port)

    async def _ask(self, name: str) -> list[Address]:
        try:
            async with asyncio.timeout(RESOLVE_S):
                # The trailing dot bypasses this host's search list, which would try other names.
                texts = await self.resolve(f"{name}." if "." in name else name)
        except TimeoutError:
            raise LookupFailed(errno.ETIMEDOUT, "the name server does not answer") from None
        found = [unmap(ipaddress.ip_address(text.partition("%")[0])) for text in texts]
        if not found:
            raise LookupFailed(errno.ENOENT, "the name has no address")
        return found


async def connect(addresses: Sequence[Address], port: int) -> socket.socket:
    """Connect to the first of these addresses that answers; each gets a head start over the next.

    Raises:
        OSError: none does.
    """
    waiting = _interleave(addresses)[:MAX_ADDRESSES]
    running: dict[asyncio.Task[None], socket.socket] = {}
    problem = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    try:
        async with asyncio.timeout(CONNECT_S):
            while waiting or running:
                if waiting:
                    address = waiting.pop(0)
                    sock = _make_socket(address)
                    if is_loopback(address) and _reaches_at_once(sock, address, port):
                        return sock
                    running[asyncio.create_task(_connect(sock, address, port))] = sock
                done, _ = await asyncio.wait(
                    running,
                    timeout=STAGGER_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    error = task.exception()
                    if error is None:
                        return running.pop(task)
                    running.pop(task).close()
                    problem = error if isinstance(error, OSError) else problem
    except TimeoutError:
        problem = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    finally:
        for task, sock in running.items():
            task.add_done_callback(functools.partial(_discard, sock))
            task.cancel()
    raise problem


def _discard(sock: socket.socket, _task: "asyncio.Task[None]") -> None:
    """Close the socket of an attempt that was not needed."""
    sock.close()


def _interleave(addresses: Sequence[Address]) -> list[Address]:
    """Alternate between the two families, beginning with that of the first address."""
    first = [address for address in addresses if address.version == addresses[0].version]
    second = [address for address in addresses if address.version != addresses[0].version]
    mixed: list[Address] = []
    while first or second:
        mixed += [group.pop(0) for group in (first, second) if group]
    return mixed


def _make_socket(address: Address) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _reaches_at_once(sock: socket.socket, address: Address, port: int) -> bool:
    """Try to connect without waiting, as works with a local listener; otherwise it is in progress."""
    with contextlib.suppress(OSError):
        sock.connect((str(address), port))
    return _is_connected(sock) and not _met_itself(sock)


async def _connect(sock: socket.socket, address: Address, port: int) -> None:
    """Wait until a socket is connected; the attempt may have begun. Raises OSError."""
    if not _is_connected(sock):
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    if _met_itself(sock):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens there")


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _met_itself(sock: socket.socket) -> bool:
    """Whether a TCP self-connect happened: no listener, and our socket got that very port by chance."""
    return bool(sock.getsockname() == sock.getpeername())


async def tunnel(sock: socket.socket, above: Upstream, host: Host, port: int) -> None:
    """Ask the upstream proxy to connect us to the host.

    Raises:
        OSError: it refuses or does not answer.
    """
    target = f"[{host}]:{port}" if ":" in host.name else f"{host}:{port}"
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if above.authorization is not None:
        head += f"Proxy-Authorization: {above.authorization}\r\n"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            await loop.sock_sendall(sock, f"{head}\r\n".encode("ascii"))
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):  # byte by byte: the bytes after the header are not ours
                if len(answer) >= MAX_HEAD or not (got := await loop.sock_recv(sock, 1)):
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "the upstream proxy broke off")
                answer += got
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, "the upstream proxy does not answer") from None
    status = answer.split(b" ", 2)[1:2]
    if not answer.startswith(b"HTTP/1.") or not status or not status[0].startswith(b"2"):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the upstream proxy refused the connection")
