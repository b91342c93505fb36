"""The first connection of a server, taken before its event loop is there, gets what any later one gets."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.errors import PeerRefused
from holdfast.local import peers
from holdfast.server.edges.address import WebSocketAddress
from holdfast.server.edges.binding import ServeOptions, bind_tcp
from holdfast.server.edges.early import Check, FirstConnection, receive_first
from holdfast.server.edges.listen import Server
from tests.support.patience import patient
from tests.support.rows import every_row

ADDRESS = WebSocketAddress("127.0.0.1", 0)
WAIT_S = patient(10.0)
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + KEY
MESSAGE = json.dumps({"id": 1, "method": "initialize", "params": {"clientName": "first"}}).encode()
INITIALIZE = (
    bytes([0x81, 0x80 | len(MESSAGE)]) + bytes(4) + MESSAGE
)  # masked with zeros, which change nothing


def _let_in(_authorization: str | None, _own: object, _peer: object) -> None:
    pass


def _refuse(_authorization: str | None, _own: object, _peer: object) -> None:
    raise PeerRefused("not you")


@contextlib.contextmanager
def _listening() -> Iterator[socket.socket]:
    with bind_tcp(ADDRESS) as sock:
        yield sock


@contextlib.contextmanager
def _first_of(sent: bytes, check: Check = _let_in) -> Iterator[tuple[socket.socket, FirstConnection | None]]:
    """A client that has sent this, and what became of it."""
    with _listening() as listening, socket.create_connection(listening.getsockname()) as client:
        client.settimeout(WAIT_S)
        client.sendall(sent)
        first = receive_first(listening, check)
        try:
            yield client, first
        finally:
            if first is not None:
                first.sock.close()


@every_row(
    ("sent", "may", "rest"),
    [
        pytest.param(UPGRADE + b"\r\n", _let_in, b"", id="a handshake"),
        pytest.param(UPGRADE + b"\r\nframe", _let_in, b"frame", id="with a frame behind it"),
        pytest.param(UPGRADE + b"Origin: http://a\r\n\r\n", _let_in, None, id="of a browser"),
        pytest.param(UPGRADE + b"\r\n", _refuse, None, id="of somebody who may not"),
        pytest.param(UPGRADE.replace(b": 13", b": 8") + b"\r\n", _let_in, None, id="of another version"),
        pytest.param(b"GET /readyz HTTP/1.1\r\n\r\n", _let_in, None, id="a probe"),
        pytest.param(b"nonsense\r\n\r\n", _let_in, None, id="no request"),
        pytest.param(UPGRADE, _let_in, None, id="half a request"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000, _let_in, None, id="too long a request"),
        pytest.param(b"", _let_in, None, id="nothing"),
    ],
)
def test_only_a_handshake_with_nothing_wrong_about_it_is_answered(
    sent: bytes, may: Check, rest: bytes | None
) -> None:
    with _first_of(sent, may) as (client, first):
        assert first is not None
        assert first.opened is (rest is not None)
        if rest is None:
            assert sent.startswith(first.received)
        else:
            assert first.received == rest
            assert client.recv(4096).startswith(b"HTTP/1.1 101 ")


def test_nobody_who_connects_is_waited_for_only_a_moment() -> None:
    with _listening() as listening:
        assert receive_first(listening, _let_in) is None


def test_a_client_that_went_again_is_handed_on() -> None:
    with _listening() as listening:
        client = socket.create_connection(listening.getsockname())
        client.sendall(UPGRADE)
        client.close()
        first = receive_first(listening, _let_in)
        assert first is not None
        assert not first.opened
        first.sock.close()


@contextlib.asynccontextmanager
async def _served(sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client whose first words were received before the server had a loop."""
    options = ServeOptions(ADDRESS)
    server = Server(options)
    with _listening() as listening:
        client = socket.create_connection(listening.getsockname())
        client.sendall(sent)
        client.setblocking(False)

        def check(authorization: str | None, own: object, peer: object) -> None:
            peers.check_caller(None, authorization, own, peer)

        first = receive_first(listening, check)
        serving = asyncio.ensure_future(server.serve_bound(listening, first, lambda: None))
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            async with asyncio.timeout(WAIT_S):
                yield reader, writer
        finally:
            writer.close()
            server.stop()
            await serving


async def _says(reader: asyncio.StreamReader, words: bytes) -> None:
    said = b""
    while words not in said:
        more = await reader.read(65536)
        assert more, said
        said += more


@pytest.mark.parametrize("cut", [0, 20, len(UPGRADE) + 2, len(UPGRADE) + 10], ids=str)
async def test_wherever_its_first_packet_ends_a_client_is_answered(cut: int) -> None:
    everything = UPGRADE + b"\r\n" + INITIALIZE
    async with _served(everything[:cut]) as (reader, writer):
        writer.write(everything[cut:])
        await _says(reader, b"HTTP/1.1 101 ")


async def test_a_message_that_came_with_the_handshake_is_answered() -> None:
    async with _served(UPGRADE + b"\r\n" + INITIALIZE) as (reader, _):
        await _says(reader, b'"sessionId"')


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (UPGRADE + b"Origin: http://a\r\n\r\n", b"403"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
    ids=["origin", "probe", "path", "nonsense"],
)
async def test_what_is_no_handshake_gets_its_usual_answer(request_head: bytes, status: bytes) -> None:
    async with _served(request_head) as (reader, _):
        await _says(reader, b"HTTP/1.1 " + status)
        assert await reader.read() == b""


async def test_a_silent_first_client_keeps_nobody_waiting() -> None:
    options = ServeOptions(ADDRESS)
    server = Server(options)
    with _listening() as listening, socket.create_connection(listening.getsockname()):
        first = receive_first(listening, _let_in)
        serving = asyncio.ensure_future(server.serve_bound(listening, first, lambda: None))
        try:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(UPGRADE + b"\r\n" + INITIALIZE)
            async with asyncio.timeout(WAIT_S):
                await _says(reader, b'"sessionId"')
            writer.close()
        finally:
            server.stop()
            await serving


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_event_loop_is_there_ends_the_server_cleanly(how: signal.Signals) -> None:
    argv = [sys.executable, "-m", "holdfast", "serve", "--listen", "ws://127.0.0.1:0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline().startswith(b"ws://")
            served.send_signal(how)
            _, said = served.communicate(timeout=WAIT_S)
            assert (served.returncode, said) == (0, b"")
        finally:
            served.kill()
