"""Connections that are read, on pairs of sockets: which of those outside are used again."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from holdfast.egress.keys import inspector
from holdfast.egress.keys.inspector import Inspector
from holdfast.egress.keys.placeholders import Key
from holdfast.egress.traffic import Sent

TARGET = ("api.test", 80)
KEY = Key("API_KEY", "the-real-key-1", "a-placeholder1", frozenset({TARGET}), frozenset({TARGET}))
ASK = b"GET /%d HTTP/1.1\r\nHost: api.test\r\nX-Key: a-placeholder1\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nthe-real-key-1"


@dataclass
class Host:
    """At the other end of each connection; it says the key back."""

    closes: bool = False
    says_more: bytes = b""
    heard: list[list[bytes]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def dial(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.heard.append([])
        self._tasks.append(asyncio.ensure_future(self._serve(theirs, self.heard[-1])))
        return ours

    async def _serve(self, sock: socket.socket, heard: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        with sock:
            while data := await loop.sock_recv(sock, 65536):
                while not (data.endswith(b"\r\n\r\n") and (b"chunked" not in data or b"\r\n0\r\n" in data)):
                    data += await loop.sock_recv(sock, 65536)
                heard.append(data)
                await loop.sock_sendall(sock, FINE + self.says_more)
                if self.closes:
                    break
        self.gone.set()


@asynccontextmanager
async def talking(host: Host) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Sent]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    row = Sent(*TARGET)
    refused: list[object] = []
    serving = asyncio.ensure_future(
        Inspector([KEY]).serve(theirs, b"", TARGET, host.dial, lambda *told: refused.append(told), row)
    )
    reader, writer = await asyncio.open_connection(sock=ours)
    yield reader, writer, row
    writer.close()
    await serving
    theirs.close()
    assert not refused


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"200 OK" in head, head
    return await reader.readexactly(14)


async def test_the_requests_of_a_connection_share_one_outside() -> None:
    host = Host()
    async with talking(host) as (reader, writer, row):
        for number in range(3):
            assert await ask(reader, writer, ASK % number) == b"a-placeholder1"
    assert [len(requests) for requests in host.heard] == [3]
    assert all(b"X-Key: the-real-key-1" in request for request in host.heard[0])
    assert row.sent == sum(map(len, host.heard[0]))
    assert row.received == 3 * len(FINE)


async def test_one_that_the_host_has_closed_is_made_again() -> None:
    host = Host(closes=True)
    async with talking(host) as (reader, writer, _):
        for number in range(2):
            assert await ask(reader, writer, ASK % number) == b"a-placeholder1"
            await host.gone.wait()
    assert [len(requests) for requests in host.heard] == [1, 1]


async def test_what_the_host_says_unasked_is_no_answer() -> None:
    host = Host(says_more=b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nanother answer")
    async with talking(host) as (reader, writer, _):
        for number in range(2):
            assert await ask(reader, writer, ASK % number) == b"a-placeholder1"
    assert [len(requests) for requests in host.heard] == [1, 1]


async def test_a_body_in_chunks_is_the_last_on_its_connection() -> None:
    host = Host()
    async with talking(host) as (reader, writer, _):
        await ask(reader, writer, CHUNKED)
        await ask(reader, writer, ASK % 1)
    assert [len(requests) for requests in host.heard] == [1, 1]
    assert b"Connection: close" in host.heard[0][0]


async def test_one_that_was_idle_for_long_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "IDLE_S", 0.0)
    host = Host()
    async with talking(host) as (reader, writer, _):
        for number in range(2):
            await ask(reader, writer, ASK % number)
    assert [len(requests) for requests in host.heard] == [1, 1]
