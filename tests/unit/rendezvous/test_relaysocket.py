"""The watch over a relay that may be silent, on a loop whose clock jumps."""

import asyncio
from typing import Any, cast

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from holdfast.errors import HoldfastError
from holdfast.rendezvous.relaysocket import LAST_LOOK_S, PING_S, PONG_S, RelayLost, RelaySocket
from tests.support.jumping import JumpingLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": JumpingLoop}


class Relay:
    """The other end of a socket, and the transport in between."""

    def __init__(self) -> None:
        self.pings = 0
        self.answers = True
        self.heard: list[bytes | None] = []
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[float, HoldfastError]] = self.loop.create_future()
        self._protocol = ServerProtocol()
        self._began = self.loop.time()
        self._closing = False
        self.socket = RelaySocket(ClientProtocol(parse_uri("ws://relay")), cast(Any, self), {})
        self.socket.connection_made(cast(Any, self))

    # --- the receiver

    def on_open(self, socket: RelaySocket) -> None:
        pass

    def on_frame(self, frame: bytes | None) -> None:
        self.heard.append(frame)

    def on_writable(self, now: bool) -> None:
        pass

    def on_end(self, error: HoldfastError) -> None:
        self.ended.set_result((self.loop.time() - self._began, error))

    # --- the transport

    def get_extra_info(self, _name: str) -> "Relay":
        return self

    def setsockopt(self, *_option: int) -> None:
        pass

    def set_write_buffer_limits(self, *, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
            elif isinstance(event, Frame) and event.opcode is Opcode.PING:
                self.pings += 1
        self.flush(unless=self.pings > 0 and not self.answers)

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self.loop.call_soon(self.socket.connection_lost, None)

    def close(self) -> None:
        assert not self._closing, "it is closed already, which TLS of Python 3.11.2 does not survive"
        self.abort()

    # --- what the relay does

    def flush(self, *, unless: bool = False) -> None:
        for data in self._protocol.data_to_send():
            if data and not unless:
                self.loop.call_soon(self.socket.data_received, data)

    def say(self, frame: bytes) -> None:
        self._protocol.send_binary(frame)
        self.flush()

    def hang_up(self) -> None:
        self.abort()


async def test_pings_go_out_without_any_traffic_and_pongs_keep_a_connection_up() -> None:
    relay = Relay()
    await relay.socket.opened
    await asyncio.sleep(PING_S * 20.5)
    assert relay.pings == 20
    assert not relay.ended.done()
    relay.hang_up()
    _, error = await relay.ended
    assert isinstance(error, RelayLost)
    assert error.why == "peer_close"


async def test_whatever_else_comes_does_not_stand_for_a_pong() -> None:
    relay = Relay()
    await relay.socket.opened
    relay.answers = False
    for second in range(100):
        relay.say(b"%d" % second)
        await asyncio.sleep(1)
    assert relay.ended.done()
    after_s, error = relay.ended.result()
    assert isinstance(error, RelayLost)
    assert error.why == "pong_timeout"
    assert after_s == pytest.approx(PING_S + PONG_S + LAST_LOOK_S)
    assert relay.pings == 1
    assert len(relay.heard) > PING_S + PONG_S


async def test_what_the_relay_has_ended_is_not_closed_again() -> None:
    relay = Relay()
    await relay.socket.opened
    relay.hang_up()
    await relay.ended
    await relay.socket.aclose()
