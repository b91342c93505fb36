"""An executor that dials its host, without a relay in between: the direct transport.

The registry's answer names the host. Both requests, the registration and the upgrade, are signed with AWS
keys. On the connection the host is the client: it sends `initialize`, in text messages, and runs commands
here. There is no encrypted channel inside: TLS is the only protection, so a host elsewhere is dialled by
wss:// only.
"""

import asyncio
import logging
import random
import secrets
from typing import TYPE_CHECKING

from websockets.exceptions import InvalidURI
from websockets.headers import build_host
from websockets.uri import parse_uri

from holdfast.errors import ConnectionLost, HoldfastError, ProtocolMismatch
from holdfast.rendezvous.attempts import AfterRefusal, HostRedial, after_host
from holdfast.rendezvous.credentials import is_loopback
from holdfast.rendezvous.registryclient import Registry
from holdfast.rendezvous.relaysocket import Dialled, RelaySocket, dial_relay
from holdfast.server.metrics import timed
from holdfast.server.remote.relayedge import Lead, StreamEnd
from holdfast.wire.registry import REQUEST_HEADER, DirectRegisterAnswer
from holdfast.wire.sigv4 import HttpRequest, Sign

if TYPE_CHECKING:
    from holdfast.server.metrics import PrometheusMetrics

log = logging.getLogger(__name__)


class DirectRoute:
    """The route by the host that the registry names. `lead` creates the end of the connection."""

    waits_for_registry = False

    def __init__(
        self, registry: Registry, sign: Sign, lead: Lead, metrics: "PrometheusMetrics | None" = None
    ) -> None:
        self.registry = registry
        self.redial = HostRedial(random.random)
        self._sign = sign
        self._lead = lead
        self._metrics = metrics

    def judge(self, status: int) -> AfterRefusal:
        return after_host(status)

    async def register(self) -> DirectRegisterAnswer:
        return await self.registry.register_directly(new_request_id())

    async def serve(self, registered: DirectRegisterAnswer) -> HoldfastError:
        edge = DirectEdge(self._lead)
        try:
            request = upgrade_of(registered.url, new_request_id())
            headers = {**dict(request.headers[1:]), **await self._sign(request)}
            with timed(self._metrics, "rendezvous"):
                await dial_relay(registered.url, edge, headers=headers, peer=Dialled.HOST)
            log.info("connected to the host")
            return await edge.ended
        finally:
            await edge.aclose()


def new_request_id() -> str:
    """A new id, by which two requests of one second differ.

    Without it a host takes the second for a replay.
    """
    return f"req_{secrets.token_hex(16)}"


def upgrade_of(url: str, request_id: str) -> HttpRequest:
    """The signed part of the request that opens a WebSocket there.

    Raises:
        ProtocolMismatch: this is not a host's address, or the traffic to it could be read on the way.
    """
    try:
        uri = parse_uri(url)
    except InvalidURI:
        raise ProtocolMismatch("the registry gave an address that is none") from None
    if not uri.secure and not is_loopback(url):
        raise ProtocolMismatch(
            "the registry names a host without TLS", remedy="a host elsewhere needs wss://"
        )
    host = build_host(uri.host, uri.port, uri.secure)
    return HttpRequest("GET", uri.resource_name, (("host", host), (REQUEST_HEADER, request_id)))


class DirectEdge:
    """One connection to a host, and the port of its stream's end.

    `ended` completes with the reason of its end.
    """

    def __init__(self, lead: Lead) -> None:
        self.ended: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()
        self._lead = lead
        self._end: StreamEnd | None = None
        self._socket: RelaySocket | None = None

    # --- the socket's side

    def on_open(self, socket: RelaySocket) -> None:
        self._socket = socket
        self._end = self._lead(self)

    def on_frame(self, frame: bytes | None) -> None:
        if self._end is not None and frame is not None:
            self._end.receive(frame)

    def on_writable(self, now: bool) -> None:
        if self._end is not None:
            (self._end.on_writing_resumed if now else self._end.on_writing_paused)()

    def on_end(self, error: HoldfastError) -> None:
        self._socket, end, self._end = None, self._end, None
        if end is not None:
            end.close()
        if not self.ended.done():
            self.ended.set_result(error)

    # --- what the end uses

    def send(self, message: bytes) -> None:
        if self._socket is not None:
            self._socket.send(message)

    def pause_reading(self) -> None:
        self._read(wanted=False)

    def resume_reading(self) -> None:
        self._read(wanted=True)

    def _read(self, *, wanted: bool) -> None:
        if self._socket is not None:
            (self._socket.resume_reading if wanted else self._socket.pause_reading)()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort(ConnectionLost("the connection was closed here"))

    def finish(self) -> None:
        if self._socket is not None:
            self._socket.close()

    async def aclose(self) -> None:
        """Drop the connection and its stream."""
        if self._socket is not None:
            self.abort()
            await self.ended
