"""Calls to a table of methods on a unix socket, and the server's notifications."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    MethodNotFound,
    OperationFailed,
    RemoteProtocolError,
    Unreachable,
    UsageError,
    from_rpc_error,
)
from holdfast.unixrpc.calls import Notice, RpcMethod, decode_params, decode_result
from holdfast.wire import authentication, rpc
from holdfast.wire.lines import LineReader

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

CALL_S: Final = 30.0
MAX_NOTICES: Final = 10_000  # not taken yet; with more the connection is dropped
_READ: Final = 64 * 1024
_AUTHENTICATE: Final = RpcMethod(
    authentication.METHOD, authentication.AuthenticateParams, authentication.Authenticated
)


class PeerGone(ConnectionLost):
    """This connection has ended. An answered `ConnectionLost` concerns another connection, of the server."""


class RpcClient:
    """One connection. `who` names the server in errors; it takes lines of `max_line` bytes."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        who: str,
        notices: Iterable[Notice[Any]],
        max_line: int,
    ) -> None:
        reader, self._writer = streams
        self._who = who
        self._max_line = max_line
        self._known = {notice.name: notice.params for notice in notices}
        self._answers: dict[rpc.RequestId, asyncio.Future[bytes]] = {}
        self._notices: asyncio.Queue[object] = asyncio.Queue()
        self._last = 0
        self._refused: HoldfastError | None = None
        self._task = asyncio.get_running_loop().create_task(self._read(reader))

    @classmethod
    async def connect(
        cls,
        path: Path,
        who: str,
        notices: Iterable[Notice[Any]] = (),
        *,
        max_line: int = rpc.MAX_MESSAGE_BYTES,
        token: Callable[[], str] | None = None,
    ) -> "RpcClient":
        """Connect to a server.

        `token` is called after the connection was accepted: the server has created the token by then.

        Raises:
            Unreachable: no server listens there.
            PeerRefused: the server refuses us.
        """
        try:
            client = cls(await asyncio.open_unix_connection(path), who, notices, max_line)
        except OSError as exc:
            raise Unreachable(f"no {who} answers at {path}: {exc.strerror or exc}") from None
        if token is not None:
            try:
                await client.call(_AUTHENTICATE, authentication.AuthenticateParams(token()))
            except MethodNotFound:  # a server of a version without tokens
                pass
            except PeerGone as exc:
                await client.aclose()
                raise Unreachable(f"no {who} answers at {path}: {exc}") from None
            except BaseException:
                await client.aclose()
                raise
        return client

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def call(self, method: RpcMethod[P, R], params: P, *, timeout_s: float | None = CALL_S) -> R:
        """Make a call. Raises HoldfastError as the server does, and PeerGone if that is gone."""
        self._last += 1
        number = self._last
        message = rpc.request(number, method.name, params)
        if len(message) > self._max_line:
            raise UsageError(f"{method.name} would be {len(message)} bytes; {self._max_line} are allowed")
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if self._task.done() or self._writer.is_closing():
                raise self._gone()
            async with asyncio.timeout(timeout_s):
                self._writer.write(message + b"\n")
                with contextlib.suppress(ConnectionError):  # the reader notices it too, and reports it
                    await self._writer.drain()
                return decode_result(await answer, method.result)
        except TimeoutError:
            raise OperationFailed(f"the {self._who} does not answer to {method.name}") from None
        finally:
            self._answers.pop(number, None)

    async def notices(self) -> AsyncIterator[object]:
        """Yield the params of each notice, until the server is gone."""
        while (params := await self._notices.get()) is not None:
            yield params
        self._notices.put_nowait(None)  # for the next caller

    def _gone(self) -> HoldfastError:
        return self._refused or PeerGone(f"the {self._who} is gone")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        lines = LineReader()
        try:
            while self._notices.qsize() < MAX_NOTICES and (data := await reader.read(_READ)):
                for line in lines.feed(data):
                    self._take(line)
        except (OSError, RemoteProtocolError) as exc:  # treated as the end of the connection
            log.debug("a connection ended", extra={"reason": type(exc).__name__})
        finally:
            self._writer.close()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(self._gone())
            self._notices.put_nowait(None)

    def _take(self, line: bytes) -> None:
        if line.startswith(b'{"note":'):  # the beginning of a notice of a 0.1.0 supervisor
            line = line.replace(b"note", b"method", 1)
        try:
            message = rpc.decode(line)
            if isinstance(message, rpc.Notification) and message.method in self._known:
                self._notices.put_nowait(decode_params(line, self._known[message.method]))
        except (RemoteProtocolError, UsageError) as exc:  # of another version: what matters can be requested
            log.debug("a message was left out", extra={"reason": str(exc)[:200]})
            return
        if isinstance(message, rpc.ErrorResponse) and authentication.is_refusal(message):
            self._refused = from_rpc_error(message.code, message.message, message.data)
        elif isinstance(message, rpc.Response | rpc.ErrorResponse):
            answer = self._answers.get(message.id)
            if answer is None or answer.done():
                return  # the caller has stopped waiting for it
            if isinstance(message, rpc.Response):
                answer.set_result(line)
            else:
                answer.set_exception(from_rpc_error(message.code, message.message, message.data))
