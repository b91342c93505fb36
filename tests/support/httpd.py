"""A small HTTP/1.1 server on loopback whose every reply the test writes itself, byte for byte."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for given, value in self.headers if given.lower() == name.lower()]


Script: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int = 200, body: bytes = b"", *headers: tuple[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body


@dataclass
class Httpd:
    """Answers by path: with bytes, or with a script that may take its time and then ends the connection."""

    replies: dict[str, bytes | Script] = field(default_factory=dict)
    otherwise: bytes | Script = field(default_factory=lambda: reply(body=b"ok"))
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def url(self, target: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{target}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _read_request(reader)
                self.received.append(request)
                answer = self.replies.get(request.target, self.otherwise)
                if not isinstance(answer, bytes):
                    await answer(reader, writer)
                    return
                writer.write(answer)
                await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8")
    start, *lines = head.split("\r\n")[:-2]
    method, target, _ = start.split(" ")
    headers = [(name, value.strip(" ")) for name, _, value in (line.partition(":") for line in lines)]
    lengths = [int(value) for name, value in headers if name.lower() == "content-length"]
    return Received(method, target, headers, await reader.readexactly(sum(lengths)))


@contextlib.asynccontextmanager
async def httpd(
    replies: dict[str, bytes | Script] | None = None, *, certificate: Path | None = None
) -> AsyncIterator[Httpd]:
    """A running server, over TLS if it has a certificate; its connections end with the block."""
    daemon = Httpd(replies or {})
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await daemon._serve(reader, writer)
        except asyncio.CancelledError:
            return  # the block has ended; a streams server would report the cancellation as an error
        finally:
            writer.close()

    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    server = await asyncio.start_server(connection, "127.0.0.1", 0, ssl=tls)
    daemon.port = server.sockets[0].getsockname()[1]
    try:
        yield daemon
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
