"""HTTP requests made by the other machine.

A streamed body is pushed: the protocol cannot make its sender wait. So bytes that are not read in time are
kept only up to a bound; a body that exceeds it ends with an error after the bytes that were kept. A lost link
ends every body at once, and none is resumed.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.client.events.ordering import convert
from holdfast.client.session import SessionCaller
from holdfast.errors import HoldfastError, OperationFailed, RemoteProtocolError, UsageError
from holdfast.wire.http import BodyDelta, HttpHeader, HttpRequestParams, HttpResponse
from holdfast.wire.rpc import JsonValue

MAX_DELTA_BYTES: Final = 1024 * 1024  # the protocol's bound of one piece
MAX_DELTAS: Final = 256  # waiting in one body
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024  # over all bodies of a session: memory that slow readers may use
_MAX_ENCODED: Final = 4 * math.ceil(MAX_DELTA_BYTES / 3)

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers; names in lower case, repeated ones kept in order."""

    status: int
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of `name`."""
        return next((value for given, value in self.headers if given.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Response(ResponseHead):
    """A whole response. The body is as it was received: not decompressed."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StreamedResponse(ResponseHead):
    """A response whose body is still coming: iterate over it, once."""

    _body: "_Body" = field(repr=False)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body


class Http:
    """HTTP requests made by one server."""

    def __init__(self, caller: SessionCaller) -> None:
        self._caller = caller
        self._numbers = itertools.count(1)
        self._bodies: dict[str, _Body] = {}
        self._waiting = _Waiting()
        caller.on("http/request/bodyDelta", self._on_delta)
        caller.on_lost(self._on_lost)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: bytes | None = None,
        timeout_s: float | None = None,
        follow_redirects: bool = True,
    ) -> Response:
        """Make one request and return the response with its whole body.

        An HTTP error status is a response, not an exception.

        Raises:
            UsageError: the method, URL or a header is invalid.
            OperationFailed: there is no connection, or the response is too slow or too large.
        """
        params = self._params(method, url, headers, content, timeout_s, follow_redirects, stream=False)
        answer = convert(await self._caller.call("http/request", params), HttpResponse)
        return Response(answer.status, _pairs(answer), answer.body_base64)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: bytes | None = None,
        timeout_s: float | None = None,
        follow_redirects: bool = True,
    ) -> AsyncIterator[StreamedResponse]:
        """Make one request whose body is iterated over as it arrives, in pieces of up to 1 MiB.

        Raises:
            OperationFailed: from the iteration: the body broke off, or was not read in time.
            ConnectionLost: from the iteration: the link died.
        """
        params = self._params(method, url, headers, content, timeout_s, follow_redirects, stream=True)
        body = self._bodies[params.request_id] = _Body(self._waiting)
        try:
            answer = convert(await self._caller.call("http/request", params), HttpResponse)
            yield StreamedResponse(answer.status, _pairs(answer), body)
        finally:
            self._bodies.pop(params.request_id, None)
            body.discard()

    def _params(
        self,
        method: str,
        url: str,
        headers: Headers,
        content: bytes | None,
        timeout_s: float | None,
        follow_redirects: bool,
        *,
        stream: bool,
    ) -> HttpRequestParams:
        if timeout_s is not None and not 0 <= timeout_s < math.inf:
            raise UsageError(f"{timeout_s} is no time", remedy="give seconds, or None to wait for ever")
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return HttpRequestParams(
            method,
            url,
            f"http-{next(self._numbers)}",
            [HttpHeader(name, value) for name, value in pairs],
            content,
            None if timeout_s is None else math.ceil(timeout_s * 1000),
            "follow" if follow_redirects else "stop",
            stream,
        )

    def _on_delta(self, params: JsonValue) -> None:
        """Take a piece of a body.

        Raises RemoteProtocolError if it is malformed; the link cannot be trusted then.
        """
        if isinstance(params, dict) and len(str(params.get("deltaBase64", ""))) > _MAX_ENCODED:
            raise RemoteProtocolError("the server sent a piece of an HTTP body above 1 MiB")
        delta = convert(params, BodyDelta)
        body = self._bodies.get(delta.request_id)
        if body is not None and not body.take(delta):
            del self._bodies[delta.request_id]

    def _on_lost(self, reason: HoldfastError) -> None:
        bodies, self._bodies = self._bodies, {}
        for body in bodies.values():
            body.end(reason)


@dataclass(slots=True)
class _Waiting:
    """Number of bytes that were received and not read yet, over all bodies."""

    count: int = 0


class _Body:
    """A body in transit: deltas in, pieces out. To be iterated by one task."""

    def __init__(self, waiting: _Waiting) -> None:
        self._waiting = waiting
        self._pieces: deque[bytes] = deque()
        self._next_seq = 1
        self._ended = False
        self._failure: HoldfastError | None = None
        self._news = asyncio.Event()

    def take(self, delta: BodyDelta) -> bool:
        """Add a delta; return whether more may follow."""
        size = len(delta.delta_base64) + len(delta.error or "")
        if delta.seq != self._next_seq:
            self.end(RemoteProtocolError(f"piece {self._next_seq} of an HTTP body is missing"))
        elif len(self._pieces) >= MAX_DELTAS or self._waiting.count + size > MAX_WAITING_BYTES:
            self.end(
                OperationFailed(
                    "the HTTP body came faster than it was read",
                    remedy="take the pieces as they come and work on them elsewhere",
                )
            )
        else:
            self._next_seq += 1
            if delta.delta_base64:
                self._pieces.append(delta.delta_base64)
                self._waiting.count += len(delta.delta_base64)
                self._news.set()
            if delta.error is not None:
                self.end(OperationFailed(f"the HTTP body broke off: {delta.error}"))
            elif delta.done:
                self.end(None)
        return not self._ended

    def end(self, failure: HoldfastError | None) -> None:
        """End the body after what has arrived."""
        self._ended, self._failure = True, failure
        self._news.set()

    def discard(self) -> None:
        """Drop the rest, which will not be read."""
        while self._pieces:
            self._pop()
        self.end(UsageError("the block of this stream has ended", remedy="iterate inside `async with`"))

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._pop()

    def _pop(self) -> bytes:
        piece = self._pieces.popleft()
        self._waiting.count -= len(piece)
        return piece


def _pairs(answer: HttpResponse) -> tuple[tuple[str, str], ...]:
    return tuple((header.name, header.value) for header in answer.headers)
