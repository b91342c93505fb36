"""The supervisor's unix socket: one JSON object a line, in both directions.

    → {"id": 1, "method": "status", "params": {"worker": "codex-1f"}}
    ← {"id": 1, "result": {…}}  or  {"id": 1, "error": {"code": …, "message": …, "remedy": …}}
    ← {"note": "change", "params": {…}}        on a connection that asked for them

Only the user that owns the supervisor gets an answer.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    MethodNotFound,
    OperationFailed,
    RemoteProtocolError,
    Unreachable,
    UsageError,
    face,
    from_rpc_error,
    kind,
)
from holdfast.local import peers

log = logging.getLogger(__name__)

MAX_LINE: Final = 4 << 20  # a prompt, or a screen with its history
MAX_UNSENT: Final = 8 << 20  # bytes that a client may leave unread before it is cut off
CALL_S: Final = 30.0


class Call(msgspec.Struct):
    """What a client asks. Parameters stay raw until the method is known."""

    id: int
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Fault(msgspec.Struct, omit_defaults=True):
    code: int
    message: str
    remedy: str | None = None
    kind: str = ""  # of older ones only the code is known


class Line(msgspec.Struct, omit_defaults=True):
    """What the supervisor says: an answer, or a note."""

    id: int | None = None
    result: Any = None
    error: Fault | None = None
    note: str | None = None
    params: Any = None


_calls = msgspec.json.Decoder(Call)
_lines = msgspec.json.Decoder(Line)
_encode = msgspec.json.Encoder().encode


class Peer:
    """One connection, as a handler sees it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._gone = False
        self.farewells: list[Callable[[], object]] = []  # called once, when it is gone

    def leave(self) -> None:
        self._gone = True
        for farewell in self.farewells:
            farewell()

    def note(self, name: str, params: object) -> None:
        """Tell it something; one that does not read is cut off."""
        self._send(Line(note=name, params=params))

    def answer(self, line: Line) -> None:
        self._send(line)

    def _send(self, line: Line) -> None:
        transport = self._writer.transport
        if self._gone or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNSENT:
            log.warning("a client that does not read was cut off")
            transport.abort()
            return
        self._writer.write(_encode(line) + b"\n")


Handler = Callable[[Any, Peer], Awaitable[object]]


class Method(msgspec.Struct, frozen=True):
    """A row of the table: what a method takes, and who answers."""

    params: type
    handle: Handler


class ControlServer:
    """Answers calls by a table of methods. Each call is a task, so a slow one holds up nobody."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def listen(self, path: Path) -> asyncio.Server:
        """Raises OperationFailed when that path cannot be listened on."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # its owner holds the lock, so whoever made it is gone
        try:
            server = await asyncio.start_unix_server(self._serve, path, limit=MAX_LINE)
        except (OSError, ValueError) as exc:
            remedy = "set HOLDFAST_HOME to a directory with a shorter name"
            raise OperationFailed(f"cannot listen on {path}: {exc}", remedy=remedy) from None
        os.chmod(path, 0o600)
        return server

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not peers.allowed(peers.uid_of_unix_peer(writer.get_extra_info("socket")), own=os.getuid()):
            writer.transport.abort()
            return
        peer = Peer(writer)
        self.connections += 1
        try:
            async for data in _frames(reader):
                self._spawn(self._answer(data, peer))
        finally:
            self.connections -= 1
            peer.leave()
            writer.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, data: bytes, peer: Peer) -> None:
        number = 0
        try:
            call = _calls.decode(data)
            number = call.id
            method = self._methods.get(call.method)
            if method is None:
                raise MethodNotFound(f"no method {call.method}")
            params: object = msgspec.json.decode(call.params, type=method.params)
            peer.answer(Line(id=number, result=await method.handle(params, peer)))
        except msgspec.MsgspecError as exc:
            peer.answer(Line(id=number, error=Fault(face(UsageError("")).rpc, str(exc), kind="UsageError")))
        except HoldfastError as exc:
            peer.answer(Line(id=number, error=Fault(face(exc).rpc, str(exc), exc.remedy, kind(exc))))
        except Exception:
            log.exception("a call failed")
            peer.answer(Line(id=number, error=Fault(-32603, "the supervisor failed; its log says how")))


class Client:
    """One connection to the supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._notes: asyncio.Queue[Line | None] = asyncio.Queue(maxsize=10_000)
        self._last = 0
        self._task = asyncio.get_running_loop().create_task(self._read(reader))

    @classmethod
    async def connect(cls, path: Path) -> "Client":
        """Raises Unreachable when nobody listens there."""
        try:
            return cls(*await asyncio.open_unix_connection(path, limit=MAX_LINE))
        except OSError as exc:
            raise Unreachable(f"no supervisor answers at {path}: {exc.strerror or exc}") from None

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def call(self, method: str, params: object = None, *, timeout_s: float | None = CALL_S) -> Any:
        """Raises HoldfastError as the supervisor does; ConnectionLost when it is gone."""
        self._last += 1
        number = self._last
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        raw = msgspec.Raw(_encode({} if params is None else params))
        try:
            if self._task.done() or self._writer.is_closing():
                raise ConnectionLost("the supervisor is gone")
            self._writer.write(_encode(Call(number, method, raw)) + b"\n")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise OperationFailed(f"the supervisor does not answer to {method}") from None
        finally:
            self._answers.pop(number, None)

    async def notes(self) -> AsyncIterator[Line]:
        """What the supervisor says unasked, until it is gone."""
        while (line := await self._notes.get()) is not None:
            yield line

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            async for data in _frames(reader):
                line = _lines.decode(data)
                if line.note is not None:
                    self._notes.put_nowait(line)
                    continue
                answer = self._answers.get(line.id or 0)
                if answer is None or answer.done():
                    continue
                if line.error is not None:
                    told = line.error
                    named = {"kind": told.kind, "remedy": told.remedy} if told.kind else None
                    answer.set_exception(from_rpc_error(told.code, told.message, named))
                else:
                    answer.set_result(line.result)
        except (OSError, RemoteProtocolError, msgspec.MsgspecError):
            pass  # the same as gone
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionLost("the supervisor is gone"))
            with contextlib.suppress(asyncio.QueueFull):
                self._notes.put_nowait(None)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise RemoteProtocolError(f"a line is longer than {MAX_LINE} bytes") from None
        except ConnectionError:
            return
        if not line.endswith(b"\n"):
            return
        yield line
