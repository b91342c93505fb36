"""Parse HTTP/1.1 requests completely and serialise them anew, between a program and a host.

So an outside server sees exactly what was judged here: nothing passes that the next server could interpret
differently, such as two framings, an upgrade, or trailers.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

import h11

from holdfast.egress.splice import CHUNK_BYTES, Hold, count_nothing

MAX_HEAD: Final = 64 * 1024  # of a request or a response: large enough for cookies, the largest part
HEAD_S: Final = 60.0  # for the next request; programs keep an idle connection open for less
_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"http2-settings"),
    }
)
Headers: TypeAlias = list[tuple[bytes, bytes]]


class BadRequest(Exception):
    """The request is refused; the text gives the reason, and `asked` is the request, if it was judged."""

    asked: tuple[bytes, bytes] | None = None

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Stream(Protocol):
    """Bytes in both directions."""

    async def receive(self) -> bytes:
        """More bytes, none at the end of file. Raises OSError."""

    async def send(self, data: bytes) -> None:
        """Raises OSError."""

    def cut(self) -> None:
        """Stop both directions."""


class PlainStream:
    """A plain socket; `first` was read from it before."""

    def __init__(
        self,
        sock: socket.socket,
        first: bytes = b"",
        *,
        sent: Callable[[int], None] = count_nothing,
        received: Callable[[int], None] = count_nothing,
    ) -> None:
        self._sock, self._first = sock, first
        self._sent, self._received = sent, received
        self._loop = asyncio.get_running_loop()

    async def receive(self) -> bytes:
        data, self._first = self._first, b""
        data = data or await self._loop.sock_recv(self._sock, CHUNK_BYTES)
        self._received(len(data))
        return data

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)
        self._sent(len(data))

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class HeldStream:
    """A stream whose bytes wait for a rate limit."""

    def __init__(self, stream: Stream, hold: Hold) -> None:
        self._stream, self._hold = stream, hold

    async def receive(self) -> bytes:
        data = await self._stream.receive()
        if data:
            await self._hold(len(data))
        return data

    async def send(self, data: bytes) -> None:
        await self._hold(len(data))
        await self._stream.send(data)

    def cut(self) -> None:
        self._stream.cut()


class Leg:
    """One side of an exchange: a stream and the state of HTTP on it."""

    def __init__(self, stream: Stream, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self.stream = stream
        self.is_head = False  # the request is a HEAD, whose response has no body
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self._turn = asyncio.Lock()

    async def receive(self) -> h11.Event | type[h11.PAUSED]:
        """The next event. Raises h11.RemoteProtocolError, OSError."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive())
            await asyncio.sleep(0)  # fast peers never block here, so yield to other tasks
        return event  # type: ignore[return-value]

    async def send(self, *events: h11.Event) -> None:
        data = b"".join(self.http.send(event) or b"" for event in events)
        async with self._turn:  # keeps the order of messages
            await self.stream.send(data)


class Passing:
    """Hooks for the data of an exchange; by default it passes unchanged. Subclasses change or refuse it."""

    def pass_request(self, data: bytes) -> bytes:
        """A part of the request's body. Raises BadRequest to stop passing it on."""
        return data

    def pass_answer(self, answer: h11.Response) -> h11.Response:
        """Raises h11.RemoteProtocolError."""
        return h11.Response(
            status_code=answer.status_code, headers=keep_headers(answer), reason=answer.reason
        )

    def pass_data(self, data: bytes) -> bytes:
        """A part of the response's body."""
        return data

    def finish(self) -> bytes:
        """Data held back until the end of the body."""
        return b""


async def serve_requests(leg: Leg, answer: Callable[[h11.Request], Awaitable[bool]]) -> None:
    """Have the requests of a connection answered, one after the other. Raises OSError.

    `answer` returns whether another may follow; it raises BadRequest, h11.ProtocolError, OSError.
    """
    while await _answer_next(leg, answer):
        leg.http.start_next_cycle()


async def _answer_next(leg: Leg, answer: Callable[[h11.Request], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(HEAD_S):
            request = await leg.receive()
        if not isinstance(request, h11.Request):
            return False
        leg.is_head = request.method == b"HEAD"
        if not await answer(request):
            return False
    except TimeoutError:
        return False
    except BadRequest as exc:
        await say(leg, exc.status, str(exc))
        return False
    except h11.RemoteProtocolError as exc:
        await say(leg, exc.error_status_hint, "this is not a request of HTTP/1.1")
        return False
    except h11.LocalProtocolError:
        return False  # a message from one side cannot be expressed to the other
    return leg.http.our_state is h11.DONE and leg.http.their_state is h11.DONE


async def exchange(leg: Leg, far: Leg, passing: Passing) -> None:
    """Send the rest of the request and receive the response, at the same time.

    Raises:
        BadRequest: its body is refused; the host got only a part of it.
        h11.RemoteProtocolError, OSError: the host did not answer.
    """
    body = asyncio.create_task(_pass_body(leg, far, passing))
    try:
        await _pass_answer(far, leg, passing)
    finally:
        body.cancel()
        await asyncio.wait([body])
        if not body.cancelled() and (refused := body.exception()) is not None:
            raise refused from None


async def _pass_body(leg: Leg, far: Leg, passing: Passing) -> None:
    with contextlib.suppress(OSError):
        try:
            while isinstance(event := await leg.receive(), h11.Data):
                await far.send(h11.Data(data=passing.pass_request(bytes(event.data))))
            if isinstance(event, h11.EndOfMessage):
                await far.send(h11.EndOfMessage())  # without trailers: they have not been judged
                return
        except h11.ProtocolError:
            pass
        except BadRequest:
            far.stream.cut()
            raise
        far.stream.cut()  # the program is gone, or sent an invalid body: nothing follows


async def _pass_answer(far: Leg, leg: Leg, passing: Passing) -> None:
    while True:
        event = await far.receive()
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                raise h11.RemoteProtocolError("no upgrade was asked for")
            await leg.send(h11.InformationalResponse(status_code=event.status_code, headers=[]))
        elif isinstance(event, h11.Response):
            await leg.send(passing.pass_answer(event))
        elif isinstance(event, h11.Data):
            if data := passing.pass_data(bytes(event.data)):
                await leg.send(h11.Data(data=data))
        elif isinstance(event, h11.EndOfMessage):
            rest = passing.finish()
            await leg.send(*([h11.Data(data=rest)] if rest else []), h11.EndOfMessage())
            return
        else:
            raise h11.RemoteProtocolError("the answer broke off")


def check_framing(request: h11.Request) -> None:
    """Refuse framing that two servers could interpret differently. Raises BadRequest."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise BadRequest("a request has one length")


def keep_headers(message: h11.Request | h11.Response) -> Headers:
    """The end-to-end headers, as they were written, and the length, once.

    h11 has refused contradictory headers.
    """
    named = {
        word.strip().lower()
        for name, value in message.headers
        if name == b"connection"
        for word in value.split(b",")
    }
    written = message.headers.raw_items()
    kept = [(name, value) for name, value in written if name.lower() not in _HOP | named]
    return [*kept, *_length(message)]


def _length(message: h11.Request | h11.Response) -> Headers:
    given = dict(message.headers)
    if b"transfer-encoding" in given:
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", given[b"content-length"])] if b"content-length" in given else []


async def say(leg: Leg, status: int, text: str, *, error: str | None = None) -> None:
    """Answer with a text of our own."""
    await send_answer(leg, status, text.encode("utf-8"), b"text/plain", error)


async def send_answer(leg: Leg, status: int, body: bytes, kind: bytes, error: str | None) -> None:
    """Send a complete response of our own; nothing more is read from this connection."""
    if leg.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    headers = [
        (b"Content-Type", kind),
        (b"Content-Length", str(len(body)).encode("ascii")),
        (b"Connection", b"close"),
    ]
    if error is not None:
        headers.append((b"X-Proxy-Error", error.encode("ascii")))
    content = () if leg.is_head else (h11.Data(data=body),)
    reason = HTTPStatus(status).phrase.encode("ascii")
    answer = h11.Response(status_code=status, headers=headers, reason=reason)
    await leg.send(answer, *content, h11.EndOfMessage())
