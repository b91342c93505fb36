"""One WebSocket to a relay: frames in and out, and the watch over a peer that says nothing any more.

A relay is pinged every PING_S while no answer is outstanding; only a pong counts as one, and without it the
connection is dropped. Neither side says farewell: whoever fails drops the connection. The query of an address
is a secret, so no address is ever shown.
"""

import asyncio
import contextlib
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
from holdfast.errors import ConnectionLost, HoldfastError, ProtocolMismatch, Unreachable
from holdfast.rendezvous.attempts import DIAL_S
from holdfast.wire.relayframes import MAX_FRAME_BYTES

PING_S: Final = 30.0
PONG_S: Final = 60.0
LAST_LOOK_S: Final = 0.1  # after that: what has come already is read first
WRITE_HIGH_BYTES: Final = 512 * 1024  # unsent; what is behind it waits where a ping can overtake it
CLOSE_S: Final = 1.0  # to send what is queued; then the rest is dropped
_HEADERS: Final = {"x-cluster-name": "OPENAI_CLUSTER", "x-openai-internal-caller": "DD_SERVICE"}


class UpgradeRefused(Unreachable):
    """The relay answered the upgrade with another status than 101."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the relay refused the connection (HTTP {status})")
        self.status = status


class FrameReceiver(Protocol):
    """Who gets the frames of a socket."""

    def on_open(self, socket: "RelaySocket") -> None:
        """Before the first frame."""

    def on_frame(self, frame: bytes | None) -> None:
        """One message; None for one of text, which nobody agreed on.

        Raises:
            HoldfastError: the socket is to be dropped for it.
        """

    def on_end(self, error: HoldfastError) -> None:
        """Once, after the last frame of an opened socket."""

    def on_writable(self, now: bool) -> None:
        """Whether more may be sent without piling up."""


async def dial_relay(
    url: str,
    receiver: FrameReceiver,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DIAL_S,
) -> "RelaySocket":
    """A socket to a relay, ready for frames.

    Raises:
        UpgradeRefused: it answered, and with what.
        Unreachable: it did not, in time.
        ProtocolMismatch: this is no address of one, or no relay.
    """
    with tracing.client_span(tracing.RENDEZVOUS):
        return await _dial(url, receiver, {**(headers or {}), **tracing.headers()}, timeout_s)


async def _dial(
    url: str, receiver: FrameReceiver, headers: Mapping[str, str], timeout_s: float
) -> "RelaySocket":
    loop = asyncio.get_running_loop()
    try:
        uri = parse_uri(url)
    except InvalidURI:
        raise ProtocolMismatch("the registry gave an address that is none") from None
    try:
        async with asyncio.timeout(timeout_s):
            context = await loop.run_in_executor(None, ssl.create_default_context) if uri.secure else None
            made = RelaySocket(ClientProtocol(uri, max_size=MAX_FRAME_BYTES), receiver, headers)
            await loop.create_connection(lambda: made, uri.host, uri.port, ssl=context)
            try:
                await made.opened
            except BaseException:
                made.abort(Unreachable("given up"))
                raise
            return made
    except TimeoutError:
        raise Unreachable(f"the relay did not answer within {timeout_s:.3g} s") from None
    except OSError as exc:  # also failed names and certificates
        reason = exc.strerror or type(exc).__name__
        raise Unreachable(f"the relay cannot be reached: {reason}") from None


def _standing_headers() -> dict[str, str]:
    found = {name: os.environ.get(variable, "") for name, variable in _HEADERS.items()}
    return {name: value for name, value in found.items() if value.isascii() and value.isprintable() and value}


class RelaySocket(asyncio.Protocol):
    """Made by `dial_relay`. `opened` is done once frames may flow."""

    def __init__(self, protocol: ClientProtocol, receiver: FrameReceiver, headers: Mapping[str, str]) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._receiver = receiver
        self._headers = {**_standing_headers(), **headers}
        self._transport: asyncio.Transport
        self._open = False
        self._paused = False
        self._parts: list[bytes] = []
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
            self._take_events()
            self._flush()
        except HoldfastError as exc:
            self.abort(exc)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._receiver.on_writable(False)

    def resume_writing(self) -> None:
        self._receiver.on_writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        reason = "the relay closed the connection" if exc is None else "the connection to the relay was reset"
        error = self._error or (ConnectionLost(reason) if self._open else Unreachable(reason))
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
        if self._open and self._protocol.close_expected():  # also after what is no frame, or too large
            raise ConnectionLost("the relay closed the connection, or sent what it may not")

    def _finish_upgrade(self) -> None:
        failed = self._protocol.handshake_exc
        if isinstance(failed, InvalidStatus):
            raise UpgradeRefused(failed.response.status_code)
        if failed is not None:
            if not isinstance(failed, InvalidHandshake | EOFError):
                raise failed
            raise ProtocolMismatch("the relay answered the WebSocket upgrade wrongly")
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
        """The library bounds the sum of the parts."""
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if not frame.fin or self._parts:
            self._parts.append(bytes(frame.data))
        if frame.fin:
            whole = b"".join(self._parts) if self._parts else bytes(frame.data)
            self._parts = []
            self._receiver.on_frame(None if self._is_text else whole)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
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
        if self._paused:  # it may have answered; nobody looks
            self._watch_later()
        else:  # the same if the answer is there and we were not, as after a long sleep
            self._set_timer(LAST_LOOK_S, self._drop)

    def _drop(self) -> None:
        self.abort(ConnectionLost("the relay does not answer pings"))

    def _set_timer(self, delay_s: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, then)

    # --- what the receiver uses

    def send(self, frame: bytes) -> None:
        """Queue one frame, in order; never blocks."""
        if self._open and not self._transport.is_closing():
            self._protocol.send_binary(frame)
            self._flush()

    def pause_reading(self) -> None:
        self._paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self, error: HoldfastError) -> None:
        """Drop it now; the receiver's `on_end` gets `error`."""
        self._error = self._error or error
        self._transport.abort()

    async def aclose(self) -> None:
        """Send what is queued, for a bounded time, and wait until nothing of it is left."""
        self._error = self._error or ConnectionLost("the connection was closed here")
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        self._transport.abort()
        await self._gone.wait()
