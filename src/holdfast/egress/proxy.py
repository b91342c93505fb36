"""An HTTP proxy on one connection of a command: CONNECT, and requests with absolute URLs.

The connection comes out of the command's own network namespace, so nobody else can be at its other end. Each
request is read whole in its framing and written anew: what a server outside sees is what was judged here.
Nothing is passed on that could mean something else to the next server: two framings, a Host that is not the
URL's, an upgrade, trailers. A connection outside belongs to one request.
"""

import asyncio
import contextlib
import socket
from http import HTTPStatus
from typing import Final, TypeAlias

import h11
import msgspec

from holdfast.egress.dial import Route
from holdfast.egress.gate import Gate
from holdfast.egress.hosts import BadHost, Host, parse_target
from holdfast.egress.splice import CHUNK_BYTES, splice, take_leave
from holdfast.egress.verdicts import Attempt, Protocol, Verdict, describe, explain, name_error

MAX_HEAD: Final = 64 * 1024  # of a request or an answer: cookies are large, and nothing is larger
HEAD_S: Final = 60.0  # to send the next request; a program that keeps a connection open does so for less
HTTP_PORT: Final = 80
_SCHEME: Final = b"http://"
_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"http2-settings"),
    }
)
Headers: TypeAlias = list[tuple[bytes, bytes]]


class BadRequest(Exception):
    """The request is not one that a proxy takes; the text says why."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class _Leg:
    """One side of an exchange: a socket and the state of HTTP on it."""

    def __init__(self, sock: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self.sock = sock
        self.is_head = False  # the request is a HEAD, whose answer has no body
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def receive(self) -> h11.Event | type[h11.PAUSED]:
        """The next event; raises h11.RemoteProtocolError, OSError."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self._loop.sock_recv(self.sock, CHUNK_BYTES))
        return event  # type: ignore[return-value]

    async def send(self, *events: h11.Event) -> None:
        data = b"".join(self.http.send(event) or b"" for event in events)
        async with self._turn:  # what was said first goes first
            await self._loop.sock_sendall(self.sock, data)


async def serve(sock: socket.socket, gate: Gate) -> None:
    """Answer the requests of one connection, one after the other; the caller closes it."""
    leg = _Leg(sock, h11.SERVER)
    with contextlib.suppress(OSError):
        host, port = sock.getpeername()[:2]
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        while await _answer_next(leg, gate, client):
            leg.http.start_next_cycle()
        if leg.http.our_state is not h11.SWITCHED_PROTOCOL:
            await take_leave(sock)


async def _answer_next(leg: _Leg, gate: Gate, client: str) -> bool:
    """Answer one request; whether another may follow on this connection."""
    try:
        async with asyncio.timeout(HEAD_S):
            request = await leg.receive()
        if not isinstance(request, h11.Request):
            return False
        leg.is_head = request.method == b"HEAD"
        if request.method == b"CONNECT":
            await _connect(leg, gate, request, client)
            return False
        await _forward(leg, gate, request, client)
    except TimeoutError:
        return False
    except BadRequest as exc:
        await _say(leg, exc.status, str(exc))
        return False
    except h11.RemoteProtocolError as exc:
        await _say(leg, exc.error_status_hint, "this is not a request of HTTP/1.1")
        return False
    except h11.LocalProtocolError:
        return False  # what came from outside cannot be said inside, or the other way round
    return leg.http.our_state is h11.DONE and leg.http.their_state is h11.DONE


async def _connect(leg: _Leg, gate: Gate, request: h11.Request, client: str) -> None:
    host, port = _parse(request.target)
    attempt = Attempt(Protocol.HTTPS_CONNECT, host, port, client, "CONNECT")
    try:
        way = await gate.admit(attempt)
        if isinstance(way, Verdict):
            await _say(leg, 403, explain(way), error=name_error(way))
            return
        outer = await gate.connect(way, port)
    except OSError:
        await _say(leg, 502, "the host could not be reached")
        return
    with outer:
        await leg.send(h11.Response(status_code=200, headers=[], reason=b"OK"))
        early, _ = leg.http.trailing_data
        if early:
            await asyncio.get_running_loop().sock_sendall(outer, early)
        await splice(leg.sock, outer)


async def _forward(leg: _Leg, gate: Gate, request: h11.Request, client: str) -> None:
    host, port, path = _parse_url(request.target)
    _check_headers(request, host, port)
    attempt = Attempt(Protocol.HTTP, host, port, client, request.method.decode("ascii"))
    try:
        way = await gate.admit(attempt)
        if isinstance(way, Verdict):
            await _refuse(leg, attempt, way)
            return
        outer = await gate.connect_http(way, port)
    except OSError:
        await _say(leg, 502, "the host could not be reached")
        return
    with outer:
        far = _Leg(outer, h11.CLIENT)
        try:
            await far.send(_rewrite(request, way, host, port, path))
            await _exchange(leg, far)
        except (OSError, h11.RemoteProtocolError):
            if leg.http.our_state is h11.SEND_RESPONSE:
                await _say(leg, 502, "the host did not answer as an HTTP server does")


async def _exchange(leg: _Leg, far: _Leg) -> None:
    """The rest of the request outwards, and the answer inwards, at the same time."""
    body = asyncio.create_task(_pass_body(leg, far))
    try:
        await _pass_answer(far, leg)
    finally:
        body.cancel()
        await asyncio.wait([body])


async def _pass_body(leg: _Leg, far: _Leg) -> None:
    with contextlib.suppress(OSError):
        try:
            while isinstance(event := await leg.receive(), h11.Data):
                await far.send(h11.Data(data=event.data))
            if isinstance(event, h11.EndOfMessage):
                await far.send(h11.EndOfMessage())  # without trailers: nobody has judged them
                return
        except h11.ProtocolError:
            pass
        far.sock.shutdown(socket.SHUT_RDWR)  # the program is gone, or says what is no body: nothing follows


async def _pass_answer(far: _Leg, leg: _Leg) -> None:
    while True:
        event = await far.receive()
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                raise h11.RemoteProtocolError("no upgrade was asked for")
            await leg.send(h11.InformationalResponse(status_code=event.status_code, headers=[]))
        elif isinstance(event, h11.Response):
            await leg.send(
                h11.Response(
                    status_code=event.status_code,
                    headers=_keep(event),
                    reason=event.reason,
                )
            )
        elif isinstance(event, h11.Data):
            await leg.send(h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await leg.send(h11.EndOfMessage())
            return
        else:
            raise h11.RemoteProtocolError("the answer broke off")


def _parse(target: bytes) -> tuple[Host, int]:
    """The authority of CONNECT."""
    try:
        return parse_target(target.decode("ascii"))
    except (BadHost, UnicodeDecodeError) as exc:
        raise BadRequest(_word(exc)) from None


def _parse_url(target: bytes) -> tuple[Host, int, bytes]:
    """Host, port and path of an absolute URL."""
    if target[: len(_SCHEME)].lower() != _SCHEME:
        raise BadRequest("a proxy takes an absolute http:// URL, or CONNECT")
    if b"#" in target or b"\\" in target:
        raise BadRequest("the URL has what no request has")
    rest = target[len(_SCHEME) :]
    ends = [at for mark in (b"/", b"?") if (at := rest.find(mark)) >= 0]
    end = min(ends, default=len(rest))
    path = rest[end:] if rest[end : end + 1] == b"/" else b"/" + rest[end:]
    try:
        host, port = parse_target(rest[:end].decode("ascii"), HTTP_PORT)
    except (BadHost, UnicodeDecodeError) as exc:
        raise BadRequest(_word(exc)) from None
    return host, port, path


def _word(exc: Exception) -> str:
    return str(exc) if isinstance(exc, BadHost) else "a host is written in ASCII"


def _check_headers(request: h11.Request, host: Host, port: int) -> None:
    """Refuse what two servers could read in two ways."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise BadRequest("a request has one length")
    for name, value in request.headers:
        if name == b"host":
            try:
                named = parse_target(value.decode("ascii"), HTTP_PORT)
            except (BadHost, UnicodeDecodeError):
                named = None
            if named != (host, port):
                raise BadRequest("the Host header is not the URL's")


def _rewrite(request: h11.Request, way: Route, host: Host, port: int, path: bytes) -> h11.Request:
    """The request as the next server gets it."""
    name = f"[{host}]" if ":" in host.name else host.name
    authority = (name if port == HTTP_PORT else f"{name}:{port}").encode("ascii")
    headers = [
        (b"Host", authority),
        *_keep(request),
        (b"Connection", b"close"),
    ]
    target = path
    if way.above is not None:
        target = _SCHEME + authority + path
        if way.above.authorization is not None:
            headers.append((b"Proxy-Authorization", way.above.authorization.encode("ascii")))
    return h11.Request(method=request.method, target=target, headers=headers)


def _keep(message: h11.Request | h11.Response) -> Headers:
    """The headers that are for whoever is at the end, as they were written, and the length, said once.

    What contradicts itself has been refused by h11.
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


async def _refuse(leg: _Leg, attempt: Attempt, verdict: Verdict) -> None:
    body = msgspec.json.encode(describe(attempt, verdict))
    await _send(leg, 403, body, b"application/json", name_error(verdict))


async def _say(leg: _Leg, status: int, text: str, *, error: str | None = None) -> None:
    await _send(leg, status, text.encode("utf-8"), b"text/plain", error)


async def _send(leg: _Leg, status: int, body: bytes, kind: bytes, error: str | None) -> None:
    """A whole answer of our own; nothing more is read on this connection."""
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
