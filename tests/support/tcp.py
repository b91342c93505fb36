"""A server on loopback whose connections end with its block.

A server of asyncio waits for them from Python 3.12 on only. One that is still open when its loop is closed is
found later, by whichever test is then running, and fails that one.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

CLOSING_TURNS: Final = 10  # of the loop, which serves and closes whoever has just come
Handle: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def tcp_server(handle: Handle, *, backlog: int = socket.SOMAXCONN) -> AsyncIterator[int]:
    """A server that handles each connection like this, and closes it then; its port."""
    open_ones: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_ones[task] = writer
        try:
            await handle(reader, writer)
        except asyncio.CancelledError:
            return  # the block has ended; a streams server would report the cancellation as an error
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=backlog)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
        for writer in open_ones.values():
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.wait_closed()
