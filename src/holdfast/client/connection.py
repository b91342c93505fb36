"""Calls on one link: the handshake, request numbers, answers, and the end of all pending calls.

A connection has one life. When its link ends, every call under way fails with `ConnectionLost`, whose text
says that the call may or may not have happened. Whether the session continues on another link is decided by
the session.
"""

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast import decoding, tracing
from holdfast.client.events.ordering import Pushed, convert_pushed, decode_pushed
from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.client.links.target import ServerLink, Target, UnixTarget
from holdfast.client.links.transport import dial
from holdfast.client.networkfilter import Reply
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    MethodNotFound,
    PeerRefused,
    ProtocolMismatch,
    RemoteProtocolError,
    Unreachable,
    UsageError,
    from_rpc_error,
)
from holdfast.wire import authentication, rpc
from holdfast.wire.environment import EnvironmentInfo, InitializeParams
from holdfast.wire.network import PolicyReply
from holdfast.wire.rpc import JsonValue

CLIENT_NAME: Final = "holdfast"
INFO_S: Final = 30.0  # environment/info looks for a shell; the reference allows as much
MAX_UNREAD: Final = 1024  # unsent answers to a server that reads nothing; each has a few hundred bytes
MAX_CALLS: Final = 1024  # calls under way at once; further ones wait, except cleanup calls

_SAID: Final = (
    RemoteProtocolError,
    PeerRefused,
    Unreachable,
)  # ends of a link that carry their own explanation
_QUESTION: Final = "network/policyRequest"


class NotSent(ConnectionLost):
    """The link ended before the call was sent. The call has not happened and may be made on the next link."""


class ConnectionOwner(Protocol):
    """The owner of a connection."""

    def take(self, pushed: Pushed) -> None: ...

    def note(self, method: str, params: JsonValue) -> None: ...

    def ask(self, params: JsonValue, reply: Reply) -> None:
        """Handle a question about the network; `reply` is called once."""

    def connection_lost(self, connection: "ClientConnection", error: HoldfastError) -> None: ...


class _Call(NamedTuple):
    method: str
    answer: "asyncio.Future[JsonValue]"


class ClientConnection:
    """The receiver of one link. `generation` distinguishes it from earlier and later ones."""

    def __init__(self, owner: ConnectionOwner, generation: int) -> None:
        self.generation = generation
        self.lost: HoldfastError | None = None
        self.link: ServerLink | None = None
        self._owner = owner
        self._calls: dict[int, _Call] = {}
        self._questions: set[int] = set()
        self._last = 0
        self._unread = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._room = asyncio.Event()
        self._room.set()

    # --- the link's side

    def on_open(self, link: ServerLink) -> None:
        self.link = link

    def on_writable(self, now: bool) -> None:
        (self._writable.set if now else self._writable.clear)()

    def on_message(self, message: bytes | memoryview) -> None:
        pushed = decode_pushed(message)
        if pushed is not None:
            self._owner.take(pushed)
            return
        match rpc.decode(bytes(message)):
            case rpc.Response(id_, result):
                self._answer(id_, result, None)
            case rpc.ErrorResponse() as refused if authentication.is_refusal(refused):
                self._leave(from_rpc_error(refused.code, refused.message, refused.data))
            case rpc.ErrorResponse(id_, code, text, data):
                self._answer(id_, None, from_rpc_error(code, text, data))
            case rpc.Notification(method, params):
                pushed = convert_pushed(method, params)
                if pushed is not None:
                    self._owner.take(pushed)
                else:
                    self._owner.note(method, params)
            case rpc.Request(id_, method, params) if method == _QUESTION:
                self._take_question(id_, params)
            case rpc.Request(id_, method):
                self._send(
                    rpc.error(id_, -32601, f"this client does not implement `{method[: rpc.MAX_ECHO]}`")
                )

    def on_end(self, error: HoldfastError) -> None:
        self.lost = error
        calls, self._calls = self._calls, {}
        for method, answer in calls.values():
            if not answer.done():
                answer.set_exception(
                    ConnectionLost(
                        f"{error} while {method} was under way: it may or may not have happened",
                        remedy="look at its effect before you repeat it",
                    )
                )
        self._writable.set()
        self._room.set()
        self._owner.connection_lost(self, error)

    def _answer(self, id_: rpc.RequestId, result: JsonValue, error: HoldfastError | None) -> None:
        call = self._calls.pop(id_, None) if isinstance(id_, int) else None
        if call is None:
            if isinstance(id_, int) and 0 < id_ <= self._last:
                return  # the caller has stopped waiting for it
            raise RemoteProtocolError("the server answers what was not asked") from error
        if len(self._calls) < MAX_CALLS:
            self._room.set()
        if isinstance(error, ConnectionLost):
            self.drop(str(error))  # an intermediary has lost the server
        if call.answer.done():
            return
        if error is None:
            call.answer.set_result(result)
        else:
            call.answer.set_exception(error)

    def _leave(self, error: HoldfastError) -> None:
        if self.link is None:
            raise AssertionError("messages come after the link is opened")
        self.link.abort(error)

    def _take_question(self, id_: rpc.RequestId, params: JsonValue) -> None:
        """Take the only kind of request that a server sends.

        The server chooses its ids; each may be pending only once.
        """
        if not isinstance(id_, int) or id_ <= 0 or id_ in self._questions:
            raise RemoteProtocolError("the server numbers its questions wrongly")
        self._questions.add(id_)
        self._owner.ask(params, functools.partial(self._reply, id_))

    def _reply(self, id_: int, answer: PolicyReply | None) -> None:
        self._questions.discard(id_)
        if self.lost is not None:
            return  # the server has counted the missing answer as a refusal
        if answer is None:
            self._send(rpc.error(id_, -32602, "invalid network policy request params"))
        else:
            self._send(rpc.response(id_, answer))

    def _send(self, message: bytes) -> None:
        """Send an answer of ours.

        It does not wait for room, so a server that asks and reads nothing is dropped.
        """
        if self.link is None:
            raise AssertionError("messages come after the link is opened")
        self._unread = 0 if self._writable.is_set() else self._unread + 1
        if self._unread > MAX_UNREAD:
            self.drop("the server asks, and reads no answers")
        else:
            self.link.send(message)

    # --- what the session uses

    async def call(
        self, method: str, params: object, *, timeout_s: float | None = None, cleanup: bool = False
    ) -> JsonValue:
        """Send one request and return its result.

        Raises:
            NotSent: the link ended before the request was sent.
            ConnectionLost: the link ended before the answer came.
            HoldfastError: the server refused; the class follows from its code.
            TimeoutError: no answer within `timeout_s`; the connection stays as it is.
        """
        with tracing.client_span(method):
            async with asyncio.timeout(timeout_s):
                return await self._call(method, params, cleanup=cleanup)

    async def _call(self, method: str, params: object, *, cleanup: bool) -> JsonValue:
        while not cleanup and len(self._calls) >= MAX_CALLS and self.lost is None:
            self._room.clear()
            await self._room.wait()
        if not self._writable.is_set():
            await self._writable.wait()
        if self.lost is not None or self.link is None:
            raise NotSent(f"{self.lost or 'there is no link'}; {method} was not sent")
        number = self._last + 1
        trace = tracing.current()
        parent, state = trace or (None, None)
        message = rpc.request(number, method, params, traceparent=parent, tracestate=state)
        if len(message) > rpc.MAX_MESSAGE_BYTES:
            raise UsageError(
                f"{method} would be a message of {len(message)} bytes; {rpc.MAX_MESSAGE_BYTES} are allowed",
                remedy="send it in smaller pieces",
            )
        self._last = number
        answer: asyncio.Future[JsonValue] = asyncio.get_running_loop().create_future()
        self._calls[number] = _Call(method, answer)
        self.link.send(message)
        try:
            return await answer
        finally:
            if self._calls.pop(number, None) is not None and len(self._calls) < MAX_CALLS:
                self._room.set()

    def notify(self, method: str, params: object) -> None:
        if self.link is not None and self.lost is None:
            self.link.send(rpc.notification(method, params))

    def drop(self, reason: str) -> None:
        """End the link, so that the session recovers on another."""
        if self.link is not None and self.lost is None:
            self.link.abort(ConnectionLost(reason))


class Hello(msgspec.Struct, rename="camel"):
    """A server's answer to `initialize`; old servers leave the second member out."""

    session_id: str
    environment_info: EnvironmentInfo | None = None


@dataclass(frozen=True, slots=True)
class Dialer:
    """The target to dial, and how long to wait."""

    target: Target
    connect_timeout_s: float
    initialize_timeout_s: float

    async def enter(
        self, connection: ClientConnection, resume: str | None, *, introduce: bool = False
    ) -> Hello:
        """Open a link on which every method may be used.

        With `introduce`, the environment's info is fetched as well.

        Raises:
            Unreachable: the server does not answer in time, or closes the connection.
            TokenRefused: the token is not accepted.
            ProtocolMismatch: the peer is not an exec server.
            HoldfastError: the server's own refusal, such as an unknown session.
        """
        await dial(self.target, connection, timeout_s=self.connect_timeout_s)
        try:
            return await self._shake_hands(connection, resume, introduce=introduce)
        except BaseException as exc:
            connection.drop("the handshake failed")
            if connection.link is not None:
                await connection.link.aclose()
            if isinstance(exc, ConnectionLost | RemoteProtocolError | MethodNotFound):
                raise self._verdict(connection, exc) from None
            raise

    async def _shake_hands(
        self, connection: ClientConnection, resume: str | None, *, introduce: bool
    ) -> Hello:
        params = InitializeParams(CLIENT_NAME, resume, holdfast=True)
        try:
            await self._authenticate(connection)
            answer = await connection.call("initialize", params, timeout_s=self.initialize_timeout_s)
            hello = decoding.convert(answer, Hello)
            if resume not in (None, hello.session_id):
                raise ProtocolMismatch("the server resumed another session than asked for")
            connection.notify("initialized", {})
            if hello.environment_info is None and introduce:
                answer = await connection.call("environment/info", None, timeout_s=INFO_S)
                hello.environment_info = decoding.convert(answer, EnvironmentInfo)
        except TimeoutError:
            if isinstance(self.target, SshTarget):
                raise ssh.explain_silence(self.target, self.initialize_timeout_s) from None
            raise Unreachable(f"{self.target} accepts connections and does not answer") from None
        except msgspec.ValidationError as exc:
            raise ProtocolMismatch(str(exc)) from None
        return hello

    async def _authenticate(self, connection: ClientConnection) -> None:
        if not isinstance(self.target, UnixTarget) or self.target.token is None:
            return
        shown = authentication.AuthenticateParams(self.target.token)
        with contextlib.suppress(MethodNotFound):  # a server of a version without tokens
            await connection.call(authentication.METHOD, shown, timeout_s=self.initialize_timeout_s)

    def _verdict(self, connection: ClientConnection, error: HoldfastError) -> HoldfastError:
        """The error for a link that ended during the handshake: it names what may be at the other end."""
        cause = connection.lost if isinstance(connection.lost, _SAID) else error
        if isinstance(cause, Unreachable | PeerRefused):
            return cause
        if isinstance(cause, ConnectionLost):
            return Unreachable(f"{self.target} hung up: {cause}", remedy="read its log")
        return ProtocolMismatch(
            f"{self.target} is no exec server: {cause}", remedy="give the address of an exec server"
        )
