"""A connection from inside joined to a connection to its host, with a check of the data between them."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.egress.namecheck import NameCheck, Protocol
from holdfast.egress.splice import CHUNK_BYTES, Hold, pump
from holdfast.egress.traffic import Sent

if TYPE_CHECKING:  # imports that few commands need
    from holdfast.egress.keys.masking import Lookout


class CheckedJoint:
    """A connection from inside and one to its host, with the check between them."""

    def __init__(
        self,
        inner: socket.socket,
        outer: socket.socket,
        check: NameCheck,
        row: Sent,
        lookout: "Lookout | None" = None,
        hold: Hold | None = None,
    ) -> None:
        """`lookout` finds keys of other hosts in unencrypted data.

        `hold` delays bytes as limits demand.
        """
        self._inner, self._outer, self._check, self._row = inner, outer, check, row
        self._lookout, self._hold = lookout, hold
        self.passed = False  # whether any data was sent to the host
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # keeps the order of the data that the check releases

    async def pass_out(self) -> None:
        """Pass data from the command to the host, as far as the check allows. Raises OSError, Refused."""
        self._outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not self._check.open or self._looks:
            data = await self._loop.sock_recv(self._inner, CHUNK_BYTES)
            if not data:
                await self._send(self._check.finish)
                self._outer.shutdown(socket.SHUT_WR)
                return
            await self._send(lambda data=data: self._check.feed(data))  # type: ignore[misc]
            await asyncio.sleep(0)  # fast peers never block above, so yield to other tasks
        await pump(self._inner, self._outer, self._count_sent, self._hold)

    async def pass_in(self) -> None:
        """Pass data from the host to the command. Raises OSError, Refused."""
        self._inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self._check.reads_answers:
            data = await self._loop.sock_recv(self._outer, CHUNK_BYTES)
            if not data:
                self._inner.shutdown(socket.SHUT_WR)
                return
            if self._hold is not None:
                await self._hold(len(data))
            await self._loop.sock_sendall(self._inner, data)
            self._row.received += len(data)
            if self._check.listens:
                await self._send(lambda data=data: self._check.hear(data))  # type: ignore[misc]
            await asyncio.sleep(0)
        await pump(self._outer, self._inner, self._count_received, self._hold)

    async def _send(self, next_bytes: Callable[[], bytes]) -> None:
        async with self._turn:
            if data := next_bytes():
                if self._looks and self._lookout is not None and self._lookout.sees(data):
                    raise self._check.refusal("it has a key that is not for it")
                if self._hold is not None:
                    await self._hold(len(data))
                self.passed = True
                await self._loop.sock_sendall(self._outer, data)
                self._row.sent += len(data)

    @property
    def _looks(self) -> bool:
        return self._lookout is not None and self._check.protocol is not Protocol.TLS

    def _count_sent(self, length: int) -> None:
        self._row.sent += length

    def _count_received(self, length: int) -> None:
        self._row.received += length
