"""Odd byte streams against the listeners: each is answered or ended, and good clients stay.

Thousands in `make deep`. HOLDFAST_FUZZ_SEED=n tries other streams; a failure names the seed and the stream.
"""

import asyncio
import functools
import itertools
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.support.accounting import Due, due, settled
from tests.support.mutator import Mutator, chosen_seed
from tests.support.peer import WAIT_S, ready, serving
from tests.support.servers import holdfast_server
from tests.support.tiers import sizes

Record: TypeAlias = Callable[[str, object], None]

AT_ONCE: Final = 16
GOOD_EVERY: Final = 100  # streams between two visits of a good client
LOOK_EVERY: Final = 25  # streams between two looks into the log
CLOSE_S: Final = 8.0  # shorter than the server's limit for a handshake: nothing may wait for that one
MAX_FRAME: Final = 16 * 1024 * 1024
TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10

HEAD: Final = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
UPGRADE: Final = HEAD + b"\r\n"
INITIALIZE: Final = b'{"id":1,"method":"initialize","params":{"clientName":"f"}}'
INITIALIZED: Final = b'{"method":"initialized"}'
STATUS: Final = b'{"id":2,"method":"environment/status"}'
HEADS: Final = (
    UPGRADE,
    HEAD + b"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: a, b\r\n\r\n",
    HEAD + b"Origin: http://example.test\r\n\r\n",
    HEAD + b"Content-Length: 5\r\n\r\nhello",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    HEAD + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    HEAD + b"X: y\r\n" * 2000 + b"\r\n",
    HEAD.replace(b"13", b"8") + b"\r\n",
    HEAD.replace(b"Sec-WebSocket-Key", b"Sec-WebSocket-Kay") + b"\r\n",
    HEAD.replace(b"dGhl", b"!!!!") + b"\r\n",
    HEAD.replace(b"\r\n", b"\n") + b"\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"",
)  # fmt: skip


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = b"\1\2\3\4",
    length: int | None = None,
) -> bytes:
    """One frame of a client, right or wrong."""
    size = len(payload) if length is None else length
    masked = 0 if mask is None else 0x80
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if size < 126:
        head += bytes([masked | size])
    elif size < 65536:
        head += struct.pack("!BH", masked | 126, size)
    else:
        head += struct.pack("!BQ", masked | 127, size)
    if mask is None:
        return head + payload
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    hidden = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return head + mask + hidden.to_bytes(len(payload), "big")


GREETING: Final = frame(TEXT, INITIALIZE) + frame(TEXT, INITIALIZED)
# Each of these breaks the framing rules, so the server has to hang up by itself.
BREACHES: Final = {
    "no mask": frame(TEXT, STATUS, mask=None),
    "reserved bit": frame(TEXT, STATUS, rsv=4),
    "reserved opcode": frame(3, STATUS),
    "reserved control opcode": frame(11),
    "fragmented control": frame(PING, b"x", fin=False),
    "long control": frame(PING, bytes(126)),
    "continuation of nothing": frame(CONT, STATUS),
    "message within a message": frame(TEXT, b"{", fin=False) + frame(TEXT, STATUS),
    "frame too large": frame(TEXT, b"", length=MAX_FRAME + 1),
    "length beyond 63 bits": frame(BINARY, b"", length=2**63),
    "message too large": frame(TEXT, bytes(1024), fin=False)
    + frame(CONT, bytes(MAX_FRAME), fin=False) * 4,
    "close code missing its second byte": frame(CLOSE, b"\x03"),
    "close": frame(CLOSE, struct.pack("!H", 1000)),
    "close reason not text": frame(CLOSE, struct.pack("!H", 1000) + b"\xff\xff"),
    "unknown notification": frame(TEXT, b'{"method":"no/such"}'),
    "answer to nothing": frame(TEXT, b'{"id":1,"result":null}'),
}  # fmt: skip


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """What the server sent after its 101: opcode and payload of whole messages and control frames."""
    at = data.index(b"\r\n\r\n") + 4
    while at + 2 <= len(data):
        opcode, size = data[at] & 15, data[at + 1]
        at += 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        yield opcode, data[at : at + size]
        at += size


Dial: TypeAlias = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def _to(url: str) -> Dial:
    if url.startswith("unix://"):
        return lambda: asyncio.open_unix_connection(url.removeprefix("unix://"))
    return lambda: asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))


async def _talk(dial: Dial, pieces: list[bytes], *, end: str, until: bytes | None = None) -> bytes:
    """Send, finish as told, and return all that came until the server hung up, or up to `until`.

    `end` is "eof" (we are done sending), "reset", or "wait" (the server has to act on its own). A
    complete request head is answered before we end, else the server could not tell who we are.
    """
    reader, writer = await dial()
    received = bytearray()
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if end != "wait" and b"\r\n\r\n" in b"".join(pieces):
                async with asyncio.timeout(CLOSE_S):
                    received += await reader.read(65536)
            if end == "reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            if end == "eof":
                with suppress(OSError):  # it has hung up already
                    writer.write_eof()
            async with asyncio.timeout(CLOSE_S):
                while data := await reader.read(65536):
                    received += data
                    if until is not None and until in received:
                        break
    finally:
        writer.transport.abort()
    return bytes(received)


async def _many(jobs: Iterator[Callable[[], Awaitable[None]]]) -> None:
    """Run the jobs, a few at a time."""

    async def some() -> None:
        for job in jobs:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


def _clean(log: str) -> bool:
    return "Traceback" not in log and " error " not in log


@pytest.mark.timeout(180)
@sizes("streams", quick=400, deep=6000)
async def test_no_stream_of_bytes_hangs_or_hurts_the_server(
    tmp_path: Path, streams: int, record_property: Record
) -> None:
    """Damaged at random, and before that some by clients that do not even wait to be accepted."""
    number = chosen_seed()
    dice = random.Random(number)  # noqa: S311 - repeatable is the point
    lawful = [
        head + GREETING + frame(PING, b"p") + frame(TEXT, STATUS[:9], fin=False) + frame(CONT, STATUS[9:])
        for head in HEADS
    ] + [UPGRADE + GREETING + breach for breach in BREACHES.values() if len(breach) < 65536]
    mutants = iter(Mutator(number, lawful, structured=False))

    async with holdfast_server(tmp_path / "home") as server:
        dial = _to(server.url)

        async def one(count: int) -> None:
            stream = next(mutants)
            pieces = [stream[a:b] for a, b in itertools.pairwise(_cuts(dice, len(stream)))]
            try:
                await _talk(dial, pieces, end="reset" if count % 7 == 0 else "eof")
            except TimeoutError:
                raise AssertionError(
                    f"the server hangs; HOLDFAST_FUZZ_SEED={number}, {pieces!r:.4000}"
                ) from None
            if count % GOOD_EVERY == 0:
                async with ready(server.url) as peer:
                    assert await peer.call("environment/status") == {"status": "ready"}
            if count % LOOK_EVERY == 0:
                assert _clean(server.log), (
                    f"HOLDFAST_FUZZ_SEED={number}, near stream {count}: {server.log[-3000:]}"
                )

        async with ready(server.url):
            before = _open_files(server.pid)
        await _many(functools.partial(_hit_and_run, dial, lawful[0]) for _ in range(streams // 12))
        await _many(functools.partial(one, count) for count in range(streams))
        record_property("streams", streams)
        async with ready(server.url) as peer:
            await peer.start("p", "echo still here")
            await peer.closed("p")
            assert peer.output("p") == b"still here\n"
        assert _clean(server.log), f"HOLDFAST_FUZZ_SEED={number}: {server.log[-3000:]}"
        await settled(lambda: _open_files(server.pid) <= before, WAIT_S, lambda: _open_files(server.pid))


async def _hit_and_run(dial: Dial, stream: bytes) -> None:
    """Send everything and reset the connection, often before it is accepted."""
    _, writer = await dial()
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(stream)
    writer.transport.abort()


def _cuts(dice: random.Random, length: int) -> list[int]:
    middle = (dice.randrange(length + 1) for _ in range(dice.choice((0, 1, 3, 10))))
    return [0, *sorted(middle), length]


def _open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.parametrize("name", BREACHES)
async def test_a_breach_of_the_rules_ends_the_connection(name: str) -> None:
    async with serving() as (url, _):
        received = await _talk(_to(url), [UPGRADE, GREETING, BREACHES[name]], end="wait")
        if received:  # hanging up on unread data may overtake what was sent before
            assert [json.loads(data)["id"] for opcode, data in _frames(received) if opcode == TEXT] == [1]
        async with ready(url) as peer:
            assert await peer.call("environment/status") == {"status": "ready"}


async def test_nothing_sent_after_a_fatal_message_is_carried_out(tmp_path: Path) -> None:
    def makes(name: str) -> bytes:
        params = {"path": (tmp_path / name).as_uri()}
        return frame(TEXT, json.dumps({"id": 5, "method": "fs/createDirectory", "params": params}).encode())

    async with serving() as (url, _):
        stream = UPGRADE + GREETING + makes("before") + BREACHES["unknown notification"] + makes("after") * 3
        await _talk(_to(url), [stream], end="wait")
        async with ready(url) as peer:
            await peer.call("fs/createDirectory", {"path": (tmp_path / "later").as_uri()})
        assert {entry.name for entry in tmp_path.iterdir()} == {"before", "later"}


@sizes("streams", quick=30, deep=300)
async def test_odd_but_lawful_frames_are_all_served(streams: int, record_property: Record) -> None:
    number = chosen_seed()
    dice = random.Random(number)  # noqa: S311 - repeatable is the point
    async with serving() as (url, _):
        record_property("streams", streams)
        for _ in range(streams):
            stream, pings = bytearray(UPGRADE + GREETING), []
            ids = [*range(2, 12), "the end"]
            for id_ in ids:
                message = json.dumps(
                    {"id": id_, "method": "environment/status", "x": "é" * dice.randrange(200)}
                )
                data = message.encode()
                cuts = list(itertools.pairwise(_cuts(dice, len(data))))
                for at, (start, end) in enumerate(cuts):
                    opcode = CONT if at else dice.choice((TEXT, BINARY))
                    stream += frame(opcode, data[start:end], fin=at == len(cuts) - 1, mask=dice.randbytes(4))
                    if dice.random() < 0.2 and (id_ != "the end" or at < len(cuts) - 1):
                        pings.append(dice.randbytes(dice.randrange(126)))
                        stream += frame(PING, pings[-1]) + frame(PONG, b"unasked")
            pieces = [bytes(stream[a:b]) for a, b in itertools.pairwise(_cuts(dice, len(stream)))]
            received = await _talk(_to(url), pieces, end="wait", until=b'"the end"')
            told = list(_frames(received))
            assert [json.loads(data)["id"] for code, data in told if code == TEXT] == [1, *ids], number
            assert [data for code, data in told if code == PONG] == pings, number


@sizes("streams", quick=40, deep=400)
async def test_every_line_gets_what_it_is_due(tmp_path: Path, streams: int, record_property: Record) -> None:
    number = chosen_seed()
    dice = random.Random(number)  # noqa: S311 - repeatable is the point
    mutants = iter(Mutator(number, [INITIALIZE, INITIALIZED, STATUS]))
    last = b'{"id":"the end","method":"environment/status"}'
    async with serving(listen=f"unix://{tmp_path}/socket") as (url, _):
        record_property("streams", streams)
        for _ in range(streams):
            damaged = b"\n".join(itertools.islice(mutants, 12)).replace(b"the end", b"")
            stream = INITIALIZE + b"\r\n \n" + INITIALIZED + b"\n" + damaged + b"\n" + last + b"\n"
            owed: list[int | str | None] = []
            for line in filter(bytes.strip, stream.split(b"\n")):
                debt = due(line.removesuffix(b"\r"), initialized=True)
                if debt.due is Due.DROP:
                    break
                if debt.due is not Due.NOTHING:
                    owed.append(debt.id if debt.due is Due.ANSWER else -1)
            pieces = [stream[a:b] for a, b in itertools.pairwise(_cuts(dice, len(stream)))]
            received = await _talk(_to(url), pieces, end="wait", until=b'"the end"')
            got: list[Any] = [json.loads(line)["id"] for line in received.splitlines()]
            dropped = "the end" not in owed
            # A dropped peer may miss the answers that were still on their way.
            assert (got == owed[: len(got)]) if dropped else (got == owed), (
                f"HOLDFAST_FUZZ_SEED={number}: {stream!r}"
            )
