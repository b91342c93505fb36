"""An exec server that clients of a registry reach by a forwarder, which knows nothing of what it carries."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from holdfast.client.links.noiselink import NoiseLink, dial_noise
from holdfast.client.links.target import NoiseTarget, ServerLink
from holdfast.errors import HoldfastError, StartupError
from holdfast.server.remote import forwarding as forwarding_module
from holdfast.server.remote.forwarding import check_destination
from tests.support.peer import serving
from tests.support.relayservice import (
    ENVIRONMENT,
    TOKEN,
    WAIT_S,
    RelayService,
    forwarding,
    reached,
    relay_service,
)
from tests.support.rows import every_row
from tests.support.tcp import tcp_server


@pytest.fixture
async def service() -> AsyncIterator[RelayService]:
    async with relay_service() as service:
        yield service


class Heard:
    """Who receives on a link: what came, and why it ended."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()

    def on_open(self, link: ServerLink) -> None: ...

    def on_message(self, message: bytes | memoryview) -> None:
        self.messages.put_nowait(bytes(message))

    def on_end(self, error: HoldfastError) -> None:
        self.ended.set_result(error)

    def on_writable(self, now: bool) -> None: ...


@asynccontextmanager
async def raw(service: RelayService) -> AsyncIterator[tuple[NoiseLink, Heard]]:
    """A client that sends any bytes."""
    heard = Heard()
    link = await dial_noise(NoiseTarget(service.url, ENVIRONMENT, TOKEN), heard, timeout_s=WAIT_S)
    try:
        async with asyncio.timeout(WAIT_S):
            yield link, heard
    finally:
        await link.aclose()


@asynccontextmanager
async def destination(talk: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """A WebSocket server that is no exec server."""
    async with serve(talk, "127.0.0.1", 0, compression=None, max_size=2**26) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_commands_run_on_the_server_behind_a_forwarder(service: RelayService) -> None:
    async with serving() as (url, _), forwarding(service, url), reached(service) as environment:
        assert (await environment.run(["/bin/sh", "-c", "echo hi; exit 3"])).code == 3
        counted = await environment.run(["/usr/bin/wc", "-c"], input=bytes(13 * 2**20))
        assert counted.stdout.strip() == str(13 * 2**20).encode()
        assert (await environment.run(["/bin/echo", "after it"])).stdout == b"after it\n"
    assert b"after it" not in b"".join(frame for _, frame in service.seen)


async def test_a_session_survives_a_cut_on_either_side_of_a_forwarder(service: RelayService) -> None:
    async with serving() as (url, _), forwarding(service, url), reached(service) as environment:
        process = await environment.start(["/bin/cat"], stdin=True)
        for cut in (service.drop_clients, service.drop_executor):
            await process.write(b"word\n")
            cut()
        await process.write(b"last\n")
        await process.close_stdin()
        assert (await process.wait()).stdout == b"word\nword\nlast\n"


async def test_any_bytes_pass_and_each_message_stays_one(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding_module, "FRAGMENT_BYTES", 1000)

    async def echo(socket: ServerConnection) -> None:
        assert "authorization" not in socket.request.headers  # type: ignore[union-attr]
        with suppress(ConnectionClosed):
            while True:
                pieces = [piece async for piece in socket.recv_streaming(decode=False)]
                assert max(map(len, pieces)) <= 1000
                await socket.send(b"".join(pieces))

    async with destination(echo) as url, forwarding(service, url), raw(service) as (link, heard):
        for message in (b"\0\xff{", b"x", bytes(range(256)) * 300):
            link.send(message)
            assert await heard.messages.get() == message


async def test_what_the_server_said_before_it_hung_up_is_delivered_before_the_reset(
    service: RelayService,
) -> None:
    async def farewell(socket: ServerConnection) -> None:
        await socket.recv()
        for number in range(200):
            await socket.send(b"%d" % number * 10_000)
        await socket.close()

    async with destination(farewell) as url, forwarding(service, url), raw(service) as (link, heard):
        link.send(b"go")
        assert str(await heard.ended) == "Noise relay stream reset"
        assert heard.messages.qsize() == 200


async def test_a_server_that_is_not_there_is_a_reset(service: RelayService) -> None:
    async with forwarding(service, "ws://127.0.0.1:1"), raw(service) as (_, heard):
        assert str(await heard.ended) == "Noise relay stream reset"


async def test_a_client_that_is_gone_is_gone_for_the_server_as_well(service: RelayService) -> None:
    met, left = asyncio.Event(), asyncio.Event()

    async def wait(socket: ServerConnection) -> None:
        met.set()
        await socket.wait_closed()
        left.set()

    async with destination(wait) as url, forwarding(service, url), raw(service):
        await met.wait()
        service.drop_clients()
        await left.wait()


async def test_a_client_that_is_gone_is_not_dialled_for(service: RelayService) -> None:
    met, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        met.set()
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""  # no upgrade was answered
        left.set()

    async with (
        tcp_server(silent) as port,
        forwarding(service, f"ws://127.0.0.1:{port}"),
        raw(service),
    ):
        await met.wait()
        service.drop_clients()
        await left.wait()


@every_row("url", ["", "http://127.0.0.1:1", "ws://", "127.0.0.1:1", "ws://[::"])
def test_a_destination_is_a_websocket(url: str) -> None:
    with pytest.raises(StartupError):
        check_destination(url)
    assert check_destination(" wss://box.example ") == "wss://box.example"
