"""One WebSocket that an executor or a client dials: messages in and out, and detection of a silent peer.

It leads to a relay and carries frames, each a binary message; or to a host that runs commands here without a
relay (`Dialled.HOST`), and carries text messages.

The peer is pinged every PING_S while no answer is outstanding. Only a pong counts as an answer; without it
the connection is dropped. Neither side sends a closing message: the side that fails drops the connection. The
query of an address is a secret, so no address is ever shown.
"""

import asyncio
import contextlib
import enum
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from holdfast import tracing
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    ProtocolMismatch,
    RemoteProtocolError,
    Unreachable,
)
from holdfast.log import LIBRARY
from holdfast.rendezvous.attempts import DIAL_S
from holdfast.rendezvous.outward import connect_outward
from holdfast.wire.pongs import Pongs
from holdfast.wire.relayframes import MAX_FRAME_BYTES
from holdfast.wire.sizes import MAX_MESSAGE_BYTES, MAX_PARTS

PING_S: Final = 30.0
PONG_S: Final = 60.0
LAST_LOOK_S: Final = 0.1  # after that, to read first what has already arrived
WRITE_HIGH_BYTES: Final = 512 * 1024  # unsent; data beyond it waits where a ping can overtake it
FRAGMENT_BYTES: Final = 8 * 1024 * 1024  # half of the frame that the reference accepts
CLOSE_S: Final = 1.0  # to send what is queued; then the rest is dropped
_HEADERS: Final = {"x-cluster-name": "OPENAI_CLUSTER", "x-openai-internal-caller": "DD_SERVICE"}


class Dialled(enum.StrEnum):
    """The kind of peer at the other end."""

    RELAY = "relay"
    HOST = "host"

    @property
    def max_bytes(self) -> int:
        """The bound of one message."""
        return MAX_FRAME_BYTES if self is Dialled.RELAY else MAX_MESSAGE_BYTES


class UpgradeRefused(Unreachable):
    """The upgrade was answered with another status than 101."""

    def __init__(self, status: int, peer: Dialled = Dialled.RELAY) -> None:
        super().__init__(f"the {peer} refused the connection (HTTP {status})")
        self.status = status


class RelayLost(ConnectionLost):
    """An opened socket is gone; `why` is a short label for metrics."""

    def __init__(self, message: str, why: str = "read_error") -> None:
        super().__init__(message)
        self.why = why


class FrameReceiver(Protocol):
    """The receiver of a socket's frames."""

    def on_open(self, socket: "RelaySocket") -> None:
        """Called before the first frame."""

    def on_frame(self, frame: bytes | None) -> None:
        """Take one message; None for a text message from a relay, which the protocol does not have.

        Raises:
            HoldfastError: the message is invalid, and the socket must be dropped.
        """

    def on_end(self, error: HoldfastError) -> None:
        """Called once, after the last frame of an opened socket."""

    def on_writable(self, now: bool) -> None:
        """Called with whether more may be sent without piling up."""


async def dial_relay(
    url: str,
    receiver: FrameReceiver,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DIAL_S,
    peer: Dialled = Dialled.RELAY,
) -> "RelaySocket":
    """Open a socket to a relay, ready for frames, or to a host, ready for text messages.

    Raises:
        UpgradeRefused: it refused the upgrade; the error has the status.
        Unreachable: it did not answer in time.
        ProtocolMismatch: the address is invalid, or the peer is no relay.
    """
    with tracing.client_span(tracing.RENDEZVOUS):
        return await _dial(url, receiver, {**(headers or {}), **tracing.headers()}, timeout_s, peer)


async def _dial(
    url: str, receiver: FrameReceiver, headers: Mapping[str, str], timeout_s: float, peer: Dialled
) -> "RelaySocket":
    loop = asyncio.get_running_loop()
    try:
        uri = parse_uri(url)
    except InvalidURI:
        raise ProtocolMismatch("the registry gave an address that is none") from None
    try:
        async with asyncio.timeout(timeout_s):
            context = await loop.run_in_executor(None, ssl.create_default_context) if uri.secure else None
            protocol = ClientProtocol(uri, max_size=peer.max_bytes, logger=LIBRARY)
            made = RelaySocket(protocol, receiver, headers, peer)
            await connect_outward(lambda: made, uri.host, uri.port, context)
            try:
                await made.opened
            except BaseException:
                made.abort(Unreachable("given up"))
                raise
            return made
    except TimeoutError:
        raise Unreachable(f"the {peer} did not answer within {timeout_s:.3g} s") from None
    except OSError as exc:  # also for name resolution and certificates
        reason = exc.strerror or type(exc).__name__
        raise Unreachable(f"the {peer} cannot be reached: {reason}") from None


def _standing_headers() -> dict[str, str]:
    found = {name: os.environ.get(variable, "") for name, variable in _HEADERS.items()}
    return {name: value for name, value in found.items() if value.isascii() and value.isprintable() and value}


class RelaySocket(asyncio.Protocol):
    """A WebSocket. Create it with `dial_relay`. `opened` completes once frames may flow."""

    def __init__(
        self,
        protocol: ClientProtocol,
        receiver: FrameReceiver,
        headers: Mapping[str, str],
        peer: Dialled = Dialled.RELAY,
    ) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._receiver = receiver
        self._headers = {**_standing_headers(), **headers}
        self._peer = peer
        self._transport: asyncio.Transport
        self._open = False
        self._paused = False
        self._parts: list[bytes] = []
        self._pongs = Pongs(WRITE_HIGH_BYTES)
        self._is_text = False
        self._error: HoldfastError | None = None
        self._gone = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        request = self._protocol.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._error is not None:
            return
        try:
            self._protocol.receive_data(data)
            self._answer_pings()  # before anything else is sent, because that sends all of them
            self._take_events()
            self._flush()
        except HoldfastError as exc:
            self.abort(exc)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._receiver.on_writable(False)

    def resume_writing(self) -> None:
        self._write(self._pongs.resume())
        self._receiver.on_writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        ended = "closed the connection" if exc is None else "reset the connection"
        reason = f"the {self._peer} {ended}"
        lost = RelayLost(reason, "peer_close" if exc is None else "read_error")
        error = self._error or (lost if self._open else Unreachable(reason))
        self._gone.set()
        if not self.opened.done():
            self.opened.set_exception(error)
        if self._open:
            self._open = False
            self._receiver.on_end(error)

    # --- frames

    def _take_events(self) -> None:
        if not self._open:
            self._finish_upgrade()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
                if self._error is not None:
                    return
        if self._open and self._protocol.close_expected():  # also after an invalid or too large frame
            raise ConnectionLost(f"the {self._peer} closed the connection, or sent what it may not")

    def _finish_upgrade(self) -> None:
        failed = self._protocol.handshake_exc
        if isinstance(failed, InvalidStatus):
            raise UpgradeRefused(failed.response.status_code, self._peer)
        if failed is not None:
            if not isinstance(failed, InvalidHandshake | EOFError):
                raise failed
            raise ProtocolMismatch(f"the {self._peer} answered the WebSocket upgrade wrongly")
        if self._protocol.state is self._protocol.state.OPEN:
            self._open = True
            self._watch_later()
            self._receiver.on_open(self)
            if not self.opened.done():
                self.opened.set_result(None)

    def _take(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.PONG:
                self._watch_later()
            case Opcode.BINARY | Opcode.TEXT | Opcode.CONT:
                self._take_part(frame)

    def _take_part(self, frame: Frame) -> None:
        """Collect the parts of a message. The library bounds their sum, but not the number of empty ones."""
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if not frame.fin or self._parts:
            self._parts.append(bytes(frame.data))
        if len(self._parts) > MAX_PARTS:
            raise RemoteProtocolError(f"the {self._peer} sends a message in too many pieces")
        if frame.fin:
            whole = b"".join(self._parts) if self._parts else bytes(frame.data)
            self._parts = []
            unwanted = self._is_text and self._peer is Dialled.RELAY
            self._receiver.on_frame(None if unwanted else whole)

    def _answer_pings(self) -> None:
        """Send the library's own answers."""
        for data in self._protocol.data_to_send():
            if data:
                self._write(self._pongs.pass_on(data, self._transport.get_write_buffer_size()))

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._write(data)

    def _write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    # --- the watch

    def _watch_later(self) -> None:
        self._set_timer(PING_S, self._ping)

    def _ping(self) -> None:
        self._protocol.send_ping(b"")
        self._flush()
        self._set_timer(PONG_S, self._give_up)

    def _give_up(self) -> None:
        if self._paused:  # it may have answered, but we are not reading
            self._watch_later()
        else:  # read once more: the answer may be there and we were suspended, as after a long sleep
            self._set_timer(LAST_LOOK_S, self._drop)

    def _drop(self) -> None:
        self.abort(RelayLost(f"the {self._peer} does not answer pings", "pong_timeout"))

    def _set_timer(self, delay_s: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, then)

    # --- what the receiver uses

    def send(self, frame: bytes) -> None:
        """Queue one message, in order; never blocks."""
        if not self._open or self._transport.is_closing():
            return
        if self._peer is Dialled.RELAY:
            self._protocol.send_binary(frame)
        else:
            self._send_text(frame)
        self._flush()

    def _send_text(self, message: bytes) -> None:
        self._protocol.send_text(message[:FRAGMENT_BYTES], fin=len(message) <= FRAGMENT_BYTES)
        for start in range(FRAGMENT_BYTES, len(message), FRAGMENT_BYTES):
            end = start + FRAGMENT_BYTES
            self._protocol.send_continuation(message[start:end], fin=end >= len(message))

    @property
    def unsent(self) -> int:
        """Number of bytes that the peer has not read."""
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self, error: HoldfastError) -> None:
        """Drop the socket now; the receiver's `on_end` gets `error`."""
        self._error = self._error or error
        self._transport.abort()

    def close(self) -> None:
        """Send what is queued, then end."""
        self._error = self._error or ConnectionLost("the connection was closed here")
        if not self._transport.is_closing():
            self._transport.close()  # once: TLS of Python 3.11.2 cannot be aborted after a second close

    async def aclose(self) -> None:
        """Send what is queued, for a bounded time, and wait until the connection is closed."""
        self.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        self._transport.abort()
        await self._gone.wait()
