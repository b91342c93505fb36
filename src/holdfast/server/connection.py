"""One connection: handshake, gates, lanes, answers. It handles messages, not sockets.

By default requests are handled strictly one after another: a request is answered before the next message is
processed. With more than one slot, requests run in two lanes after the handshake, so that control requests
are handled while every ordinary slot is taken.
"""

import asyncio
import contextlib
import enum
import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast import tracing
from holdfast.errors import HoldfastError, InvalidRequest, MethodNotFound, RemoteProtocolError, face, kind
from holdfast.server.executor import Executor, ServerSession
from holdfast.wire import rpc
from holdfast.wire.environment import InitializeParams, InitializeResult
from holdfast.wire.methods import METHODS, UNKNOWN, MethodRow, decode_params
from holdfast.wire.network import MAX_QUESTIONS
from holdfast.wire.rpc import JsonValue

if TYPE_CHECKING:  # loaded after the first answer is sent, or when they are requested
    from holdfast.server.metrics import PrometheusMetrics
    from holdfast.server.router import Router

log = logging.getLogger(__name__)

MAX_INBOX: Final = 128  # messages read ahead of the one being handled; then the peer must wait
MAX_INBOX_BYTES: Final = 4 * 1024 * 1024  # the same for large ones
MAX_WAITING: Final = 1024  # requests running or waiting for a slot: the most that a client keeps in flight
MAX_SLOTS: Final = 1024  # larger numbers of slots are clamped, not refused
NO_ANSWER: Final = None  # the result of a question without an answer


class Wire(Protocol):
    """The transport below a connection."""

    def send(self, message: bytes) -> None:
        """Queue one message, in order; never blocks."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        """Drop the peer at once."""


class HandshakeStage(enum.Enum):
    """How far the handshake has come."""

    NEW = enum.auto()
    INITIALIZED = enum.auto()
    READY = enum.auto()


def gate(stage: HandshakeStage, method: MethodRow) -> None:
    """Refuse a method that the stage of the handshake does not allow.

    Raises:
        InvalidRequest: the handshake is not complete, or is repeated.
    """
    if method.name == "initialize":
        if stage is not HandshakeStage.NEW:
            raise InvalidRequest("initialize may only be sent once per connection")
    elif stage is HandshakeStage.NEW:
        raise InvalidRequest(f"client must call initialize before using {method.family} methods")
    elif stage is HandshakeStage.INITIALIZED:
        raise InvalidRequest(f"client must send initialized before using {method.family} methods")


class Questions:
    """Requests of ours to the client: their numbers, and the tasks that wait for the answers.

    An error as the answer counts as no answer.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[JsonValue]] = {}
        self._last = 0
        self._ended = False

    @property
    def any(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._waiting)

    def begin(self, method: str, params: msgspec.Struct) -> "tuple[int, bytes] | None":
        """The number and the message of a new question; None: no more questions can be asked now."""
        if self._ended or len(self._waiting) >= MAX_QUESTIONS:
            return None
        self._last += 1
        self._waiting[self._last] = asyncio.get_running_loop().create_future()
        return self._last, rpc.request(self._last, method, params)

    async def wait(self, number: int, timeout_s: float) -> JsonValue:
        """Wait for the answer; NO_ANSWER if the time or the connection is over."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiting[number]
        except TimeoutError:
            return NO_ANSWER
        finally:
            self._waiting.pop(number, None)

    def answer(self, message: rpc.Message) -> bool:
        """Take an answer; one that comes too late is ignored. False: the question was never asked."""
        if not isinstance(message, rpc.Response | rpc.ErrorResponse):
            return False
        number = message.id
        if not isinstance(number, int) or not 0 < number <= self._last:
            return False
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.result if isinstance(message, rpc.Response) else NO_ANSWER)
        return True

    def end(self) -> None:
        """End all questions without an answer, because the connection is over."""
        self._ended = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(NO_ANSWER)


class ExecConnection:
    """A connection. It gets messages by `receive` and answers on its wire. `run` is its whole life."""

    def __init__(
        self,
        executor: Executor,
        wire: Wire,
        *,
        label: str | None,
        slots: int = 1,
        resumable: bool = True,
        near: bool = True,
        metrics: "PrometheusMetrics | None" = None,
    ) -> None:
        """`label` begins the answer to an invalid message; without a label the peer is dropped for one.

        `near`: the client may be on this machine and send the next request at once.
        """
        self._executor = executor
        self._wire = wire
        self._label = label
        self._slots = min(slots, MAX_SLOTS)
        self._resumable = resumable
        self._near = near
        self._metrics = metrics
        self._stage = HandshakeStage.NEW
        self._session: ServerSession | None = None
        self._extended = False  # whether the peer is a Holdfast client, which uses our own methods too
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._ended = False
        self._news = asyncio.Event()
        self._idle = False
        self._unfinished: Coroutine[None, None, None] | None = None
        self._tasks: asyncio.TaskGroup
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._waiting = 0
        self._questions = Questions()
        self._lanes = {True: asyncio.Semaphore(self._slots), False: asyncio.Semaphore(self._slots)}

    @functools.cached_property
    def _router(self) -> "Router":
        from holdfast.server.router import Router

        if self._session is None:
            raise AssertionError("requests are gated until the handshake made a session")
        made = Router
        if self._executor.ceiling is not None:
            from holdfast.server.narrowed import NarrowedRouter as made
        return made(self._executor, self._session, self._send_and_wait, self.push)

    # --- the wire's side

    def receive(self, message: bytes) -> None:
        """Take one message.

        If nothing is under way, it is answered right here if that is possible at once.
        """
        self._receive(message)
        if self._near:
            self._executor.linger.touch()

    def _receive(self, message: bytes) -> None:
        if self._ended:
            return  # it came in the same read as the message for which the peer was dropped
        if self._questions.any and b'"method"' not in message and self._take_answer(message):
            return  # the task that waits for it must not wait for earlier requests
        if self._idle and self._slots == 1 and self._writable.is_set():
            self._unfinished = self._take(message)
            if self._unfinished is None and not self._ended:
                return
            self._idle = False
        else:
            self._inbox.append(message)
            self._inbox_bytes += len(message)
            self._throttle()
        self._news.set()

    def end(self) -> None:
        """Note that no more messages will come; those that did are finished."""
        self._ended = True
        self._news.set()

    def on_writing_paused(self) -> None:
        """Note that the peer reads too slowly: children wait, and so do further requests."""
        self._writable.clear()
        if self._session is not None:
            self._session.processes.pause()

    def on_writing_resumed(self) -> None:
        self._writable.set()
        if self._session is not None:
            self._session.processes.resume()

    def push(self, message: bytes) -> None:
        """Send an event. The caller is paused through `on_writing_paused`, not here."""
        self._wire.send(message)

    def offer(self, message: bytes) -> None:
        """Send a message that may be lost: it is dropped while the peer reads too slowly."""
        if self._writable.is_set():
            self._wire.send(message)

    async def ask(self, method: str, params: msgspec.Struct, timeout_s: float) -> JsonValue:
        """Return the client's answer to a request of ours; None: there is none, for whatever reason."""
        asked = self._questions.begin(method, params)
        if asked is None:
            return NO_ANSWER
        number, message = asked
        self.push(message)
        return await self._questions.wait(number, timeout_s)

    def _take_answer(self, message: bytes) -> bool:
        try:
            return self._questions.answer(rpc.decode(message))
        except RemoteProtocolError:
            return False  # answered in its turn

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
        if self._metrics is not None:
            self._metrics.record_connection(opened=True)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                work = self._tasks.create_task(self._handle_all())
                await asyncio.wait([work])
                if not work.cancelled() and work.exception() is None:
                    raise _Finished
        except* _Finished:
            pass
        finally:
            if self._metrics is not None:
                self._metrics.record_connection(opened=False)
            self._questions.end()
            if "_router" in vars(self):
                with contextlib.suppress(asyncio.CancelledError):
                    await self._router.aclose()
            if self._session is not None:
                if self._resumable:
                    self._executor.detach(self._session, self)
                else:
                    self._executor.end(self._session)

    async def _handle_all(self) -> None:
        while True:
            while not self._inbox and self._unfinished is None:
                if self._ended:
                    return
                self._news.clear()
                self._idle = True
                await self._news.wait()
                self._idle = False
            if self._unfinished is None:
                if not self._writable.is_set():
                    await self._writable.wait()
                data = self._inbox.popleft()
                self._inbox_bytes -= len(data)
                if not self._reading:
                    self._throttle()
                self._unfinished = self._take(data)
            if self._unfinished is not None:
                unfinished, self._unfinished = self._unfinished, None
                await unfinished

    def _take(self, data: bytes) -> Coroutine[None, None, None] | None:
        """Process a message, or return the coroutine that does the rest."""
        try:
            message = rpc.decode(data)
        except RemoteProtocolError as exc:
            if self._label is None:
                self._drop_peer()
                return None
            self._wire.send(rpc.error(rpc.UNATTRIBUTED, face(exc).rpc, f"{self._label}: {exc}"))
            return None
        match message:
            case rpc.Request():
                if self._slots > 1 and self._stage is HandshakeStage.READY:
                    self._waiting += 1
                    self._throttle()
                    self._tasks.create_task(self._in_lane(message))
                    return None
                return self._trace(message) if tracing.enabled else self._answer(message)
            case rpc.Notification(method="initialized") if self._stage is not HandshakeStage.NEW:
                self._stage = HandshakeStage.READY
            case rpc.Response() | rpc.ErrorResponse() if self._questions.answer(message):
                pass
            case _:
                self._drop_peer()  # an unknown notification, or an answer to a question that was never asked
        return None

    def _drop_peer(self) -> None:
        log.warning("connection dropped: the client broke the protocol")
        self._ended = True
        self._inbox.clear()  # messages sent after it are not executed
        self._inbox_bytes = 0
        self._wire.abort()

    async def _in_lane(self, request: rpc.Request) -> None:
        method = METHODS.get(request.method)
        try:
            if method is None:
                await self._trace(request)
            else:
                async with self._lanes[method.control]:
                    await self._trace(request)
        finally:
            self._waiting -= 1
            self._throttle()

    async def _trace(self, request: rpc.Request) -> None:
        name = request.method if request.method in METHODS else UNKNOWN
        with tracing.span(name, request.traceparent, request.tracestate):
            unfinished = self._answer(request)
            if unfinished is not None:
                await unfinished

    def _answer(self, request: rpc.Request) -> Coroutine[None, None, None] | None:
        """Answer at once if the handler can; otherwise return the coroutine that does the rest."""
        started = time.perf_counter()
        try:
            result = self._call(request)
        except Exception as exc:
            self._refuse(request, exc, started)
            return None
        if inspect.isawaitable(result):
            return self._finish(request, result, started)
        self._reply(request, result, started)
        return None

    async def _finish(self, request: rpc.Request, pending: Awaitable[object], started: float) -> None:
        try:
            result = await pending
        except Exception as exc:
            self._refuse(request, exc, started)
            return
        from holdfast.server.router import Streamed  # loaded already: only its handlers are awaited

        if isinstance(result, Streamed):
            self._reply(request, result.result, started)
            self._tasks.create_task(result.then())
        else:
            self._reply(request, result, started)

    def _reply(self, request: rpc.Request, result: object, started: float) -> None:
        reply = rpc.response(request.id, result)
        if len(reply) > rpc.MAX_MESSAGE_BYTES:
            self._refuse(
                request,
                InvalidRequest("the answer exceeds the message limit; read the file in blocks"),
                started,
            )
            return
        self._wire.send(reply)
        self._tell_result(request.method, 0, started)

    def _refuse(self, request: rpc.Request, exc: Exception, started: float) -> None:
        code = face(exc).rpc
        text = str(exc)
        if not isinstance(exc, HoldfastError):
            log.error("request failed unexpectedly", extra={"method": request.method}, exc_info=exc)
            text = "internal error"
        told = {"kind": kind(exc), "remedy": getattr(exc, "remedy", None)} if self._extended else None
        self._wire.send(rpc.error(request.id, code, text, told))
        self._tell_result(request.method, code, started)

    def _tell_result(self, method: str, code: int, started: float) -> None:
        """Report to tracing and metrics that a request was answered, with this error code or 0."""
        if tracing.enabled:
            tracing.tell_result("error" if code else "success")
        if self._metrics is not None:
            self._metrics.record_answer(method, code, time.perf_counter() - started)

    def _call(self, request: rpc.Request) -> object:
        """Return the handler's result, or its awaitable."""
        method = METHODS.get(request.method)
        answered = self._executor.methods
        if method is None or (answered is not None and request.method not in answered):
            name = request.method[: rpc.MAX_ECHO]
            raise MethodNotFound(f"exec-server stub does not implement `{name}` yet")
        params = decode_params(method, request.params)
        gate(self._stage, method)
        if isinstance(params, InitializeParams):
            resumed = params.resume_session_id
            if resumed is not None and self._executor.sessions.is_attached(resumed):
                return self._resume(params, resumed)
            return self._initialize(params)
        return self._router.handlers[method.name](params)

    async def _resume(self, params: InitializeParams, session_id: str) -> InitializeResult:
        """Resume a session that is still attached to a connection, whose end may be about to be noticed."""
        await self._executor.wait_left(session_id)
        return self._initialize(params)

    def _initialize(self, params: InitializeParams) -> InitializeResult:
        session = self._executor.attach(self, params.resume_session_id, extended=params.holdfast)
        self._session = session
        self._extended = params.holdfast
        self._stage = HandshakeStage.INITIALIZED
        asyncio.get_running_loop().call_soon(self._prepare)  # so that the answer is sent first
        return InitializeResult(session.session_id, self._executor.info())

    def _prepare(self) -> None:
        """Load what nearly every client requests next."""
        self._executor.open()
        self._router  # noqa: B018 - made and kept


class _Finished(Exception):
    """Ends the task group when the peer is done, and with it the streams that still run."""
