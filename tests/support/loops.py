"""An event loop for tests that ends with everything in it, and says what a test left open.

What is open when its loop is closed is found at some later moment, by whichever test is then running, and
fails that one.
"""

import asyncio
import contextlib
import socket
from asyncio import sslproto
from collections.abc import Iterator
from typing import Any

from tests.support.patience import patient

LONGEST_S = 5.0  # for what is being closed to be so


class SettlingLoop(asyncio.SelectorEventLoop):
    """Closes once the connections in it are; one that nobody has closed is the fault of what ran in it."""

    def close(self) -> None:
        left = [] if self.is_closed() else self.run_until_complete(self._settle())
        super().close()
        assert not left, f"left open: {left}"

    async def _accept_connection2(  # of asyncio, where a server that was closed meanwhile leaves it open
        self, factory: object, sock: socket.socket, extra: object, tls: object, server: Any, *more: object
    ) -> None:
        if server.sockets:
            await super()._accept_connection2(factory, sock, extra, tls, server, *more)  # type: ignore[misc]
        else:
            sock.close()

    async def _settle(self) -> list[str]:
        for transport in self._connections():
            if _is_new(transport):
                transport.abort()
        await self._wait_for_closing()
        left = [transport for transport in self._connections() if not transport.is_closing()]
        told = [f"{one!r} of {one.get_protocol()!r}" for one in left]
        for transport in left:
            transport.abort()
        await self._wait_for_closing()
        return told

    def _connections(self) -> Iterator[asyncio.Transport]:
        """Those whose socket is open."""
        for transport in list(vars(self)["_transports"].values()):
            if transport.get_extra_info("socket").fileno() >= 0:
                yield transport

    async def _wait_for_closing(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patient(LONGEST_S)):
                while any(transport.is_closing() for transport in self._connections()):
                    await asyncio.sleep(0.001)


def _is_new(transport: asyncio.Transport) -> bool:
    """Whether a stream server has accepted it, whose handler may have been cancelled before it began."""
    streams = isinstance(transport.get_protocol(), asyncio.StreamReaderProtocol | sslproto.SSLProtocol)
    return streams and vars(transport)["_server"] is not None
