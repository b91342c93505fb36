"""Streams on one connection to a relay, each passed on to its end.

The connection is read without waiting for any stream: messages that a stream's end does not take now are kept
for it, up to a bound; beyond that the stream is reset. The streams take turns to send, one record each, so
that no stream waits for the whole of another's message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

from holdfast.errors import ConnectionLost, HoldfastError, RemoteProtocolError
from holdfast.local.tasks import TaskSet
from holdfast.rendezvous.relaysocket import RelaySocket
from holdfast.server.remote.streams import Action, Close, Deliver, Note, Open, Send, Streams, Validate
from holdfast.wire.sizes import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

MAX_KEPT: Final = 128  # messages for an end that does not take them now
MAX_KEPT_BYTES: Final = MAX_MESSAGE_BYTES
WRITE_HIGH_BYTES: Final = 2 * 1024 * 1024  # unsent messages of a stream before its end must wait
WRITE_LOW_BYTES: Final = WRITE_HIGH_BYTES // 4
MAX_UNSENT: Final = 4 * 1024 * 1024  # before resets are left out; records stop at an eighth of it


class StreamEnd(Protocol):
    """The end that a stream leads to."""

    def receive(self, message: bytes) -> None: ...

    def on_writing_paused(self) -> None: ...

    def on_writing_resumed(self) -> None: ...

    def close(self) -> None:
        """Note that the other side is gone."""


class Port(Protocol):
    """The interface of an end to its stream: a wire, and methods to end it."""

    def send(self, message: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        """End the stream now; messages that were not sent are dropped."""

    def finish(self) -> None:
        """End the stream after everything queued was sent."""


Lead = Callable[[Port], StreamEnd]


class StreamPort:
    """A stream as seen by its end."""

    def __init__(self, edge: "RelayEdge", number: int) -> None:
        self.end: StreamEnd
        self._edge = edge
        self._number = number
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._frames: Iterator[bytes] | None = None
        self._full = False
        self._finishing = False
        self._reading = True
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0

    # --- what the end uses

    def send(self, message: bytes) -> None:
        if not self._edge.carries(self._number):
            return
        self._output.append(message)
        self._output_bytes += len(message)
        if len(self._output) == 1 and self._frames is None:
            self._edge.enqueue(self._number)
        if self._output_bytes >= WRITE_HIGH_BYTES and not self._full:
            self._full = True
            self.end.on_writing_paused()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._kept and self._reading:
            message = self._kept.popleft()
            self._kept_bytes -= len(message)
            self.end.receive(message)

    def abort(self) -> None:
        self._edge.end(self._number)

    def finish(self) -> None:
        self._finishing = True
        if not self._output:
            self.abort()

    # --- what the edge uses

    def deliver(self, message: bytes) -> None:
        """Raises: RemoteProtocolError: the end is too slow."""
        if self._reading and not self._kept:
            self.end.receive(message)
            return
        self._kept.append(message)
        self._kept_bytes += len(message)
        if len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            raise RemoteProtocolError("more came than anybody reads")

    def next_frame(self, seal: Callable[[int, bytes], Iterator[bytes]]) -> bytes | None:
        """Return the next frame to send, if there is one. Raises: RemoteProtocolError."""
        while True:
            if self._frames is None:
                if not self._output:
                    if self._finishing:
                        self.abort()
                    return None
                self._frames = seal(self._number, self._output[0])
            frame = next(self._frames, None)
            if frame is not None:
                return frame
            self._frames = None
            self._output_bytes -= len(self._output.popleft())
            if self._full and self._output_bytes <= WRITE_LOW_BYTES:
                self._full = False
                self.end.on_writing_resumed()


class RelayEdge:
    """The receiver of one connection. `ended` completes with the reason of its end."""

    def __init__(
        self,
        streams: Streams,
        *,
        validate: Callable[[Validate], Awaitable[bool]],
        lead: Lead,
    ) -> None:
        """`lead` creates the end of a new stream."""
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[HoldfastError] = loop.create_future()
        self._loop = loop
        self._gap_timer: asyncio.TimerHandle | None = None
        self._streams = streams
        self._validate = validate
        self._lead = lead
        self._socket: RelaySocket | None = None
        self._ports: dict[int, StreamPort] = {}
        self._ready: deque[int] = deque()
        self._writable = True
        self._pumping = False
        self._tasks = TaskSet()

    # --- the socket's side

    def on_open(self, socket: RelaySocket) -> None:
        self._socket = socket

    def on_frame(self, frame: bytes | None) -> None:
        self._do(self._streams.take(frame, self._loop.time()))
        self._watch_gaps()

    def on_writable(self, now: bool) -> None:
        self._writable = now
        self._pump()

    def on_end(self, error: HoldfastError) -> None:
        self._socket = None
        if self._gap_timer is not None:
            self._gap_timer.cancel()
        self._tasks.cancel()
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.end.close()
        if not self.ended.done():
            self.ended.set_result(error)

    # --- the streams' side

    def carries(self, number: int) -> bool:
        return number in self._ports

    def enqueue(self, number: int) -> None:
        """Note that a stream has something to send."""
        self._ready.append(number)
        self._pump()

    def end(self, number: int) -> None:
        """End a stream from our side."""
        if self._ports.pop(number, None) is not None:
            log.debug("a stream through the relay ended here")
            self._do(self._streams.end(number))

    async def aclose(self) -> None:
        """Drop the connection and all its streams."""
        if self._socket is not None:
            self._socket.abort(ConnectionLost("the connection was closed here"))
            await self.ended
        await self._tasks.aclose()

    # --- doing

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case Validate():
                    self._tasks.start(self._ask(action))
                case Note(reason):
                    log.warning("a client was not let in", extra={"reason": reason})
                case Open(number):
                    log.debug("a stream through the relay opened")
                    port = self._ports[number] = StreamPort(self, number)
                    port.end = self._lead(port)
                case Deliver(number, message):
                    self._deliver(number, message)
                case Close(number):
                    log.debug("a stream through the relay was closed by its other side")
                    port_or_none = self._ports.pop(number, None)
                    if port_or_none is not None:
                        port_or_none.end.close()

    def _send(self, what: Send) -> None:
        """Send outside of the streams' turns. The amount is bounded if the relay reads nothing."""
        if self._socket is None:
            return
        if self._socket.unsent <= MAX_UNSENT:
            self._socket.send(what.frame)
        elif not what.spare:
            self._socket.abort(ConnectionLost("the relay does not take what is sent"))

    def _watch_gaps(self) -> None:
        ends = self._streams.gap_ends if self._gap_timer is None else None
        if ends is not None:
            self._gap_timer = self._loop.call_at(ends, self._check_gaps)

    def _check_gaps(self) -> None:
        self._gap_timer = None
        overdue = self._streams.check(self._loop.time())
        if overdue:
            log.warning("a stream through the relay was reset: a record of it did not come")
        self._do(overdue)
        self._watch_gaps()

    def _deliver(self, number: int, message: bytes) -> None:
        port = self._ports.get(number)
        if port is None:
            return  # it was ended by a message that arrived together with this one
        try:
            port.deliver(message)
        except RemoteProtocolError:
            log.warning("a stream through the relay was reset: its commands do not keep up")
            port.end.close()
            self.end(number)

    async def _ask(self, asked: Validate) -> None:
        """Ask the registry; only an explicit yes admits."""
        allowed = False
        try:
            allowed = await self._validate(asked)
        except HoldfastError as exc:
            log.warning("a client was not let in", extra={"reason": str(exc)})
        else:
            if not allowed:
                log.warning("a client was not let in", extra={"reason": "the registry does not know it"})
        finally:
            self._do(self._streams.settle(asked.attempt, allowed=allowed, now=self._loop.time()))

    def _pump(self) -> None:
        if self._pumping:
            return  # the running call continues until nothing is left
        self._pumping = True
        try:
            while self._writable and self._ready and self._socket is not None:
                self._send_next(self._ready.popleft(), self._socket)
        finally:
            self._pumping = False

    def _send_next(self, number: int, socket: RelaySocket) -> None:
        port = self._ports.get(number)
        if port is None:
            return
        try:
            frame = port.next_frame(self._streams.seal)
        except RemoteProtocolError:  # the sequence numbers are used up
            port.end.close()
            self.end(number)
            return
        if frame is not None:
            socket.send(frame)
            self._ready.append(number)
