"""A way to a server that a test can cut: a TCP proxy on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Way:
    """Every connection through it, until it is cut; new ones are let through again."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.shut = False  # nobody gets through

    def cut(self) -> None:
        """Reset every connection there is."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        mine = {writer}
        try:
            if self.shut:
                writer.transport.abort()
                return
            there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
            mine |= {writer, back}
            self._writers |= mine
            await asyncio.gather(_forward(reader, back), _forward(there, writer))
        except ConnectionRefusedError:
            writer.transport.abort()  # the server is being started again
        except asyncio.CancelledError:
            return  # the block has ended; a streams server would report the cancellation as an error
        finally:
            for own in mine:
                own.transport.abort()
            self._writers -= mine
            self._tasks.discard(task)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    """A way to the WebSocket server at `url`."""
    way = Way(url)
    server = await asyncio.start_server(way._connection, "127.0.0.1", 0)
    way.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        way.shut = True
        server.close()
        way.cut()
        await asyncio.sleep(0)  # who has just come is sent away by its task, once that has begun
        tasks = list(way._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)  # what was aborted is closed by the loop
