"""An application may log all that it can: no address with its signature, token or message is in there."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from websockets.frames import Frame, Opcode

from holdfast.client.links.target import parse_target
from holdfast.client.links.transport import WebSocketLink
from holdfast.errors import HoldfastError
from holdfast.rendezvous.relaysocket import dial_relay
from holdfast.server.remote.forwarding import ForwardedStream
from tests.support.patience import patient
from tests.unit.wire.test_pongs import SOCKETS, Stuck

LIMIT_S = patient(10.0)
SECRET = "MOST-SECRET"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


@contextlib.asynccontextmanager
async def nobody() -> Any:
    """The address of a listener that hangs up."""

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/?sig={SECRET}"
    finally:
        server.close()


async def test_the_address_of_a_relay_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    async with nobody() as url, asyncio.timeout(LIMIT_S):
        with pytest.raises(HoldfastError):
            await dial_relay(url, cast(Any, Stuck()))
    assert SECRET not in logged.text


async def test_the_address_that_is_forwarded_to_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    tasks: list[asyncio.Task[None]] = []
    async with nobody() as url, asyncio.timeout(LIMIT_S):
        ForwardedStream(cast(Any, Stuck()), url, tasks.append)
        await tasks[0]
    assert SECRET not in logged.text


async def test_the_token_of_a_server_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    target = cast(Any, parse_target(f"ws://x/?sig={SECRET}", SECRET))
    WebSocketLink(target, cast(Any, Stuck())).connection_made(cast(Any, Stuck()))
    assert SECRET not in logged.text


@SOCKETS
async def test_no_message_is_logged(
    connect: Callable[[Stuck], None], logged: pytest.LogCaptureFixture
) -> None:
    peer = Stuck()
    connect(peer)
    peer.hear(Frame(Opcode.PING, SECRET.encode()).serialize(mask=peer.pings_are_masked))
    peer.hear(Frame(Opcode.TEXT, SECRET.encode()).serialize(mask=peer.pings_are_masked))
    assert SECRET not in logged.text
