"""Dial a server: ws://, wss://, unix:// or a child's standard streams, to one `ServerLink`.

A link moves whole messages and decides nothing. Its receiver gets every message in order, and the end exactly
once. Outgoing frames are masked as the protocol demands; a WebSocket that stays silent after a ping is
dropped, because a peer that vanished closes nothing.

A child leads a process group of its own. Closing the link closes its input and sends SIGTERM to the group,
and after a grace period SIGKILL; processes of the group that outlive the child are killed too.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from holdfast.client.links.frames import BINARY, CLOSE, PING, TEXT, FrameReader
from holdfast.client.links.ssh import SshTarget
from holdfast.client.links.target import (
    AcceptedTarget,
    CommandTarget,
    NoiseTarget,
    Receiver,
    ServerLink,
    Target,
    UnixTarget,
    WebSocketTarget,
)
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    ProtocolMismatch,
    RemoteProtocolError,
    TokenRefused,
    Unreachable,
)
from holdfast.local import credentials
from holdfast.log import LIBRARY
from holdfast.rendezvous.outward import connect_outward
from holdfast.wire.lines import LineReader
from holdfast.wire.pongs import Pongs

log = logging.getLogger(__name__)

FRAGMENT_BYTES: Final = 8 * 1024 * 1024  # half of the frame that the reference accepts
WRITE_HIGH_BYTES: Final = 1024 * 1024  # unsent requests before further ones wait
MAX_HEAD_BYTES: Final = 64 * 1024  # of the answer to the upgrade
CLOSE_S: Final = 1.0  # to send what is queued; then the rest is dropped
PING_S: Final = 15.0  # silence after which we ping; after the same time again the peer counts as gone
GRACE_S: Final = 2.0  # of a child, between SIGTERM and SIGKILL
MAX_LOGGED_BYTES: Final = 2048  # of one piece of the child's stderr

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
_STDOUT, _STDERR = 1, 2
_REACH: Final = "start the server, or give the address that it printed"


async def dial(target: Target, receiver: Receiver, *, timeout_s: float) -> ServerLink:
    """Open a link to `target`, ready for messages.

    Raises:
        Unreachable: no server answers in time.
        TokenRefused: the server refuses the token.
        ProtocolMismatch: the peer does not speak the protocol.
    """
    if isinstance(target, NoiseTarget):
        from holdfast.client.links.noiselink import dial_noise
        from holdfast.rendezvous.registryclient import require_cryptography

        require_cryptography()
        return await dial_noise(target, receiver, timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            match target:
                case WebSocketTarget():
                    return await _dial_websocket(target, receiver)
                case UnixTarget(path=path):
                    loop = asyncio.get_running_loop()
                    _, line = await loop.create_unix_connection(lambda: LineLink(receiver), path)
                    return line
                case CommandTarget():
                    return await _start_child(target, lambda: ChildLink(receiver))
                case AcceptedTarget():
                    return await target.take(receiver)
                case SshTarget():
                    from holdfast.client.links.sshlink import SshLink

                    child = CommandTarget(target.argv())
                    return await _start_child(child, lambda: SshLink(target, receiver))
    except TimeoutError:
        raise Unreachable(f"{target} did not answer within {timeout_s:g} s", remedy=_REACH) from None
    except OSError as exc:  # also for name resolution and certificates
        reason = exc.strerror or type(exc).__name__
        raise Unreachable(f"{target} cannot be reached: {reason}", remedy=_REACH) from None


async def _dial_websocket(target: WebSocketTarget, receiver: Receiver) -> "WebSocketLink":
    loop = asyncio.get_running_loop()
    context = None
    if target.secure:
        context = await loop.run_in_executor(None, ssl.create_default_context)
    link = WebSocketLink(target, receiver)
    if target.secure or target.token is None:
        await connect_outward(lambda: link, target.host, target.port, context)
    else:  # without a proxy, which could read the token
        await loop.create_connection(lambda: link, target.host, target.port)
    try:
        await link.upgraded
    except BaseException:
        link.abort(Unreachable("given up"))
        raise
    return link


async def _start_child(target: CommandTarget, make: "Callable[[], ChildLink]") -> "ChildLink":
    """Start the program and talk to it.

    Raises:
        Unreachable: it cannot be started.
    """
    environ = {name: value for name, value in os.environ.items() if name.upper() not in credentials.VARIABLES}
    environ.update(target.environ)
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.subprocess_exec(
            make, *target.argv, env=environ, cwd=target.cwd, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "a word, a variable or its directory is none"
        raise Unreachable(
            f"{target} cannot be started: {reason}", remedy="install it, or give its whole path"
        ) from None
    return link


class _Framing:
    """What all links share. `_error` is the reason, if we ended the link."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._error: HoldfastError | None = None

    def pause_writing(self) -> None:
        self._receiver.on_writable(False)

    def resume_writing(self) -> None:
        self._receiver.on_writable(True)

    def abort(self, error: HoldfastError) -> None:
        raise NotImplementedError


class _Socket(_Framing):
    """One transport for both directions."""

    _transport: asyncio.Transport

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._gone = asyncio.Event()

    def abort(self, error: HoldfastError) -> None:
        self._error = self._error or error
        self._transport.abort()

    async def aclose(self) -> None:
        self._error = self._error or ConnectionLost("the connection was closed here")
        self._say_goodbye()
        if not self._transport.is_closing():
            self._transport.close()  # once: TLS of Python 3.11.2 cannot be aborted after a second close
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()
            await self._gone.wait()

    def _say_goodbye(self) -> None:
        """Send a closing message, if the framing has one."""


class _Lines(_Framing):
    """Newline framing."""

    _input: asyncio.WriteTransport
    _output: asyncio.ReadTransport

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._reader = LineReader()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._receiver.on_message(message)
        except RemoteProtocolError as exc:
            self.abort(exc)

    def send(self, message: bytes) -> None:
        if not self._input.is_closing():
            self._input.write(message + b"\n")

    def pause_reading(self) -> None:
        if not self._output.is_closing():
            self._output.pause_reading()

    def resume_reading(self) -> None:
        if not self._output.is_closing():
            self._output.resume_reading()


class WebSocketLink(_Socket, asyncio.BufferedProtocol):
    """A WebSocket, from its first byte. `upgraded` completes once messages may flow."""

    def __init__(self, target: WebSocketTarget, receiver: Receiver) -> None:
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._target = target
        super().__init__(receiver)
        self._handshake = ClientProtocol(parse_uri(target.url), logger=LIBRARY)
        self._head = bytearray()
        self._frames = FrameReader()
        self._pongs = Pongs(WRITE_HIGH_BYTES)
        self._open = False
        self._paused = False
        self._silent = False
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        request = self._handshake.connect()
        if self._target.token is not None:
            request.headers["Authorization"] = f"Bearer {self._target.token}"
        self._handshake.send_request(request)
        self._transport.write(b"".join(self._handshake.data_to_send()))

    def get_buffer(self, _hint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, count: int) -> None:
        self._silent = False
        try:
            if self._open:
                self._feed(count)
            else:
                self._on_head(count)
        except HoldfastError as exc:
            self.abort(exc)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        reason = "the server closed the connection" if exc is None else "the connection was reset"
        error = self._error or (ConnectionLost(reason) if self._open else Unreachable(reason, remedy=_REACH))
        self._gone.set()
        if not self.upgraded.done():
            self.upgraded.set_exception(error)
        if self._open:
            self._receiver.on_end(error)

    # --- upgrade

    def _on_head(self, count: int) -> None:
        self._head += self._frames.space()[:count]
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > MAX_HEAD_BYTES:
                raise ProtocolMismatch("the answer to the WebSocket upgrade has no end")
            return
        head, rest = bytes(self._head[: end + 4]), bytes(self._head[end + 4 :])
        self._check(head)
        self._open = True
        self._receiver.on_open(self)
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._tick)
        if not self.upgraded.done():
            self.upgraded.set_result(None)
        self._frames.space()[: len(rest)] = rest
        self._feed(len(rest))

    def _check(self, head: bytes) -> None:
        status = _STATUS.match(head)
        if status is None:
            raise ProtocolMismatch("whatever listens there does not speak HTTP", remedy=_REACH)
        code = int(status[1])
        if code in (401, 403):
            raise TokenRefused(
                f"the server refused the token (HTTP {code})"
                if self._target.token
                else f"the server wants a token (HTTP {code})",
                remedy="give the server's token as `token=`",
            )
        if code >= 500:
            raise Unreachable(f"a gateway answered for the server (HTTP {code})", remedy=_REACH)
        if code != 101:
            raise ProtocolMismatch(f"whatever listens there is no exec server (HTTP {code})", remedy=_REACH)
        self._handshake.receive_data(head)
        failed = self._handshake.handshake_exc
        if failed is not None:
            if not isinstance(failed, InvalidHandshake):
                raise failed
            raise ProtocolMismatch("the WebSocket upgrade was answered wrongly", remedy=_REACH)

    # --- frames

    def _feed(self, count: int) -> None:
        for opcode, payload in self._frames.feed(count):
            if opcode in (TEXT, BINARY):
                self._receiver.on_message(payload)
            elif opcode == PING:
                self._pong(bytes(payload))
            elif opcode == CLOSE:
                raise ConnectionLost("the server closed the connection")
            if self._error is not None:
                return

    def _pong(self, payload: bytes) -> None:
        if not self._transport.is_closing():
            answer = Frame(Opcode.PONG, payload).serialize(mask=True)
            self._transport.write(self._pongs.pass_on(answer, self._transport.get_write_buffer_size()))

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._pongs.resume())
        super().resume_writing()

    def _write(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        if not self._transport.is_closing():
            self._transport.write(Frame(opcode, data, fin).serialize(mask=True))

    def _tick(self) -> None:
        if self._silent and not self._paused:
            self.abort(ConnectionLost("the server is silent"))
            return
        self._silent = True
        self._write(Opcode.PING, b"")
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._tick)

    # --- what the receiver uses

    def send(self, message: bytes) -> None:
        if len(message) <= FRAGMENT_BYTES:
            self._write(Opcode.TEXT, message)
            return
        last = (len(message) - 1) // FRAGMENT_BYTES
        for number in range(last + 1):
            part = message[number * FRAGMENT_BYTES : (number + 1) * FRAGMENT_BYTES]
            self._write(Opcode.CONT if number else Opcode.TEXT, part, fin=number == last)

    def pause_reading(self) -> None:
        self._paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = self._silent = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _say_goodbye(self) -> None:
        self._write(Opcode.CLOSE, b"\x03\xe8")


class LineLink(_Lines, _Socket, asyncio.Protocol):
    """Lines on one stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._input = self._output = self._transport
        self._receiver.on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._receiver.on_end(self._error or ConnectionLost("the server closed the connection"))


class ChildLink(_Lines, asyncio.SubprocessProtocol):
    """Lines on a child's pipes."""

    _transport: asyncio.SubprocessTransport

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._over = False
        self._exited = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._output = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(_STDOUT))
        self._receiver.on_open(self)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        piece = cast(bytes, data)  # the pipes are opened without an encoding
        if fd == _STDERR:
            self.hear(piece)
        else:
            self.data_received(piece)

    def hear(self, piece: bytes) -> None:
        """Log what the child writes to its standard error."""
        log.debug("the server says", extra={"text": piece[:MAX_LOGGED_BYTES].decode(errors="replace")})

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:
            self._end(ConnectionLost("the server closed its output"))

    def process_exited(self) -> None:
        self._signal(signal.SIGKILL)  # what is left in its process group
        self._exited.set()
        self._end(ConnectionLost("the server ended"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.close()  # it does not close itself here, and warns when it is garbage-collected
        self._end(ConnectionLost("the server ended"))

    def abort(self, error: HoldfastError) -> None:
        self._error = self._error or error
        self._signal(signal.SIGKILL)
        self._transport.close()
        self._end(error)

    async def aclose(self) -> None:
        self._error = self._error or ConnectionLost("the connection was closed here")
        self._input.close()
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._exited.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._exited.wait()
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), number)

    def _end(self, error: HoldfastError) -> None:
        if not self._over:
            self._over = True
            self._receiver.on_end(self._error or error)
