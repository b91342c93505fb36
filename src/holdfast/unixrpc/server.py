"""A table of methods on a unix socket, for processes of our own user only.

With a token, a process that is more confined than this one is refused, and any other must show the token
first.

Everything is bounded: the number of clients, the length of a line, the number of calls of one client under
way (it is not read from while it has that many), and the bytes that it leaves unread.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.errors import (
    HoldfastError,
    MethodNotFound,
    OperationFailed,
    PeerRefused,
    RemoteProtocolError,
    StartupError,
)
from holdfast.local import peers
from holdfast.local.shown import show_name
from holdfast.local.tasks import TaskSet
from holdfast.unixrpc.calls import Notice, RpcMethod, decode_params, encode_failure
from holdfast.wire import authentication, rpc
from holdfast.wire.lines import LineReader

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

MAX_PATH: Final = 107  # bytes, the kernel's bound; clients could not connect to a longer one
BACKLOG: Final = 128  # connections that the kernel queues for us
AUTHENTICATE_S: Final = 5.0  # to show the token, which our clients send at once
_READ: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """What clients may use. A client that is idle, or does not read, for `idle_s` is disconnected."""

    line: int  # bytes of a request
    unsent: int  # bytes that a client may leave unread before it is cut off
    clients: int
    calls: int  # of one client at the same time; with 1 they are answered in order
    idle_s: float | None = None


class Peer:
    """One connection, as seen by a handler."""

    def __init__(self, writer: asyncio.StreamWriter, max_unsent: int) -> None:
        self._writer = writer
        self._max_unsent = max_unsent
        self.farewells: list[Callable[[], object]] = []  # called once, when the connection is gone

    def notify(self, notice: Notice[P], params: P) -> None:
        """Send a notification; a client that does not read is cut off."""
        self.send(rpc.notification(notice.name, params))

    def send(self, message: bytes) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > self._max_unsent:
            log.warning("a client that does not read was cut off")
            transport.abort()
            return
        self._writer.write(message + b"\n")

    async def drain(self) -> None:
        """Wait until little of what was sent is unread. Raises OSError when the client is gone."""
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


class RpcServer:
    """Answers calls by a table of methods.

    Each call is a task, so a slow one does not delay other clients.
    """

    def __init__(self, limits: RpcLimits, token: Callable[[], str] | None = None) -> None:
        """`token` is called for each client."""
        self._limits = limits
        self._token = token
        self._methods: dict[str, tuple[RpcMethod[Any, Any], Callable[[Any, Peer], Awaitable[Any]]]] = {}
        self._clients: dict[asyncio.Task[Any], Peer] = {}
        self._calls = TaskSet()

    def answer(self, method: RpcMethod[P, R], handle: Callable[[P, Peer], Awaitable[R]]) -> None:
        """Add a row to the table."""
        self._methods[method.name] = (method, handle)

    @property
    def connections(self) -> int:
        return len(self._clients)

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Listen at `path` inside the block, in place of any previous listener there.

        Calls that are under way at the end are cancelled, and their clients see the connection end.

        Raises:
            StartupError: it cannot listen there.
        """
        with _bound(path) as sock:
            server = await asyncio.start_unix_server(self._serve, sock=sock)
            try:
                yield
            finally:
                server.close()
                for peer in self._clients.values():
                    peer.abort()
                await self._calls.aclose()
                await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a stream's callback runs in a task of its own")
        uid = peers.uid_of_unix_peer(writer.get_extra_info("socket"))
        if len(self._clients) >= self._limits.clients or not peers.is_allowed(uid, own=os.getuid()):
            writer.transport.abort()
            return
        peer = self._clients[task] = Peer(writer, self._limits.unsent)
        lines = LineReader(max_bytes=self._limits.line)
        try:
            early = await self._admit(writer.get_extra_info("socket"), reader, lines, peer)
            await self._read(reader, lines, early, peer)
        except PeerRefused as exc:
            log.warning("connection refused", extra={"reason": str(exc)})
            peer.send(authentication.refusal(exc))
        except RemoteProtocolError as exc:  # a line without an end
            peer.send(encode_failure(rpc.UNATTRIBUTED, exc))
        except (OSError, TimeoutError) as exc:
            log.debug("a client is gone", extra={"reason": type(exc).__name__})
        finally:
            del self._clients[task]
            writer.close()
            for farewell in peer.farewells:
                farewell()

    async def _admit(
        self, sock: peers.HasOptions, reader: asyncio.StreamReader, lines: LineReader, peer: Peer
    ) -> list[bytes]:
        """Wait until the client has shown the token, if required; return the requests that came with it.

        Raises:
            PeerRefused: it is not admitted.
            TimeoutError: it does not show the token in time.
        """
        if self._token is None:
            return []
        peers.refuse_confined(peers.find_excess_of_unix_peer(sock))
        said: list[bytes] = []
        async with asyncio.timeout(AUTHENTICATE_S):
            while not said:
                if not (data := await reader.read(_READ)):
                    return []
                said = lines.feed(data)
        id_ = authentication.check(said[0], self._token())
        peer.send(rpc.response(id_, authentication.Authenticated()))
        return said[1:]

    async def _read(
        self, reader: asyncio.StreamReader, lines: LineReader, waiting: list[bytes], peer: Peer
    ) -> None:
        room = asyncio.Semaphore(self._limits.calls)
        while True:
            for line in waiting:
                await room.acquire()
                call = self._calls.start(self._call(line, peer))
                call.add_done_callback(lambda _: room.release())
            async with room:
                pass  # a client that could not be answered now is neither read from nor counted as idle
            async with asyncio.timeout(self._limits.idle_s):
                data = await reader.read(_READ)
            if not data:
                return
            waiting = lines.feed(data)

    async def _call(self, line: bytes, peer: Peer) -> None:
        peer.send(await self._answer(line, peer))
        try:
            async with asyncio.timeout(self._limits.idle_s):
                await peer.drain()
        except (OSError, TimeoutError):
            peer.abort()

    async def _answer(self, line: bytes, peer: Peer) -> bytes:
        id_: rpc.RequestId = rpc.UNATTRIBUTED
        try:
            message = rpc.decode(line)
            if not isinstance(message, rpc.Request):
                raise RemoteProtocolError("expected a request")
            id_ = message.id
            if message.method not in self._methods:
                raise MethodNotFound(f"there is no method {message.method[: rpc.MAX_ECHO]}")
            method, handle = self._methods[message.method]
            return rpc.response(id_, await handle(decode_params(line, method.params), peer))
        except HoldfastError as exc:
            return encode_failure(id_, exc)
        except Exception as exc:
            log.exception("a call failed")
            if isinstance(exc, OSError) and isinstance(
                exc.filename, str
            ):  # a fault of the host, not of our code
                return encode_failure(id_, OperationFailed(f"{show_name(exc.filename)}: {exc.strerror}"))
            return encode_failure(id_, OperationFailed("internal error; the log of who was asked says more"))


@contextlib.contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    """A socket for our user only, which listens from the moment its name exists."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise StartupError(f"{path} is too long for a socket", remedy="set HOLDFAST_HOME to a shorter path")
    hidden = path.with_name(f".{secrets.token_hex(4)}")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(hidden))
        hidden.chmod(0o600)
        sock.listen(BACKLOG)
        here = hidden.stat().st_ino
        hidden.rename(path)
    except OSError as exc:
        sock.close()
        with contextlib.suppress(OSError):
            hidden.unlink()
        raise StartupError(f"cannot listen on {path}: {exc.strerror or exc}") from None
    try:
        yield sock
    finally:
        sock.close()
        with contextlib.suppress(OSError):
            if path.stat().st_ino == here:  # another server may have replaced ours
                path.unlink()
