"""A node of a relay: its listeners, its sockets, its lease, and the orders from its store.

Where there are several nodes, executors dial an address that leads to any of them, and a harness gets the
address of the node that has its executor. Where nodes cannot be addressed singly a harness may reach any node
too, and `bridge` carries its stream. A node sends a heartbeat every BEAT_S. It renews the node's lease and
returns which tokens were revoked and which of its executors have moved to another node.
"""

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import resource
import secrets
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, NamedTuple

from holdfast.errors import HoldfastError, RemoteProtocolError
from holdfast.local.peers import Lobby
from holdfast.local.tasks import TaskSet
from holdfast.relay import store as verbs
from holdfast.relay.audit import record
from holdfast.relay.bridge import BEAT_S as BRIDGE_BEAT_S
from holdfast.relay.bridge import UNAVAILABLE, Bridge, Joint, Link
from holdfast.relay.metrics import PrometheusRelayMetrics, RelayMetrics
from holdfast.relay.natsbus import NatsBus, NatsOptions
from holdfast.relay.registry import Limits, Registry
from holdfast.relay.rules import messages, signedurl
from holdfast.relay.rules.crossing import Opening
from holdfast.relay.rules.messages import RegistryRefusal
from holdfast.relay.rules.signedurl import Claim, Rejected
from holdfast.relay.rules.switchboard import ExecutorSocket, HarnessSocket, Held, Switchboard
from holdfast.relay.sockets import ASK_S, RelayConnection, Socket
from holdfast.relay.store import RelayStore
from holdfast.server.edges.address import WebSocketAddress
from holdfast.server.edges.binding import BACKLOG, ENDING, bind_tcp
from holdfast.server.edges.httphead import HeadAnswer, RequestHead, accept

log = logging.getLogger(__name__)

BEAT_S: Final = 1.0  # the longest that a revoked token still works; well below a third of a lease
TIDY_S: Final = 60.0
CHECK_S: Final = 5.0  # between checks for silent peers
LEAVE_S: Final = 5.0  # to report to the store that this node holds nothing any more
MAX_WAITING: Final = 1024  # connections whose request is not complete
MAX_ASKED: Final = 2000  # requests that wait for the store; a node answers some hundreds a second
SPARE_FILES: Final = 256  # descriptors for the store, the loop and the listener
MAX_SOCKETS: Final = 20_000  # of the rendezvous; each takes some 10 KB when idle
MAX_FILES: Final = MAX_SOCKETS + MAX_WAITING + SPARE_FILES
_PROBES: Final = ("/healthz", "/readyz")
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class RelayOptions(NamedTuple):
    """How to serve, already checked by the command line."""

    address: WebSocketAddress
    store: str
    public_url: str | None = None  # where executors dial; None: where we listen
    node_url: str | None = None  # where harnesses reach this node; None: as public_url
    tls: ssl.SSLContext | None = None
    behind_proxy: bool = False
    metrics: bool = False
    limits: Limits = Limits()
    nats: NatsOptions | None = None  # None: nodes can be addressed singly, or there is only one


class Node:
    """One relay process."""

    def __init__(self, options: RelayOptions) -> None:
        self._options = options
        self._id = f"node_{secrets.token_hex(8)}"
        self._store = RelayStore(options.store)
        self._switchboard: Switchboard[Socket] = Switchboard()
        self._sockets: set[RelayConnection] = set()
        self._joints: set[Joint] = set()
        self._bus: NatsBus | None = None
        self._bridge: Bridge | None = None
        self._tasks = TaskSet()
        self._lost: list[Held] = []  # sockets that are gone, not yet reported to the store
        self._done = asyncio.Event()
        self._ready = False
        self._url = ""
        self._key = b""
        self._registry: Registry
        self._metrics = PrometheusRelayMetrics(self._count) if options.metrics else RelayMetrics()
        self.lobby = Lobby(MAX_WAITING, ASK_S)
        self.behind_proxy = options.behind_proxy
        self.routed = 0  # frames passed on
        self.unrouted = 0  # frames without a recipient

    # --- life

    def stop(self) -> None:
        self._done.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Serve until `stop`. `announce` gets the address for executors and harnesses.

        Raises:
            StartupError: the address cannot be listened on, or there is no NATS.
            Unreachable: the store does not answer.
        """
        options = self._options
        try:
            self._key = signedurl.decode_key(await self._store.write(verbs.signing_key))
            if options.nats is not None:
                self._bus = NatsBus(options.nats)
                self._bridge = Bridge(self._bus, self._key, self._id, self._admit)
                self._tasks.start(await self._bus.join(self._bridge))
            with bind_tcp(options.address) as sock, _hold_last(sock):
                base = self._base(sock.getsockname()[1])
                public = options.public_url or base
                self._url = _websocket(options.node_url or public)
                self._registry = Registry(self._store, self._key, _websocket(public), options.limits)
                await self._beat()
                server = await asyncio.get_running_loop().create_server(
                    lambda: RelayConnection(self),
                    sock=sock,
                    ssl=options.tls,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=None if options.tls is None else ASK_S,  # before the lobby
                )
                self._ready = True
                record("relay.started")
                announce(public)
                await self._until_done()
                server.close()
        finally:
            await self._leave()

    def _base(self, port: int) -> str:
        scheme = "https" if self._options.tls is not None else "http"
        return self._options.address.url(port).replace("ws", scheme, 1)

    async def _until_done(self) -> None:
        every = [(BEAT_S, self._beat), (TIDY_S, self._tidy), (CHECK_S, self._check)]
        if self._bridge is not None:
            every.append((BRIDGE_BEAT_S, self._bridge.keep))
        for pause_s, work in every:
            self._tasks.start(self._repeat(pause_s, work))
        await self._done.wait()

    async def _repeat(self, pause_s: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await work()
            except HoldfastError as exc:
                log.warning("the store does not answer", extra={"reason": str(exc)})

    async def _leave(self) -> None:
        self._done.set()
        for connection in list(self._sockets):
            connection.drop("the relay stops")
        if self._bus is not None and self._bridge is not None:
            self._bridge.cut("the relay stops")
            await self._bus.aclose()
        await self._tasks.aclose()
        if self._ready:
            record("relay.stopped")
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._store.write(verbs.leave, self._id)
        await self._store.aclose()

    # --- heartbeat

    async def _beat(self) -> None:
        orders = await self._store.write(verbs.beat, self._id, self._url)
        await self._detach()
        if orders is None:
            for connection in list(self._sockets):
                connection.drop("the relay's store has forgotten this node")
        for order in orders or ():
            if order.kind == "token":
                record("token.revoked", tenant=order.tenant, token_id=order.subject)
                across = [one.socket for one in self._joints if one.token_id == order.subject]
                for opened in [*self._switchboard.opened_by(order.subject), *across]:
                    opened.drop("its token was revoked")
            else:
                old = self._switchboard.held_until(order.tenant, order.subject, order.epoch)
                if old is not None:
                    old.drop("another executor has the environment")

    async def _tidy(self) -> None:
        await self._store.write(verbs.tidy)

    async def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._sockets):
            connection.check(now)

    # --- requests

    def start(self, connection: RelayConnection, head: RequestHead, body: bytes) -> None:
        if len(self._tasks) >= MAX_ASKED:
            connection.refuse(messages.STORE_DOWN)
            return
        self._tasks.start(self._answer(connection, head, body))

    async def _answer(self, connection: RelayConnection, head: RequestHead, body: bytes) -> None:
        if head.get("origin") is not None:  # a browser is never admitted
            connection.refuse(messages.FORBIDDEN)
        elif head.path in _PROBES:
            connection.answer(HeadAnswer(200 if self._ready else 503, head_only=head.method == "HEAD"))
        elif head.path == "/metrics" and (page := self._metrics.render()) is not None:
            self._show_metrics(connection, head, page)
        elif head.path.startswith(signedurl.PREFIX):
            await self._open(connection, head)
        elif (asked := messages.parse_path(head.path)) is not None and head.method == "POST":
            peer = self._peer(connection, head)
            began = time.perf_counter()
            said = await self._registry.answer(asked, head.only("authorization"), peer, body)
            status = said.status if isinstance(said, RegistryRefusal) else 200
            self._metrics.record_answer(asked.operation, status, time.perf_counter() - began)
            connection.say(said)
        else:
            connection.refuse(messages.NO_ROUTE)

    def _show_metrics(self, connection: RelayConnection, head: RequestHead, page: bytes) -> None:
        """Show metrics to this machine only: there is no token for them."""
        near = all(_is_loopback(peer) for peer in (connection.peer, self._peer(connection, head)))
        if near and head.method == "GET":
            connection.answer(HeadAnswer(200, page, _METRICS))
        else:
            connection.refuse(messages.FORBIDDEN)

    def _count(self) -> dict[str, int]:
        executors = self._switchboard.executors()
        return {
            "holdfast_relay_executors": len(executors),
            "holdfast_relay_harnesses": sum(len(one.harnesses) for one in executors),
            "holdfast_relay_frames_routed": self.routed,
            "holdfast_relay_frames_unrouted": self.unrouted,
            "holdfast_relay_unsent_bytes": sum(one.unsent for one in self._sockets),
            "holdfast_relay_bridge_up": int(self._bus is not None and self._bus.is_up),
            "holdfast_relay_bridge_streams": 0 if self._bridge is None else len(self._bridge),
            "holdfast_relay_bridge_lost": 0 if self._bridge is None else self._bridge.lost,
            "holdfast_relay_bridge_foreign": 0 if self._bridge is None else self._bridge.foreign,
        }

    def _peer(self, connection: RelayConnection, head: RequestHead) -> str:
        """The address of the peer; behind a proxy the last one that the proxy names.

        Only the last is trusted. Some proxies append to the header that the client sent, and some add another
        header after it.
        """
        if self.behind_proxy:
            named = [value for name, value in head.headers if name == "x-forwarded-for" and value]
            return named[-1].rpartition(",")[2].strip() if named else connection.peer
        return connection.peer

    # --- sockets

    async def _open(self, connection: RelayConnection, head: RequestHead) -> None:
        opening = accept(head) if head.method == "GET" and head.wants_upgrade() else None
        if opening is None:
            connection.answer(HeadAnswer(400))
            return
        claim = signedurl.verify(head.path, head.query, self._key, time.time())
        if isinstance(claim, Rejected):
            self._refuse(connection, claim.code)
            return
        if len(self._sockets) >= MAX_SOCKETS:
            connection.refuse(RegistryRefusal(503, "pod_draining", "the relay is full; try again later"))
            return
        try:
            if claim.role == signedurl.EXECUTOR_ROLE:
                await self._open_executor(connection, claim, opening)
            else:
                await self._open_harness(connection, claim, opening)
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": str(exc)})
            connection.refuse(messages.STORE_DOWN)

    async def _open_executor(self, connection: RelayConnection, claim: Claim, opening: bytes) -> None:
        place = claim.tenant, claim.environment
        held = await self._store.write(verbs.attach, *place, claim.registration, self._id)
        if isinstance(held, Held) and self._switchboard.has_newer(held):
            held = "route_unavailable"
        if isinstance(held, str):
            self._refuse(connection, held, claim)
            return
        made, before = self._switchboard.add_executor(held, connection)
        if before is not None:
            before.socket.drop("the executor has a newer socket")
        if connection.gone:
            self._forget(made)
            return
        _record("executor.connected", held, connection)
        self._metrics.record_rendezvous("executor", "success")
        self._sockets.add(connection)
        connection.open(opening, made)

    async def _open_harness(self, connection: RelayConnection, claim: Claim, opening: bytes) -> None:
        place = claim.tenant, claim.environment, claim.registration
        if self._bridge is not None and not self._switchboard.holds(*place):
            await self._open_across(self._bridge, connection, claim, opening)
            return
        made = await self._let_in(connection, claim.id, *place)
        if isinstance(made, str):
            self._refuse(connection, made, claim)
            return
        if connection.gone:
            self._switchboard.remove_harness(made)
            return
        _record("harness.connected", made.executor.held, connection, made.token_id)
        self._metrics.record_rendezvous("harness", "success")
        self._sockets.add(connection)
        connection.open(opening, made)
        self.note_flow(connection)

    async def _let_in(
        self, socket: Socket, id_: str, tenant: str, environment: str, registration: str
    ) -> HarnessSocket[Socket] | str:
        """Admit a harness with this bundle, or return the code of the refusal."""
        place = tenant, environment, registration
        token_id = await self._store.write(verbs.dial, id_, *place)
        if token_id is None:
            return "expired"
        return self._switchboard.add_harness(*place, token_id, socket) or UNAVAILABLE

    # --- harnesses and executors of other nodes

    async def _open_across(
        self, bridge: Bridge, connection: RelayConnection, claim: Claim, opening: bytes
    ) -> None:
        """Open a harness's socket when its executor is at another node, which decides about it."""
        place = claim.tenant, claim.environment, claim.registration
        node = await self._store.read(verbs.find_node, *place)
        if node in (None, self._id):
            found: tuple[Link, str] | str = UNAVAILABLE
        else:
            found = await bridge.dial(str(node), Opening(*place, claim.id, connection.peer))
        if isinstance(found, str):
            self._refuse(connection, found, claim)
            return
        link, token_id = found
        joint = Joint(connection, link, token_id, self._part)
        if connection.gone or link.gone:
            link.drop("nobody waits for it")
            self._refuse(connection, UNAVAILABLE, claim)
            return
        self._metrics.record_rendezvous("harness", "success")
        self._joints.add(joint)
        self._sockets.add(connection)
        connection.open_for(joint, opening)

    def _part(self, joint: Joint) -> None:
        self._joints.discard(joint)
        if isinstance(joint.socket, RelayConnection):
            self._sockets.discard(joint.socket)

    def _admit(self, link: Link, opening: Opening) -> None:
        """Take a request of another node, whose harness wants an executor of ours."""
        if len(self._tasks) >= MAX_ASKED:
            link.refuse(UNAVAILABLE)
        else:
            self._tasks.start(self._admit_harness(link, opening))

    async def _admit_harness(self, link: Link, opening: Opening) -> None:
        place = opening.tenant, opening.environment, opening.registration
        try:
            made = await self._let_in(link, opening.id, *place)
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": str(exc)})
            made = UNAVAILABLE
        if isinstance(made, str):
            link.refuse(made)
            return
        if link.gone:
            self._switchboard.remove_harness(made)
            return
        _record("harness.connected", made.executor.held, link, made.token_id)
        link.end = made
        link.accept(self, made.token_id)
        self.note_flow(link)

    # --- refusals and frames

    def _refuse(self, connection: RelayConnection, code: str, claim: Claim | None = None) -> None:
        """Refuse a socket: 503 for an executor that must wait, 401 for a peer that needs another address."""
        executor = claim is not None and claim.role == signedurl.EXECUTOR_ROLE
        status = 503 if executor and code == "route_unavailable" else 401
        role = "unknown" if claim is None else "executor" if executor else "harness"
        self._metrics.record_rendezvous(role, code)
        if claim is not None:
            event = "executor.refused" if executor else "harness.refused"
            named = {"tenant": claim.tenant, "environment": claim.environment}
            record(event, **named, peer=connection.peer, reason=code)
        connection.refuse(RegistryRefusal(status, code, "the address is not accepted"))

    def take(self, socket: Socket, frame: bytes) -> None:
        end = socket.end
        try:
            if isinstance(end, ExecutorSocket):
                target = self._switchboard.from_executor(end, frame)
            elif end is not None:
                target = self._switchboard.from_harness(end, frame)
            else:
                return
        except RemoteProtocolError as exc:
            self.unrouted += 1
            if not isinstance(end, ExecutorSocket):  # an executor also has other streams
                socket.drop(str(exc))
            return
        if target is None:
            self.unrouted += 1
        else:
            self.routed += 1
            target.send(frame)

    def note_flow(self, socket: Socket) -> None:
        end = socket.end
        if isinstance(end, ExecutorSocket):
            end.behind = socket.behind
            for harness in end.harnesses:
                harness.socket.set_reading(not end.behind)
        elif end is not None:
            end.behind = socket.behind
            end.executor.socket.set_reading(end.executor.readable)
            socket.set_reading(not end.executor.behind)

    def lose(self, socket: Socket) -> None:
        if isinstance(socket, RelayConnection):
            self._sockets.discard(socket)
        end, socket.end = socket.end, None
        if isinstance(end, ExecutorSocket):
            _record("executor.disconnected", end.held, socket)
            self._forget(end)
        elif end is not None:
            _record("harness.disconnected", end.executor.held, socket, end.token_id)
            farewell = self._switchboard.remove_harness(end)
            if farewell is not None:
                end.executor.socket.send(farewell)
            end.executor.socket.set_reading(end.executor.readable)

    def _forget(self, executor: ExecutorSocket[Socket]) -> None:
        for harness in self._switchboard.remove_executor(executor):
            harness.drop("its executor is gone")
        self._lost.append(executor.held)
        if not self._done.is_set():  # otherwise the store is notified for the whole node
            self._tasks.start(self._detach())

    async def _detach(self) -> None:
        """Report lost sockets to the store; if it does not answer, a later heartbeat repeats it."""
        lost, self._lost = self._lost, []
        while lost:
            try:
                await self._store.write(verbs.detach, lost[-1], self._id)
            except HoldfastError:
                self._lost += lost
                return
            lost.pop()


def _record(event: str, held: Held, socket: Socket, token_id: str = "") -> None:
    record(
        event,
        tenant=held.tenant,
        environment=held.environment,
        registration=held.registration,
        token_id=token_id or held.token_id,
        peer=socket.peer,
    )


def _allow_files() -> None:
    """Raise the limit of descriptors to what all sockets need, or to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextlib.contextmanager
def _hold_last(sock: socket.socket) -> Iterator[None]:
    """Make the kernel close the listener of a killed relay before its connections.

    The kernel closes descriptors from the highest number down. A harness that loses its socket asks the
    registry at once. If its connection is refused, the reference's harness tries again; if a dying listener
    accepts it, the harness gives up.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MAX_FILES if soft == resource.RLIM_INFINITY else min(soft, MAX_FILES)
    fd = None
    with contextlib.suppress(OSError):  # no such number is free; then it works without this
        fd = fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, most - SPARE_FILES // 2)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _websocket(base: str) -> str:
    """The WebSocket URL of the same address."""
    return base.rstrip("/").replace("http", "ws", 1)


async def serve(options: RelayOptions, announce: Callable[[str], None]) -> None:
    """Run `holdfast relay serve` until SIGTERM or SIGINT, which end it cleanly.

    Raises:
        StartupError: it never began to serve.
    """
    _allow_files()
    node = Node(options)
    loop = asyncio.get_running_loop()
    for signum in ENDING:
        loop.add_signal_handler(signum, node.stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    await node.serve(announce)
