"""Odd requests, addresses and frames against a relay: each is answered or ended, and good streams go on.

HOLDFAST_FUZZ_SEED=n tries others; a failure names the seed and the piece.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from holdfast.errors import RemoteProtocolError
from holdfast.relay.registry import Limits
from holdfast.relay.rules.ratelimit import Rate
from holdfast.wire import relayframes
from tests.support.mutator import chosen_seed
from tests.support.rawrelay import LIMIT_S, RelayUnderTest, dial, receive, relay_under_test
from tests.support.tiers import sizes

OFTEN = Rate(per_s=1e6, burst=10**6)
GOOD_EVERY = 25  # pieces between two looks at a good stream
SEEDS = (
    b"POST /cloud/environment/box/register HTTP/1.1\r\ncontent-length: 10\r\n\r\n0123456789",
    b"GET /ws/environment/box?v=1&role=harness&tenant=t&reg=r&id=i&exp=9999999999&sig=x HTTP/1.1\r\n"
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
)
FRAMES = (
    relayframes.resume("good"),
    relayframes.data("good", 1, b"x" * 50, "00-1-2-3", ""),
    relayframes.handshake("other", b"y" * 50),
    relayframes.reset("other"),
)


def spoil(dice: random.Random, data: bytes) -> bytes:
    """Bytes changed, left out, put in, repeated or cut off."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(made) + 1)
        match dice.randrange(5):
            case 0 if at < len(made):
                made[at] = dice.randrange(256)
            case 1:
                del made[at : at + dice.randint(1, 8)]
            case 2:
                made[at:at] = dice.randbytes(dice.randint(1, 8))
            case 3:
                made += made[at : at + 64]
            case _:
                del made[at:]
    return bytes(made)


async def knock(relay: RelayUnderTest, data: bytes) -> None:
    """Send this, say no more, and be answered or cut off."""
    host, _, port = relay.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        with suppress(OSError):
            writer.write_eof()
            while await reader.read(65536):
                pass
    finally:
        writer.close()


async def talk(socket: ClientConnection, frames: list[bytes]) -> None:
    with suppress(ConnectionClosed, OSError):
        for frame in frames:
            await socket.send(frame)


async def check_good(executor: ClientConnection, harness: ClientConnection, number: int) -> None:
    """A record passes, whatever else came to the executor before it."""
    payload = f"good {number}".encode()
    await harness.send(relayframes.data("mine", number, payload))
    while True:
        with suppress(RemoteProtocolError):  # what is inside a frame is not for a relay to judge
            frame = await receive(executor)
            if (frame.stream_id, frame.payload) == ("mine", payload):
                break
    await executor.send(relayframes.data("mine", number, payload))
    assert (await receive(harness)).payload == payload


@sizes("pieces", quick=200, deep=5000)
async def test_a_relay_outlives_whatever_is_sent_to_it(
    pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, Any], None]
) -> None:
    seed = chosen_seed()
    record_property("pieces", pieces)
    dice = random.Random(seed)  # noqa: S311 - to be repeated
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, Limits(asking=OFTEN)) as relay:
        token = relay.add_token("both")
        async with relay.executor(token) as executor, relay.harness(token, "mine") as harness:
            for number in range(pieces):
                async with asyncio.timeout(LIMIT_S):
                    if number % 2:
                        await knock(relay, spoil(dice, dice.choice(SEEDS)))
                    else:
                        frames = [spoil(dice, dice.choice(FRAMES)) for _ in range(3)]
                        bundle = await relay.connect(token)
                        assert bundle.status == 200, (seed, number, bundle)
                        async with dial(bundle.body["url"]) as bad:
                            await talk(bad, [*FRAMES[:1], *frames] if number % 4 else frames)
                        await talk(executor, [frame for frame in frames if frame])
                    if number % GOOD_EVERY == 0:
                        await check_good(executor, harness, number)
            await check_good(executor, harness, pieces)
            async with asyncio.timeout(LIMIT_S):
                while len(relay.node._sockets) > 2:
                    await asyncio.sleep(0.01)
            assert len(relay.node.lobby) == 0
