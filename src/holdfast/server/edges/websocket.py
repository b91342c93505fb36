"""The WebSocket edge: converts bytes of one TCP connection to messages of one `ExecConnection` and back.

Framing is the `websockets` library's sans-I/O core; this class moves bytes, keeps time and decides
nothing else. Messages larger than a frame may be at the peer are sent in fragments.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from holdfast.errors import PeerRefused, RemoteProtocolError
from holdfast.local.peers import Lobby
from holdfast.log import LIBRARY
from holdfast.server.edges.early import FirstConnection
from holdfast.server.edges.edge import WRITE_HIGH_BYTES, Edge
from holdfast.server.edges.httphead import (
    MAX_HEAD_BYTES,
    METRICS,
    HeadAnswer,
    RequestHead,
    accept,
    answer,
    parse_head,
    refuse,
    show_metrics,
)
from holdfast.wire.pongs import Pongs
from holdfast.wire.sizes import MAX_MESSAGE_BYTES, MAX_PARTS

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.server import ServerProtocol

    from holdfast.server.connection import ExecConnection

log = logging.getLogger(__name__)

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024  # the reference's bound of one frame in both directions
FRAGMENT_BYTES: Final = 8 * 1024 * 1024  # half of the reference client's frame limit
HANDSHAKE_S: Final = 10.0  # for the request head, so that silent peers do not pile up
MAX_WAITING: Final = 64  # connections without a complete request head; our clients send it at once

PING_S: Final = 30.0  # as often as the reference
PONG_S: Final = 60.0  # measured from the first unanswered ping; later pings do not extend it

_MAX_SIZES: Final = (MAX_MESSAGE_BYTES, MAX_FRAME_BYTES)
_PONG: Final = 10  # opcodes of frames
_DATA: Final = (0, 1, 2)

Authenticate = Callable[[str | None, asyncio.BaseTransport], None]


class Keepalive:
    """Times the pings. Call `tick` at `next_tick`; send a ping unless it returns that the peer is gone."""

    def __init__(self, now: float) -> None:
        self.next_tick = now + PING_S
        self._unanswered_since: float | None = None

    def tick(self, now: float) -> bool:
        """Return True if the peer has not answered for too long."""
        while self.next_tick <= now:
            self.next_tick += PING_S  # missed ticks are skipped, not made up for
        if self._unanswered_since is None:
            self._unanswered_since = now
        return now - self._unanswered_since >= PONG_S

    def pong(self) -> None:
        """Note that the peer has answered."""
        self._unanswered_since = None


class WebSocketEdge(Edge):
    """One accepted TCP connection."""

    def __init__(
        self,
        *,
        connect: "Callable[[WebSocketEdge, str], ExecConnection]",
        admit: Callable[[asyncio.BaseTransport], None],
        lobby: Lobby,
        authenticate: Authenticate,
        metrics: Callable[[], bytes] | None,
        adopt: Callable[["asyncio.Task[None]"], None],
        first: FirstConnection | None = None,
    ) -> None:
        """`admit` raises PeerRefused for peers that are not even authenticated; others wait in the lobby."""
        self._connect = connect
        self._admit = admit
        self._lobby = lobby
        self._authenticate = authenticate
        self._metrics = metrics
        self._adopt = adopt
        self._first = first
        self._head = bytearray()
        self._frames: ServerProtocol | None = None
        self._parts: list[bytes] = []
        self._pongs = Pongs(WRITE_HIGH_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._keepalive: Keepalive | None = None
        self._transport: asyncio.Transport
        self._peername: tuple[str, int]

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peername = transport.get_extra_info("peername")
        if peername is None:
            transport.abort()  # it was reset before it was accepted; data that it sent may still be readable
            return
        self._peername = peername
        first, self._first = self._first, None
        if first is not None and first.opened:
            self._open(first.received)
            return
        try:
            self._admit(transport)
        except PeerRefused as exc:
            self._finish(HeadAnswer(401, str(exc).encode()))
            return
        self._lobby.enter(transport)
        if first is not None:
            self._handshake(first.received)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._frames is None:
            self._handshake(data)
        else:
            self._feed(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lobby.leave(self._transport)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()  # its result has no recipient any more; the session can be resumed at once

    # --- handshake

    def _handshake(self, data: bytes) -> None:
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > MAX_HEAD_BYTES:
                self._finish(HeadAnswer(400))
            return
        self._lobby.leave(self._transport)
        raw = bytes(self._head[: end + 4])
        rest = bytes(self._head[end + 4 :])
        self._head.clear()
        try:
            head = parse_head(raw)
        except RemoteProtocolError:
            self._finish(HeadAnswer(400))
            return
        reply = answer(head, metrics=self._metrics is not None) or self._answer_caller(head)
        if reply is not None:
            self._finish(reply)
            return
        opening = accept(head)
        if opening is not None:
            self._transport.write(opening)
            self._open(rest)
            return
        from websockets.server import ServerProtocol

        frames = ServerProtocol(max_size=_MAX_SIZES, logger=LIBRARY)
        if self._refuse(frames, raw):
            self._begin(frames, rest)

    def _answer_caller(self, head: RequestHead) -> HeadAnswer | None:
        """The answer that depends on authentication; None: the WebSocket."""
        try:
            self._authenticate(head.get("authorization"), self._transport)
        except PeerRefused as exc:
            return refuse(head, exc)
        if self._metrics is not None and head.path == METRICS:
            return show_metrics(head, self._metrics())
        return None

    def _refuse(self, frames: "ServerProtocol", raw: bytes) -> bool:
        """Let the library report the fault of the request; returns whether it found none."""
        from websockets.exceptions import InvalidHandshake
        from websockets.http11 import Request

        frames.receive_data(raw)
        requests = frames.events_received()
        try:
            if not requests or not isinstance(requests[0], Request):
                raise InvalidHandshake("not a WebSocket handshake")
            frames.send_response(frames.accept(requests[0]))
        except InvalidHandshake:
            self._finish(HeadAnswer(400))
            return False
        self._flush(frames)
        if frames.state is not frames.state.OPEN:
            self._transport.close()
        return frames.state is frames.state.OPEN

    def _open(self, rest: bytes) -> None:
        """Begin frames after the answered handshake."""
        from websockets.protocol import OPEN
        from websockets.server import ServerProtocol

        self._begin(ServerProtocol(state=OPEN, max_size=_MAX_SIZES, logger=LIBRARY), rest)

    def _begin(self, frames: "ServerProtocol", rest: bytes) -> None:
        self._frames = frames
        loop = asyncio.get_running_loop()
        self._keepalive = Keepalive(loop.time())
        self._timer = loop.call_at(self._keepalive.next_tick, self._tick)
        host, port, *_ = self._peername
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connection = self._connect(self, peer)
        self._task = loop.create_task(self._connection.run())
        self._adopt(self._task)
        self._task.add_done_callback(lambda _: self._transport.close())
        if rest:
            self._feed(rest)

    def _finish(self, reply: HeadAnswer) -> None:
        self._transport.write(reply.encode())
        self._transport.close()

    # --- frames

    def _feed(self, data: bytes) -> None:
        frames = self._frames
        if frames is None or self._connection is None:
            raise AssertionError("frames come after the handshake")
        frames.receive_data(data)
        if frames.state is frames.state.OPEN:  # before anything else is sent, because that sends all of them
            for pong in frames.data_to_send():
                self._transport.write(self._pongs.pass_on(pong, self._transport.get_write_buffer_size()))
        for frame in cast("list[Frame]", frames.events_received()):  # the request was taken before
            self._take(frame)
        self._flush(frames)
        if frames.close_expected():
            self._transport.close()

    def _take(self, frame: "Frame") -> None:
        if frame.opcode == _PONG and self._keepalive is not None:
            self._keepalive.pong()
        if frame.opcode not in _DATA:
            return
        if frame.fin and not self._parts:
            message = bytes(frame.data)
        else:
            self._parts.append(bytes(frame.data))
            if len(self._parts) > MAX_PARTS:
                log.warning("connection dropped: a message in too many pieces")
                self._transport.abort()
                return
            if not frame.fin:
                return
            message = b"".join(self._parts)
            self._parts.clear()
        if self._connection is not None:
            self._connection.receive(message)

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._pongs.resume())
        super().resume_writing()

    def _flush(self, frames: "ServerProtocol") -> None:
        for data in frames.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()

    def _tick(self) -> None:
        frames, keepalive = self._frames, self._keepalive
        if frames is None or keepalive is None:
            raise AssertionError("the clock starts with the frames")
        loop = asyncio.get_running_loop()
        if keepalive.tick(loop.time()):
            log.warning("connection dropped: no answer to pings")
            self._transport.abort()
            return
        if frames.state is frames.state.OPEN:
            frames.send_ping(b"")
            self._flush(frames)
        self._timer = loop.call_at(keepalive.next_tick, self._tick)

    # --- what the connection uses

    def send(self, message: bytes) -> None:
        frames = self._frames
        if frames is None or frames.state is not frames.state.OPEN or self._transport.is_closing():
            return
        if len(message) <= FRAGMENT_BYTES:
            frames.send_text(message)
        else:
            view = memoryview(message)
            frames.send_text(bytes(view[:FRAGMENT_BYTES]), fin=False)
            for start in range(FRAGMENT_BYTES, len(message), FRAGMENT_BYTES):
                end = start + FRAGMENT_BYTES
                frames.send_continuation(bytes(view[start:end]), fin=end >= len(message))
        self._flush(frames)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()
