"""The newline edge: converts a unix socket or two pipes to messages of one `ExecConnection` and back."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from holdfast.errors import PeerRefused, RemoteProtocolError
from holdfast.server.edges.edge import WRITE_HIGH_BYTES, Edge
from holdfast.wire import authentication, rpc
from holdfast.wire.lines import LineReader

if TYPE_CHECKING:
    from holdfast.server.connection import ExecConnection

log = logging.getLogger(__name__)

_NEWLINE: Final = b"\n"
AUTHENTICATE_S: Final = 5.0  # to show the token, which our clients send at once


class LineEdge(Edge):
    """One stream. For pipes, `write_to` must set the separate writing transport first."""

    def __init__(
        self,
        *,
        connect: "Callable[[LineEdge], ExecConnection]",
        admit: Callable[[asyncio.BaseTransport], None],
        adopt: Callable[["asyncio.Task[None]"], None],
        finish_at_eof: bool,
        token: Callable[[], str] | None = None,
    ) -> None:
        """`admit` raises PeerRefused; with a `token` the first request must show it."""
        self._token = token
        self._timer: asyncio.TimerHandle | None = None
        self._connect = connect
        self._admit = admit
        self._adopt = adopt
        self._finish_at_eof = finish_at_eof
        self._reader = LineReader()
        self._input: asyncio.ReadTransport
        self._output: asyncio.WriteTransport | None = None

    def write_to(self, output: asyncio.WriteTransport) -> None:
        """Answer on this transport instead of the one that is read."""
        self._output = output
        output.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._input = cast(asyncio.ReadTransport, transport)  # uvloop's has no such base class
        if self._output is None:
            self.write_to(cast(asyncio.WriteTransport, transport))
        try:
            self._admit(transport)
        except PeerRefused as exc:
            self._refuse(exc)
            return
        if self._token is None:
            self._open()
        else:
            self._timer = asyncio.get_running_loop().call_later(AUTHENTICATE_S, self.abort)

    def _refuse(self, exc: PeerRefused) -> None:
        log.warning("connection refused", extra={"reason": str(exc)})
        self.send(authentication.refusal(exc))
        self._close()

    def _open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection = self._connect(self)
        self._task = asyncio.get_running_loop().create_task(self._connection.run())
        self._adopt(self._task)
        self._task.add_done_callback(lambda _: self._close())

    def data_received(self, data: bytes) -> None:
        if self._input.is_closing():
            return
        try:
            for message in self._reader.feed(data):
                if self._connection is None:
                    self._authenticate(message)
                else:
                    self._connection.receive(message)
        except PeerRefused as exc:
            self._refuse(exc)
        except RemoteProtocolError:
            log.warning("connection dropped: a line is too long")
            self.abort()

    def _authenticate(self, message: bytes) -> None:
        if self._token is None:
            raise AssertionError("without a token the connection is open from the start")
        id_ = authentication.check(message, self._token())
        self._open()
        self.send(rpc.response(id_, authentication.Authenticated()))

    def eof_received(self) -> bool:
        if not self._finish_at_eof or self._connection is None:
            return False
        for message in self._reader.finish():
            self._connection.receive(message)
        self._connection.end()
        return True  # keep the transport until all requests are answered

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not (self._finish_at_eof and exc is None):
            self._task.cancel()

    def send(self, message: bytes) -> None:
        if self._output is not None and not self._output.is_closing():
            self._output.write(message + _NEWLINE)

    def pause_reading(self) -> None:
        self._input.pause_reading()

    def resume_reading(self) -> None:
        self._input.resume_reading()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._close()

    def _close(self) -> None:
        self._input.close()
        if self._output is not None:
            self._output.close()
