"""An HTTP proxy on loopback, as a machine behind a firewall has one: it knows names that others do not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import pytest

PROXIES: Final = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@dataclass
class OutwardProxy:
    """`asked` is the first line of every request, `heads` are whole; `known` are the ports of names here."""

    url: str
    known: Mapping[str, int]
    asked: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    refusing: bool = False

    def lead(self, patch: pytest.MonkeyPatch) -> None:
        """The environment names it for everything."""
        for variable in ("NO_PROXY", "no_proxy"):
            patch.delenv(variable, raising=False)
        for variable in PROXIES:
            patch.setenv(variable, self.url)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        self.asked.append(head.partition("\r\n")[0])
        method, target, _ = self.asked[-1].split(" ")
        port = self.known.get(target)
        if method != "CONNECT" or port is None or self.refusing:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 firewall\r\n\r\n")
            await asyncio.wait(
                [asyncio.ensure_future(pass_on(reader, outer)), asyncio.ensure_future(pass_on(inner, writer))]
            )
        finally:
            outer.transport.abort()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything until the end, and the end too."""
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def outward_proxy(known: Mapping[str, int] | None = None) -> AsyncIterator[OutwardProxy]:
    """One on a port of its own. `known`: ports of 127.0.0.1 by what they are asked for as (`NAME:PORT`)."""
    proxy = OutwardProxy("", {} if known is None else known)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await proxy.serve(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(connected(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
