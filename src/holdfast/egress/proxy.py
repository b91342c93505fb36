"""An HTTP proxy on one connection of a command: CONNECT, and requests with absolute URLs.

The connection comes out of the command's own network namespace, so only the command can be at its other end.
Each request is parsed and serialised anew (`exchange.py`); its Host must match the URL.
"""

import asyncio
import contextlib
import socket
from typing import Final

import h11
import msgspec

from holdfast.egress.bounds.requested import find_methods
from holdfast.egress.dial import Route
from holdfast.egress.exchange import (
    BadRequest,
    Leg,
    Passing,
    PlainStream,
    check_framing,
    exchange,
    keep_headers,
    say,
    send_answer,
    serve_requests,
)
from holdfast.egress.gate import Gate
from holdfast.egress.hosts import BadHost, Host, parse_target
from holdfast.egress.splice import splice, take_leave
from holdfast.egress.verdicts import READING, Attempt, Protocol, Verdict, describe, explain, name_error

HTTP_PORT: Final = 80
MAX_METHOD: Final = 32  # of a method in an override header, as reported
_SCHEME: Final = b"http://"


async def serve(sock: socket.socket, gate: Gate) -> None:
    """Answer the requests of one connection, one after the other; the caller closes it."""
    leg = Leg(PlainStream(sock), h11.SERVER)
    with contextlib.suppress(OSError):
        host, port = sock.getpeername()[:2]
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        async def answer(request: h11.Request) -> bool:
            if request.method == b"CONNECT":
                await _connect(leg, sock, gate, request, client)
                return False
            await _forward(leg, gate, request, client)
            return True

        await serve_requests(leg, answer)
        if leg.http.our_state is not h11.SWITCHED_PROTOCOL:
            await take_leave(sock)


async def _connect(leg: Leg, sock: socket.socket, gate: Gate, request: h11.Request, client: str) -> None:
    host, port = _parse(request.target)
    attempt = Attempt(Protocol.HTTPS_CONNECT, host, port, client, "CONNECT")
    try:
        way = await gate.admit(attempt)
        if isinstance(way, Verdict):
            await say(leg, 403, explain(way), error=name_error(way))
            return
        if gate.inspector is not None and gate.inspector.covers(host.name, port):
            await leg.send(h11.Response(status_code=200, headers=[], reason=b"OK"))
            await gate.join(sock, way, port, leg.http.trailing_data[0])
            return
        outer = await gate.connect(way, port)
    except OSError:
        await say(leg, 502, "the host could not be reached")
        return
    with outer:
        await leg.send(h11.Response(status_code=200, headers=[], reason=b"OK"))
        early, _ = leg.http.trailing_data
        if early:
            await asyncio.get_running_loop().sock_sendall(outer, early)
        await splice(sock, outer)


async def _forward(leg: Leg, gate: Gate, request: h11.Request, client: str) -> None:
    host, port, path = _parse_url(request.target)
    _check_headers(request, host, port)
    passing = _Watched(gate)
    passing.look(b"\n".join((request.target, *(name + b" " + value for name, value in request.headers))))
    attempt = Attempt(Protocol.HTTP, host, port, client, _find_method(request))
    try:
        way = await gate.admit(attempt)
        if isinstance(way, Verdict):
            await _refuse(leg, attempt, way)
            return
        outer = await gate.connect_http(way, port)
    except OSError:
        await say(leg, 502, "the host could not be reached")
        return
    with outer:
        far = Leg(PlainStream(outer), h11.CLIENT)
        try:
            await far.send(_rewrite(request, way, host, port, path))
            await exchange(leg, far, passing)
        except (OSError, h11.RemoteProtocolError):
            if leg.http.our_state is h11.SEND_RESPONSE:
                await say(leg, 502, "the host did not answer as an HTTP server does")


def _find_method(request: h11.Request) -> str:
    """The effective method: that of an override header, if it does more than read."""
    other = (
        method.decode("ascii", "backslashreplace")[:MAX_METHOD] for method in find_methods(request.headers)
    )
    return next((method for method in other if method not in READING), request.method.decode("ascii"))


class _Watched(Passing):
    """A request in plain text, which must not contain a key, whatever its host."""

    def __init__(self, gate: Gate) -> None:
        self._lookout = None if gate.inspector is None else gate.inspector.look_out()

    def look(self, data: bytes) -> None:
        if self._lookout is not None and self._lookout.sees(data):
            raise BadRequest("it has a key that is not for it", 403)

    def pass_request(self, data: bytes) -> bytes:
        self.look(data)
        return data


def _parse(target: bytes) -> tuple[Host, int]:
    """Parse the target of CONNECT."""
    try:
        return parse_target(target.decode("ascii"))
    except (BadHost, UnicodeDecodeError) as exc:
        raise BadRequest(_word(exc)) from None


def _parse_url(target: bytes) -> tuple[Host, int, bytes]:
    """Split an absolute URL into host, port and path."""
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
    """Refuse headers that two servers could interpret differently."""
    check_framing(request)
    for name, value in request.headers:
        if name == b"host":
            try:
                named = parse_target(value.decode("ascii"), HTTP_PORT)
            except (BadHost, UnicodeDecodeError):
                named = None
            if named != (host, port):
                raise BadRequest("the Host header is not the URL's")


def _rewrite(request: h11.Request, way: Route, host: Host, port: int, path: bytes) -> h11.Request:
    """The request as sent to the next server."""
    name = f"[{host}]" if ":" in host.name else host.name
    authority = (name if port == HTTP_PORT else f"{name}:{port}").encode("ascii")
    headers = [
        (b"Host", authority),
        *keep_headers(request),
        (b"Connection", b"close"),
    ]
    target = path
    if way.above is not None:
        target = _SCHEME + authority + path
        if way.above.authorization is not None:
            headers.append((b"Proxy-Authorization", way.above.authorization.encode("ascii")))
    return h11.Request(method=request.method, target=target, headers=headers)


async def _refuse(leg: Leg, attempt: Attempt, verdict: Verdict) -> None:
    body = msgspec.json.encode(describe(attempt, verdict))
    await send_answer(leg, 403, body, b"application/json", name_error(verdict))
