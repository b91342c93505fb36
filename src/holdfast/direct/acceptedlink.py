"""A WebSocket that an executor has opened to us, as a link of a client: we send the first message.

Until a session takes it, it waits and pings are answered. A peer that sends a message before that is dropped.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, cast

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from holdfast.client.links.target import Receiver
from holdfast.client.links.transport import CLOSE_S, FRAGMENT_BYTES, WRITE_HIGH_BYTES
from holdfast.errors import ConnectionLost, HoldfastError, RemoteProtocolError
from holdfast.log import LIBRARY
from holdfast.server.edges.websocket import Keepalive
from holdfast.wire.pongs import Pongs
from holdfast.wire.sizes import MAX_MESSAGE_BYTES, MAX_PARTS

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024  # the reference's bound of one frame in both directions


class AcceptedLink(asyncio.Protocol):
    """A link, from the answered upgrade on. `on_gone` is called once, when the connection is lost."""

    def __init__(self, transport: asyncio.Transport, on_gone: "Callable[[AcceptedLink], None]") -> None:
        self._transport = transport
        self._on_gone = on_gone
        sizes = MAX_MESSAGE_BYTES, MAX_FRAME_BYTES
        self._frames = ServerProtocol(state=OPEN, max_size=sizes, logger=LIBRARY)
        self._receiver: Receiver | None = None
        self._error: HoldfastError | None = None
        self._parts: list[bytes] = []
        self._pongs = Pongs(WRITE_HIGH_BYTES)
        self._paused = False
        self._gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._keepalive = Keepalive(loop.time())
        self._timer = loop.call_at(self._keepalive.next_tick, self._tick)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    @property
    def gone(self) -> bool:
        return self._gone.is_set() or self._transport.is_closing()

    def attach(self, receiver: Receiver) -> None:
        """Set the receiver of its messages."""
        self._receiver = receiver
        receiver.on_open(self)

    # --- asyncio's side

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.receive_data(data)
            for pong in self._frames.data_to_send():  # before anything else is sent
                if pong:
                    self._write(self._pongs.pass_on(pong, self._transport.get_write_buffer_size()))
            for frame in cast("list[Frame]", self._frames.events_received()):
                if self._error is None:
                    self._take(frame)
            self._flush()
            if self._frames.close_expected():
                raise ConnectionLost("the executor closed the connection, or sent what it may not")
        except HoldfastError as exc:
            self.abort(exc)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.on_writable(False)

    def resume_writing(self) -> None:
        self._write(self._pongs.resume())
        if self._receiver is not None:
            self._receiver.on_writable(True)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._timer.cancel()
        self._gone.set()
        self._on_gone(self)
        if self._receiver is not None:
            self._receiver.on_end(self._error or ConnectionLost("the executor is gone"))

    # --- frames

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self._keepalive.pong()
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        self._parts.append(bytes(frame.data))
        if len(self._parts) > MAX_PARTS:
            raise RemoteProtocolError("the executor sends a message in too many pieces")
        if not frame.fin:
            return
        message, self._parts = b"".join(self._parts), []
        if self._receiver is None:
            raise RemoteProtocolError("the executor speaks before it is asked")
        self._receiver.on_message(message)

    def _flush(self) -> None:
        for data in self._frames.data_to_send():
            self._write(data)

    def _write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if self._paused:
            self._keepalive.pong()  # it may have answered, but we are not reading
        if self._keepalive.tick(loop.time()):
            self.abort(ConnectionLost("the executor does not answer pings"))
            return
        if self._frames.state is OPEN:
            self._frames.send_ping(b"")
            self._flush()
        self._timer = loop.call_at(self._keepalive.next_tick, self._tick)

    # --- what the receiver uses

    def send(self, message: bytes) -> None:
        if self._frames.state is not OPEN or self._transport.is_closing():
            return
        self._frames.send_text(message[:FRAGMENT_BYTES], fin=len(message) <= FRAGMENT_BYTES)
        for start in range(FRAGMENT_BYTES, len(message), FRAGMENT_BYTES):
            part = message[start : start + FRAGMENT_BYTES]
            self._frames.send_continuation(part, fin=start + FRAGMENT_BYTES >= len(message))
        self._flush()

    def pause_reading(self) -> None:
        self._read(wanted=False)

    def resume_reading(self) -> None:
        self._read(wanted=True)

    def _read(self, *, wanted: bool) -> None:
        self._paused = not wanted
        if not self._transport.is_closing():
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def abort(self, error: HoldfastError) -> None:
        self._error = self._error or error
        self._transport.abort()

    async def aclose(self) -> None:
        self._error = self._error or ConnectionLost("the connection was closed here")
        if self._frames.state is OPEN:
            self._frames.send_close(1000)
            self._flush()
        if not self._transport.is_closing():
            self._transport.close()  # once: TLS of Python 3.11.2 cannot be aborted after a second close
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        self._transport.abort()
        await self._gone.wait()
