"""A host: executors dial it, and it provides an environment for each, to run commands there.

An executor registers, dials, and serves us on that connection; callers that want its environment wait for it.
When the connection is lost the executor dials again, and the session continues there. The newest connection
is the valid one: an executor dials only after its previous connection has ended, even if that still seems
alive here.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, cast

from holdfast.client.connection import Dialer
from holdfast.client.environment import INITIALIZE_S, Environment
from holdfast.client.links.target import AcceptedTarget, Receiver, ServerLink
from holdfast.client.recovery import LinkState
from holdfast.client.session import ClientSession
from holdfast.direct import admission
from holdfast.direct.acceptedlink import AcceptedLink
from holdfast.direct.admission import Asked, ExecutorKey, Gate, HostRefusal
from holdfast.errors import ConnectionLost, RemoteProtocolError, UsageError
from holdfast.local.peers import Lobby
from holdfast.server.edges.address import WebSocketAddress
from holdfast.server.edges.binding import BACKLOG, bind_tcp
from holdfast.server.edges.httphead import MAX_HEAD_BYTES, HeadAnswer, RequestHead, accept, parse_head
from holdfast.wire.sigv4 import HttpRequest, Scope

log = logging.getLogger(__name__)

SERVICE: Final = "execute-api"  # what the reference signs for by default
ARRIVE_S: Final = 60.0  # for an executor to dial
HELD_S: Final = 10.0  # an environment stays its executor's without a connection; it redials within 7.5 s
ASK_S: Final = 10.0  # for a request, so that silent peers do not pile up
CLOSING_TURNS: Final = 3
MAX_WAITING: Final = 256  # connections whose request is not complete
_JSON: Final = "application/json"


class DirectHost:
    """A host that executors dial.

    Create it with `listen`. `url` is its address, which nearby executors get as `--remote`.
    """

    def __init__(self, gate: Gate, scheme: str) -> None:
        self.url = ""
        self._gate = gate
        self._scheme = scheme
        self._seats: dict[str, Seat] = {}
        self._connections: set[AcceptedLink] = set()
        self.closed = False  # no more connections are admitted
        self.lobby = Lobby(MAX_WAITING, ASK_S)

    @classmethod
    @contextlib.asynccontextmanager
    async def listen(
        cls,
        keys: Iterable[ExecutorKey],
        *,
        region: str,
        service: str = SERVICE,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        behind_proxy: bool = False,
    ) -> "AsyncIterator[DirectHost]":
        """Listen for as long as the block lasts. `address` is an IP of this machine.

        `behind_proxy`: a reverse proxy terminates TLS and passes on `Host` unchanged, since that is signed.

        Raises:
            UsageError: there is no key, or the traffic could be read on the way.
            StartupError: the address cannot be listened on.
        """
        secure = tls is not None or behind_proxy
        host = cls(Gate(keys, Scope(region, service)), "wss" if secure else "ws")
        where = WebSocketAddress(address, port)
        if not (where.loopback or secure):
            raise UsageError(
                "a host needs TLS, or a loopback address: it is all that keeps others out",
                remedy="give `tls=`, or `behind_proxy=True` if a proxy in front ends TLS",
            )
        with bind_tcp(where) as sock:
            scheme = "http" if tls is None else "https"
            host.url = where.url(sock.getsockname()[1]).replace("ws", scheme, 1)
            server = await asyncio.get_running_loop().create_server(
                lambda: HostConnection(host),
                sock=sock,
                ssl=tls,
                backlog=BACKLOG,
                ssl_handshake_timeout=None if tls is None else ASK_S,  # before the lobby
            )
            try:
                yield host
            finally:
                server.close()
                await host._aclose()

    @property
    def connected(self) -> tuple[str, ...]:
        """The environments whose executor has a connection now."""
        return tuple(id_ for id_, seat in self._seats.items() if seat.connected)

    async def get(self, environment_id: str, *, timeout_s: float = ARRIVE_S) -> Environment:
        """Return the environment of this id; waits until its executor has dialled. Do not close it.

        While its session lives all callers get the same one; after it is lost they get a new one.

        Raises:
            Unreachable: no executor has come in time, or it does not answer.
        """
        return await self._seat(environment_id).open(timeout_s)

    def _seat(self, environment_id: str) -> "Seat":
        return self._seats.setdefault(environment_id, Seat(environment_id))

    async def _aclose(self) -> None:
        await asyncio.gather(*(seat.aclose() for seat in self._seats.values()))
        self.closed = True
        for link in list(self._connections):
            link.abort(ConnectionLost("the host was closed"))
        self.lobby.clear()
        for _ in range(CLOSING_TURNS):  # of the loop, which closes the aborted transports
            await asyncio.sleep(0)

    # --- what a connection uses

    def answer(self, request: HttpRequest, asked: Asked) -> bytes | HostRefusal | None:
        """Answer this request; None: open the WebSocket and call `receive`."""
        refused = self._gate.judge(request, asked, time.time())
        if refused is not None:
            return refused
        if asked.registration is not None:
            seat = self._seats.get(asked.environment)
            return admission.UNKNOWN if seat is None else seat.refuse(asked.registration)
        if asked.environment not in self._seats and len(self._seats) >= admission.MAX_ENVIRONMENTS:
            return admission.FULL
        registration = self._seat(asked.environment).register()
        log.info("an executor registered", extra={"environment": asked.environment})
        return admission.answer(asked.environment, request, self._scheme, registration)

    def receive(self, environment_id: str, transport: asyncio.Transport) -> AcceptedLink:
        """Create the link of a WebSocket that was opened."""
        seat = self._seat(environment_id)

        def forget(link: AcceptedLink) -> None:
            self._connections.discard(link)
            seat.note()

        link = AcceptedLink(transport, forget)
        self._connections.add(link)
        seat.arrive(link)
        log.info("an executor connected", extra={"environment": environment_id})
        return link


class Seat:
    """One environment at a host: its registration, the waiting connection, and the session."""

    def __init__(self, environment_id: str) -> None:
        self._registration = ""
        self._heard = 0.0  # when its executor was last seen
        self._waiting: AcceptedLink | None = None
        self._current: AcceptedLink | None = None
        self._arrived = asyncio.Event()
        self._environment: Environment | None = None
        self._opening = asyncio.Lock()
        self._target = AcceptedTarget(environment_id, self._take)

    @property
    def connected(self) -> bool:
        return any(link is not None and not link.gone for link in (self._waiting, self._current))

    def register(self) -> str:
        """Create a new registration, which replaces the previous one."""
        self._registration = secrets.token_hex(16)
        self.note()
        return self._registration

    def note(self) -> None:
        """Note that its executor was seen just now."""
        self._heard = asyncio.get_running_loop().time()

    def refuse(self, registration: str) -> HostRefusal | None:
        """Return why the executor of this registration may not serve; None: it may.

        A superseded executor waits for as long as its successor is connected or may come back, so that the
        two do not displace each other repeatedly.
        """
        if registration == self._registration:
            return None
        held = self.connected or asyncio.get_running_loop().time() - self._heard < HELD_S
        return admission.SUPERSEDED if self._registration and held else admission.UNKNOWN

    def arrive(self, link: AcceptedLink) -> None:
        """Take a new connection, which replaces any previous one."""
        before, self._waiting = (self._waiting, self._current), link
        for old in before:
            if old is not None:
                old.abort(ConnectionLost("the executor has dialled again"))
        self._arrived.set()

    async def _take(self, receiver: Receiver) -> ServerLink:
        while self._waiting is None or self._waiting.gone:
            self._arrived.clear()
            await self._arrived.wait()
        self._current, self._waiting = self._waiting, None
        self._current.attach(receiver)
        return self._current

    async def open(self, timeout_s: float) -> Environment:
        async with self._opening:
            live = self._environment
            if live is not None and live.state is not LinkState.FAILED:
                return live
            if live is not None:
                await live.aclose()
            session = ClientSession(Dialer(self._target, timeout_s, INITIALIZE_S))
            await session.open()
            self._environment = Environment(session)
            return self._environment

    async def aclose(self) -> None:
        if self._environment is not None:
            await self._environment.aclose()


class HostConnection(asyncio.Protocol):
    """One connection, until its request is answered."""

    def __init__(self, host: DirectHost) -> None:
        self._host = host
        self._received = bytearray()
        self._head: RequestHead | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        if self._host.closed:
            self._transport.abort()
            return
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host.lobby.enter(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        try:
            self._gather()
        except RemoteProtocolError:
            self._finish(admission.NO_REQUEST)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._host.lobby.leave(self._transport)

    def _gather(self) -> None:
        """Raises: RemoteProtocolError: this cannot become a valid request."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > MAX_HEAD_BYTES:
                    raise RemoteProtocolError("the head of a request has no end")
                return
            self._head = parse_head(bytes(self._received[: end + 4]))
            del self._received[: end + 4]
        size = _size_of_body(self._head)
        if len(self._received) >= size:
            body = bytes(self._received[:size])
            del self._received[:size]
            self._host.lobby.leave(self._transport)
            self._answer(self._head, body)

    def _answer(self, head: RequestHead, body: bytes) -> None:
        target = f"{head.path}?{head.query}" if head.query else head.path
        request = HttpRequest(head.method, target, head.headers, body)
        asked = admission.parse(request)
        if asked is None or head.get("origin") is not None:  # a browser is never admitted
            self._finish(admission.NO_ROUTE)
            return
        opening = None if asked.registration is None else accept(head)
        if asked.registration is not None and (opening is None or not head.wants_upgrade()):
            self._finish(admission.NO_REQUEST)
            return
        said = self._host.answer(request, asked)
        if isinstance(said, HostRefusal):
            log.warning(
                "an executor was refused", extra={"environment": asked.environment, "reason": said.reason}
            )
            self._finish(said)
        elif said is not None:
            self._transport.write(HeadAnswer(200, said, _JSON).encode())
            self._transport.close()
        else:
            self._transport.write(opening or b"")
            link = self._host.receive(asked.environment, self._transport)
            self._transport.set_protocol(link)
            if self._received:
                link.data_received(bytes(self._received))

    def _finish(self, refusal: HostRefusal) -> None:
        self._transport.write(HeadAnswer(refusal.status, refusal.encode(), _JSON).encode())
        self._transport.close()


def _size_of_body(head: RequestHead) -> int:
    """Raises: RemoteProtocolError: the length is missing or too large."""
    if head.get("transfer-encoding") is not None:
        raise RemoteProtocolError("the length of a body must be given")
    length = head.only("content-length") or "0"
    if not re.fullmatch("[0-9]{1,9}", length) or int(length) > admission.MAX_BODY_BYTES:
        raise RemoteProtocolError("a body is too large")
    return int(length)
