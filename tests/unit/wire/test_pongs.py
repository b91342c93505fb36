"""A peer that pings and reads nothing costs no memory, whichever of our sockets it is at."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from holdfast.client.links.target import parse_target
from holdfast.client.links.transport import WebSocketLink
from holdfast.direct.acceptedlink import AcceptedLink
from holdfast.log import LIBRARY
from holdfast.relay.sockets import RelayConnection
from holdfast.rendezvous.relaysocket import RelaySocket
from holdfast.server.edges.edge import WRITE_HIGH_BYTES
from holdfast.server.edges.websocket import WebSocketEdge
from holdfast.wire.pongs import Pongs

PINGS = 20_000
PAYLOAD = bytes(range(100)) + bytes(25)


class Stuck:
    """A transport to a peer that takes nothing until it is told to; and whatever else a socket asks for."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.high = 64 * 1024
        self.unsent = bytearray()
        self.closing = False
        self.pings_are_masked = False
        self.lobby: Any = None

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_more: None

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else self

    def set_write_buffer_limits(self, *, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return not self.closing

    def abort(self) -> None:
        self.closing = True

    def write(self, data: bytes) -> None:
        before = len(self.unsent)
        self.unsent += data
        if before <= self.high < len(self.unsent):
            self.protocol.pause_writing()

    def drain(self) -> bytes:
        taken, self.unsent = bytes(self.unsent), bytearray()
        self.protocol.resume_writing()
        return taken

    def hear(self, data: bytes) -> None:
        if self.closing:
            return
        if isinstance(self.protocol, WebSocketLink):
            self.protocol.get_buffer(-1)[: len(data)] = data
            self.protocol.buffer_updated(len(data))
        else:
            self.protocol.data_received(data)

    def accept_upgrade(self) -> None:
        """For those who dial."""
        server = ServerProtocol(logger=LIBRARY)
        server.receive_data(bytes(self.unsent))
        (request,) = server.events_received()
        assert isinstance(request, Request)
        server.send_response(server.accept(request))
        self.unsent.clear()
        for data in server.data_to_send():
            self.hear(data)

    def ping(self, payload: bytes) -> bytes:
        return Frame(Opcode.PING, payload).serialize(mask=self.pings_are_masked)


def to_a_relay(peer: Stuck) -> None:
    protocol = ClientProtocol(parse_uri("ws://x"), max_size=2**18, logger=LIBRARY)
    peer.protocol = RelaySocket(protocol, cast(Any, Stuck()), {})
    peer.protocol.connection_made(peer)
    peer.accept_upgrade()


def at_a_relay(peer: Stuck) -> None:
    node = Stuck()
    node.lobby = Stuck()
    peer.protocol = RelayConnection(cast(Any, node))
    peer.protocol.connection_made(peer)
    peer.protocol.open_for(cast(Any, node), b"")
    peer.pings_are_masked = True


def of_a_host(peer: Stuck) -> None:
    peer.protocol = AcceptedLink(cast(Any, peer), lambda _: None)
    peer.protocol.attach(cast(Any, Stuck()))
    peer.pings_are_masked = True


def of_a_server(peer: Stuck) -> None:
    some = cast(Any, Stuck())
    edge = peer.protocol = WebSocketEdge(
        connect=lambda *_: cast(Any, Connection()),
        admit=some,
        lobby=some,
        authenticate=some,
        metrics=None,
        adopt=drop,
    )
    edge._transport, edge._peername, peer.high = cast(Any, peer), ("192.0.2.1", 5), WRITE_HIGH_BYTES
    edge._open(b"")
    peer.pings_are_masked = True


def drop(task: "asyncio.Task[None]") -> None:
    task.cancel()


class Connection(Stuck):
    async def run(self) -> None:
        await asyncio.Event().wait()


def to_a_server(peer: Stuck) -> None:
    peer.protocol = WebSocketLink(cast(Any, parse_target("ws://x")), cast(Any, Stuck()))
    peer.protocol.connection_made(peer)
    peer.accept_upgrade()


SOCKETS = pytest.mark.parametrize("connect", [to_a_relay, at_a_relay, of_a_host, of_a_server, to_a_server])


@SOCKETS
async def test_who_pings_and_reads_nothing_is_owed_one_answer(connect: Callable[[Stuck], None]) -> None:
    peer = Stuck()
    connect(peer)
    many = peer.ping(PAYLOAD) * 100
    for _ in range(PINGS // 100):
        peer.hear(many)
    peer.hear(peer.ping(b"the last"))
    assert len(peer.unsent) < peer.high + 1024
    peer.drain()
    peer.hear(peer.ping(b"again"))
    assert read_pongs(bytes(peer.unsent)) == [b"the last", b"again"]


def read_pongs(raw: bytes) -> list[bytes]:
    """The payloads of frames, masked or not."""
    found, at = [], 0
    while at < len(raw):
        assert raw[at] == 0x80 | Opcode.PONG
        masked, size = raw[at + 1] & 0x80, raw[at + 1] & 0x7F
        at += 2
        mask = raw[at : at + 4] if masked else bytes(4)
        at += 4 if masked else 0
        found.append(bytes(byte ^ mask[index % 4] for index, byte in enumerate(raw[at : at + size])))
        at += size
    return found


@SOCKETS
async def test_a_message_of_endless_empty_pieces_ends_the_connection(
    connect: Callable[[Stuck], None],
) -> None:
    peer = Stuck()
    connect(peer)
    peer.hear(Frame(Opcode.BINARY, b"", fin=False).serialize(mask=peer.pings_are_masked))
    many = Frame(Opcode.CONT, b"", fin=False).serialize(mask=peer.pings_are_masked) * 1000
    for _ in range(66):
        peer.hear(many)
    assert peer.closing


def test_answers_pass_until_the_peer_is_behind_and_then_the_last_is_kept() -> None:
    pongs = Pongs(high=10)
    assert pongs.pass_on(b"1", unsent=10) == b"1"
    assert pongs.resume() == b""
    assert [pongs.pass_on(b"2", unsent=11), pongs.pass_on(b"3", unsent=12)] == [b"", b""]
    assert pongs.resume() == b"3"
    assert pongs.pass_on(b"4", unsent=0) == b"4"
