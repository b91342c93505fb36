"""One connection: handshake, gates, lanes, answers. Knows messages, not sockets.

By default requests are handled strictly one after another: a request is answered before the next
message is looked at. With more than one slot, requests run in two lanes after the handshake, so
that control requests pass while every ordinary slot is taken.
"""

import asyncio
import contextlib
import enum
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from holdfast import tracing
from holdfast.errors import HoldfastError, InvalidRequest, MethodNotFound, RemoteProtocolError, face
from holdfast.server.executor import Executor, Session
from holdfast.server.metrics import NO_METRICS, Metrics
from holdfast.server.router import Router, Streamed
from holdfast.wire import rpc
from holdfast.wire.environment import InitializeParams, InitializeResult
from holdfast.wire.methods import METHODS, Method, decode_params

log = logging.getLogger(__name__)

MAX_INBOX: Final = 128  # messages read ahead of the one being handled; then the peer has to wait
MAX_INBOX_BYTES: Final = 4 * 1024 * 1024  # the same for large ones
MAX_WAITING: Final = 1024  # requests running or waiting for a slot: what one client keeps in flight
MAX_SLOTS: Final = 1024  # an absurd number of slots is clamped, not refused


class Wire(Protocol):
    """The transport below a connection."""

    def send(self, message: bytes) -> None:
        """Queue one message, in order; never blocks."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        """Drop the peer at once."""


class Stage(enum.Enum):
    """How far the handshake has come."""

    NEW = enum.auto()
    INITIALIZED = enum.auto()
    READY = enum.auto()


def gate(stage: Stage, method: Method) -> None:
    """Refuse a method whose time has not come.

    Raises:
        InvalidRequest: the handshake is not complete, or is repeated.
    """
    if method.name == "initialize":
        if stage is not Stage.NEW:
            raise InvalidRequest("initialize may only be sent once per connection")
    elif stage is Stage.NEW:
        raise InvalidRequest(f"client must call initialize before using {method.family} methods")
    elif stage is Stage.INITIALIZED:
        raise InvalidRequest(f"client must send initialized before using {method.family} methods")


class Connection:
    """Feed it messages with `receive`; it answers on its wire. `run` is its life."""

    def __init__(
        self,
        executor: Executor,
        wire: Wire,
        *,
        label: str,
        slots: int = 1,
        resumable: bool = True,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._executor = executor
        self._wire = wire
        self._label = label
        self._slots = min(slots, MAX_SLOTS)
        self._resumable = resumable
        self._metrics = metrics
        self._router = Router(executor, self._send_and_wait, self.push)
        self._stage = Stage.NEW
        self._session: Session | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._ended = False
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._waiting = 0
        self._lanes = {True: asyncio.Semaphore(self._slots), False: asyncio.Semaphore(self._slots)}

    # --- the wire's side

    def receive(self, message: bytes) -> None:
        """One message arrived."""
        self._inbox.append(message)
        self._inbox_bytes += len(message)
        self._news.set()
        self._throttle()

    def end(self) -> None:
        """No more messages will come; finish those that did."""
        self._ended = True
        self._news.set()

    def writing_paused(self) -> None:
        """The peer does not keep up: children wait, and so do further requests."""
        self._writable.clear()
        if self._session is not None:
            self._session.processes.pause()

    def writing_resumed(self) -> None:
        self._writable.set()
        if self._session is not None:
            self._session.processes.resume()

    def push(self, message: bytes) -> None:
        """Send an event; the caller is paused through `writing_paused`, not here."""
        self._wire.send(message)

    async def _send_and_wait(self, message: bytes) -> None:
        self._wire.send(message)
        await self._writable.wait()

    def _throttle(self) -> None:
        full = (
            len(self._inbox) >= MAX_INBOX
            or self._inbox_bytes >= MAX_INBOX_BYTES
            or self._waiting >= MAX_WAITING
        )
        if full == self._reading:
            self._reading = not full
            (self._wire.pause_reading if full else self._wire.resume_reading)()

    # --- life

    async def run(self) -> None:
        """Handle messages until `end` or cancellation; then the session is detached, or ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(self._handle_all(tasks))
                await asyncio.wait([work])
                if not work.cancelled() and work.exception() is None:
                    raise _Finished
        except* _Finished:
            pass
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await self._router.aclose()
            if self._session is not None:
                if self._resumable:
                    self._executor.detach(self._session, self)
                else:
                    self._executor.end(self._session)

    async def _handle_all(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            while not self._inbox:
                if self._ended:
                    return
                self._news.clear()
                await self._news.wait()
            data = self._inbox.popleft()
            self._inbox_bytes -= len(data)
            if not self._reading:
                self._throttle()
            if not self._writable.is_set():
                await self._writable.wait()
            try:
                message = rpc.decode(data)
            except RemoteProtocolError as exc:
                self._wire.send(rpc.error(rpc.UNATTRIBUTED, face(exc).rpc, f"{self._label}: {exc}"))
                continue
            match message:
                case rpc.Request():
                    if self._slots > 1 and self._stage is Stage.READY:
                        self._waiting += 1
                        self._throttle()
                        tasks.create_task(self._in_lane(message, tasks))
                    else:
                        await self._answer(message, tasks)
                case rpc.Notification(method="initialized") if self._stage is not Stage.NEW:
                    self._stage = Stage.READY
                case _:
                    # A notification we do not know, or an answer to a request we never made.
                    log.warning("connection dropped: the client broke the protocol")
                    self._wire.abort()
                    return

    async def _in_lane(self, request: rpc.Request, tasks: asyncio.TaskGroup) -> None:
        method = METHODS.get(request.method)
        try:
            if method is None:
                await self._answer(request, tasks)
            else:
                async with self._lanes[method.control]:
                    await self._answer(request, tasks)
        finally:
            self._waiting -= 1
            self._throttle()

    async def _answer(self, request: rpc.Request, tasks: asyncio.TaskGroup) -> None:
        started = time.perf_counter()
        code = 0
        then: Callable[[], Awaitable[None]] | None = None
        try:
            with tracing.span(request.method, request.traceparent, request.tracestate):
                result = await self._call(request)
            if isinstance(result, Streamed):
                then = result.then
                result = result.result
            reply = rpc.response(request.id, result)
            if len(reply) > rpc.MAX_MESSAGE_BYTES:
                raise InvalidRequest("the answer exceeds the message limit; read the file in blocks")
        except HoldfastError as exc:
            code = face(exc).rpc
            reply = rpc.error(request.id, code, str(exc))
        except Exception:
            log.exception("request failed unexpectedly", extra={"method": request.method})
            code = face(Exception()).rpc
            reply = rpc.error(request.id, code, "internal error")
        self._wire.send(reply)
        if then is not None:
            tasks.create_task(_coroutine(then))
        self._metrics.answered(request.method, code, time.perf_counter() - started)

    async def _call(self, request: rpc.Request) -> object:
        method = METHODS.get(request.method)
        if method is None:
            raise MethodNotFound(f"exec-server stub does not implement `{request.method}` yet")
        params = decode_params(method, request.params)
        gate(self._stage, method)
        if isinstance(params, InitializeParams):
            return self._initialize(params)
        result = self._router.handlers[method.name](params)
        return await result if inspect.isawaitable(result) else result

    def _initialize(self, params: InitializeParams) -> InitializeResult:
        session = self._executor.attach(self, params.resume_session_id, extended=params.holdfast)
        self._session = self._router.session = session
        self._stage = Stage.INITIALIZED
        return InitializeResult(session.session_id, self._executor.info())


class _Finished(Exception):
    """The peer is done: ends the task group, and with it what still streams."""


async def _coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()
