"""TLS on a socket from which data may have been read already."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from holdfast.egress.splice import LARGE_CHUNK_BYTES, count_nothing

T = TypeVar("T")


class TlsStream:
    """One end of a TLS connection; the caller owns the socket. One task may receive while another sends."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        first: bytes = b"",
        host: str | None = None,
        sent: Callable[[int], None] = count_nothing,
        received: Callable[[int], None] = count_nothing,
    ) -> None:
        """As a server, or as a client of `host`; `first` was read from the socket before."""
        self._sock, self._sent, self._received = sock, sent, received
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # keep the pieces of the sender
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._in.write(first)
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=host is None, server_hostname=host if host else None
        )
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Raises OSError: the other side speaks no TLS, or is not trusted."""
        await self._do(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """More data, of all records received: one holds 16 KiB at most."""
        found: list[bytes] = []
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLWantReadError):
            found.append(await self._do(lambda: self._tls.read(LARGE_CHUNK_BYTES)))
            while found[-1] and (self._in.pending or self._tls.pending()):
                found.append(self._tls.read(LARGE_CHUNK_BYTES))
        return b"".join(found)

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
            await self._flush()

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    async def end(self) -> None:
        """Send a close_notify alert. Raises OSError."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()

    async def _do(self, step: Callable[[], T]) -> T:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                if data := await self._loop.sock_recv(self._sock, LARGE_CHUNK_BYTES):
                    self._received(len(data))
                    self._in.write(data)
                else:
                    self._in.write_eof()
                continue
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    await self._flush()  # send the alert that gives the reason
                raise
            await self._flush()
            return done

    async def _flush(self) -> None:
        async with self._turn:  # keeps the order of encrypted records
            if data := self._out.read():
                await self._loop.sock_sendall(self._sock, data)
                self._sent(len(data))
