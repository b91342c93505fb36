"""One connection to a relay: a request of the registry, or a WebSocket of the rendezvous.

The head decides which. A request has a bounded body and is answered, then the connection closes. A WebSocket
is opened after the store has permitted it, and then carries frames. This class decides nothing about them
except which peer is too slow. Framing is the `websockets` library's sans-I/O core.

Flow control. Data that a peer does not read waits in its transport. Above SOFT_BYTES the peer is behind.
While an executor is behind, its harnesses are not read from. While all harnesses of an executor are behind,
the executor is not read from. A harness with more than HARD_BYTES unsent is cut off, and so is every peer
that stays behind for STALLED_S. Its stream is reset, and its session resumes on another.
"""

import asyncio
import logging
import socket
from typing import Final, Protocol, cast

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from holdfast.errors import RemoteProtocolError
from holdfast.local.peers import Lobby
from holdfast.log import LIBRARY
from holdfast.relay.registry import Answered
from holdfast.relay.rules import messages
from holdfast.relay.rules.messages import RegistryRefusal
from holdfast.relay.rules.switchboard import ExecutorSocket, HarnessSocket
from holdfast.server.edges.httphead import MAX_HEAD_BYTES, HeadAnswer, RequestHead, parse_head
from holdfast.wire.pongs import Pongs
from holdfast.wire.relayframes import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

SOFT_BYTES: Final = 1024 * 1024  # unsent bytes before a peer counts as behind
HARD_BYTES: Final = 16 * 1024 * 1024  # unsent bytes before a harness that is behind alone is cut off
STALLED_S: Final = 60.0  # how long a peer may stay behind; the reference's write timeout is as long
PING_S: Final = 30.0  # of silence; the reference pings as often by itself
SILENT_S: Final = 90.0  # after which a peer counts as gone, as in the reference
ASK_S: Final = 10.0  # for head and body, so that silent peers do not pile up
MAX_PARTS: Final = 64  # of one message; empty ones cost memory without counting as bytes
_JSON: Final = "application/json"


class Socket(Protocol):
    """An end of streams: a connection to this node, or a link to another.

    `behind`: the peer reads too slowly.
    """

    peer: str
    behind: bool
    end: "ExecutorSocket[Socket] | HarnessSocket[Socket] | None"

    def send(self, frame: bytes) -> None:
        """Pass a frame on."""

    def set_reading(self, wanted: bool) -> None:
        """Set whether more frames are wanted."""

    def drop(self, reason: str) -> None:
        """End the socket at once."""


class SocketOwner(Protocol):
    """What a socket needs of its owner."""

    def take(self, socket: Socket, frame: bytes) -> None:
        """Take a frame from the socket."""

    def note_flow(self, socket: Socket) -> None:
        """Note that the peer is behind, or has caught up."""

    def lose(self, socket: Socket) -> None:
        """Note that the socket is gone."""


class Rendezvous(SocketOwner, Protocol):
    """What a connection needs of its node."""

    lobby: Lobby
    behind_proxy: bool

    def start(self, connection: "RelayConnection", head: RequestHead, body: bytes) -> None:
        """Answer a request, or open a WebSocket, in a separate task."""


class RelayConnection(asyncio.Protocol):
    __slots__ = (
        "_frames",
        "_head",
        "_node",
        "_owner",
        "_parts",
        "_pongs",
        "_request",
        "_transport",
        "behind",
        "end",
        "heard",
        "peer",
        "pinged",
        "stalled_since",
    )

    def __init__(self, node: Rendezvous) -> None:
        self._node = node
        self._owner: SocketOwner = node
        self._head: bytearray | None = bytearray()
        self._request: RequestHead | None = None
        self._frames: ServerProtocol | None = None
        self._parts: list[bytes] | None = None
        self._pongs = Pongs(SOFT_BYTES)
        self._transport: asyncio.Transport
        self.peer = ""
        self.end: ExecutorSocket[Socket] | HarnessSocket[Socket] | None = None
        self.behind = False
        self.heard = 0.0
        self.pinged = False
        self.stalled_since: float | None = None

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        peername = transport.get_extra_info("peername")
        if peername is None:
            transport.abort()  # it was reset before it was accepted
            return
        self.peer = str(peername[0])
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=SOFT_BYTES)
        self._node.lobby.enter(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._frames is not None:
            self._feed(data)
        elif self._head is not None:
            self._head += data
            self._gather(self._head)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._node.lobby.leave(self._transport)
        self._owner.lose(self)

    def pause_writing(self) -> None:
        self.behind = True
        self.stalled_since = asyncio.get_running_loop().time()
        self._owner.note_flow(self)

    def resume_writing(self) -> None:
        self.behind = False
        self.stalled_since = None
        if not self._transport.is_closing():
            self._transport.write(self._pongs.resume())
        self._owner.note_flow(self)

    # --- before the frames

    def _gather(self, received: bytearray) -> None:
        if self._request is None:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                if len(received) > MAX_HEAD_BYTES:
                    self.answer(HeadAnswer(400))
                return
            try:
                self._request = parse_head(bytes(received[: end + 4]))
            except RemoteProtocolError:
                self.answer(HeadAnswer(400))
                return
            del received[: end + 4]
        size = self._size(self._request)
        if size is None or len(received) < size:
            return
        self._node.lobby.leave(self._transport)
        self._transport.pause_reading()
        self._node.start(self, self._request, bytes(received[:size]))
        del received[:size]

    def _size(self, head: RequestHead) -> int | None:
        """The length of the body; None: it was refused."""
        if head.method != "POST":
            return 0
        length = head.only("content-length") or ""
        if head.get("transfer-encoding") is not None or not (length.isascii() and length.isdigit()):
            self.refuse(messages.NO_LENGTH)
        elif len(length) > len(str(messages.MAX_BODY_BYTES)) or int(length) > messages.MAX_BODY_BYTES:
            self.refuse(messages.TOO_LARGE)
        else:
            return int(length)
        return None

    def answer(self, reply: HeadAnswer) -> None:
        """Send the only answer and close."""
        if not self._transport.is_closing():
            self._transport.write(reply.encode())
            self._transport.close()

    def refuse(self, refusal: RegistryRefusal) -> None:
        self.answer(HeadAnswer(refusal.status, refusal.encode(), _JSON))

    def say(self, said: Answered | RegistryRefusal) -> None:
        if isinstance(said, RegistryRefusal):
            self.refuse(said)
        else:
            self.answer(HeadAnswer(200, said.body, _JSON))

    # --- frames

    @property
    def gone(self) -> bool:
        return self._transport.is_closing()

    def open(self, opening: bytes, end: "ExecutorSocket[Socket] | HarnessSocket[Socket]") -> None:
        """Answer the handshake and switch to frames, for this end of streams."""
        self.end = end
        self.open_for(self._node, opening)

    def open_for(self, owner: SocketOwner, opening: bytes) -> None:
        """Answer the handshake and switch to frames, for an owner that knows the end itself."""
        self._owner = owner
        rest, self._head, self._request = bytes(self._head or b""), None, None
        self._frames = ServerProtocol(state=OPEN, max_size=MAX_FRAME_BYTES, logger=LIBRARY)
        self.heard = asyncio.get_running_loop().time()
        self._transport.write(opening)
        self._transport.resume_reading()
        if rest:
            self._feed(rest)

    def _feed(self, data: bytes) -> None:
        frames = self._frames
        if frames is None:
            raise AssertionError("frames come after the handshake")
        self.heard, self.pinged = asyncio.get_running_loop().time(), False
        frames.receive_data(data)
        for frame in cast("list[Frame]", frames.events_received()):
            self._take(frame)
        for out in frames.data_to_send():  # answers to pings, and a closing message
            if out:
                self._transport.write(self._pongs.pass_on(out, self._transport.get_write_buffer_size()))
        if frames.close_expected() and not self._transport.is_closing():
            self._transport.close()  # once: TLS of Python 3.11.2 cannot be aborted after a second close

    def _take(self, frame: Frame) -> None:
        if self._transport.is_closing():
            return
        if frame.opcode is Opcode.BINARY and frame.fin:
            self._owner.take(self, bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self.drop("a text message")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT):
            parts = self._parts = self._parts or []
            parts.append(bytes(frame.data))
            if len(parts) > MAX_PARTS:
                self.drop("a message in too many parts")
            elif frame.fin:
                self._parts = None
                self._owner.take(self, b"".join(parts))

    def send(self, frame: bytes) -> None:
        """Send a frame. A peer that is too far behind is cut off."""
        if self._transport.is_closing():
            return
        self._transport.write(Frame(Opcode.BINARY, frame).serialize(mask=False))
        if self.behind and self._transport.get_write_buffer_size() > HARD_BYTES:
            self.drop("too far behind")

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_reading(self, wanted: bool) -> None:
        if self._transport.is_closing():
            return
        if wanted and not self._transport.is_reading():
            self.heard = asyncio.get_running_loop().time()
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def check(self, now: float) -> None:
        """Ping a silent peer, and drop it later. Called every few seconds."""
        if self.stalled_since is not None and now - self.stalled_since > STALLED_S:
            self.drop("behind for too long")
        elif self._transport.is_closing() or not self._transport.is_reading():
            self.heard = now  # we have paused reading, so its silence means nothing
        elif now - self.heard > SILENT_S:
            self.drop("silent")
        elif now - self.heard > PING_S and not self.pinged:
            self.pinged = True
            self._transport.write(Frame(Opcode.PING, b"").serialize(mask=False))

    def drop(self, reason: str) -> None:
        """End the connection at once; the reason is for the log."""
        if not self._transport.is_closing():
            log.info("connection dropped", extra={"peer": self.peer, "reason": reason})
        self._transport.abort()
