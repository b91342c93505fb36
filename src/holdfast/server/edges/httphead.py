"""The HTTP surface in front of the WebSocket: which request gets which answer. Pure module.

Everything is decided from the request head alone, before authentication state or sockets are touched: any
`Origin` is refused first (a browser must never reach an exec server), then the route is checked, then the
method. Authentication comes last, and is done by the caller, which has the connection.
"""

import binascii
import hashlib
from typing import Final, NamedTuple

from holdfast.errors import PeerRefused, RemoteProtocolError

MAX_HEAD_BYTES: Final = 16 * 1024  # no honest client sends more than a few hundred bytes

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"
_PROBES: Final = ("/readyz", "/healthz")
METRICS: Final = "/metrics"
_KEY_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_KEY_BYTES: Final = 16


class RequestHead(NamedTuple):
    """A request line and its headers, names in lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    version: str = "HTTP/1.1"
    query: str = ""

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key == name), None)

    def only(self, name: str) -> str | None:
        """The value of a header that occurs exactly once."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None

    def reads(self) -> bool:
        return self.method in ("GET", "HEAD")

    def wants_upgrade(self) -> bool:
        tokens = [token.strip().lower() for token in (self.get("connection") or "").split(",")]
        return "upgrade" in tokens


class HeadAnswer(NamedTuple):
    """A complete HTTP response; the connection closes after it."""

    status: int
    body: bytes = b""
    content_type: str = _TEXT
    allow: str | None = None
    head_only: bool = False

    def encode(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS[self.status]}", "connection: close"]
        if self.body:
            lines.append(f"content-type: {self.content_type}")
        if self.allow:
            lines.append(f"allow: {self.allow}")
        lines.append(f"content-length: {len(self.body)}")
        head = "\r\n".join(lines) + "\r\n\r\n"
        return head.encode() + (b"" if self.head_only else self.body)


_READ_ONLY: Final = HeadAnswer(405, allow="GET,HEAD")


def parse_head(data: bytes) -> RequestHead:
    """Parse everything up to and including the empty line.

    Raises:
        RemoteProtocolError: not an HTTP/1.1 request head.
    """
    try:
        request_line, *header_lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = request_line.split(" ")
    except ValueError:
        raise RemoteProtocolError("not an HTTP request") from None
    if not version.startswith("HTTP/1.") or not method.isalpha() or not target.startswith("/"):
        raise RemoteProtocolError("not an HTTP request")
    headers = []
    for line in header_lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RemoteProtocolError("not an HTTP header")
        headers.append((name.lower(), value.strip()))
    path, _, query = target.partition("?")
    return RequestHead(method, path, tuple(headers), version, query)


def answer(head: RequestHead, *, metrics: bool) -> HeadAnswer | None:
    """The response to this request; None: it depends on authentication.

    An admitted peer gets the WebSocket, or at /metrics the answer of `show_metrics`, if there is such a page.
    Any other peer gets the answer of `refuse`.
    """
    if head.get("origin") is not None:
        return HeadAnswer(403)
    head_only = head.method == "HEAD"
    if head.path in _PROBES:
        return HeadAnswer(200, head_only=head_only) if head.reads() else _READ_ONLY
    if head.path != "/":
        return None if metrics and head.path == METRICS else HeadAnswer(404)
    if head.method != "GET":
        return HeadAnswer(405, b"Request method must be `GET`", allow="GET", head_only=head_only)
    if not head.wants_upgrade():
        return HeadAnswer(400, b"Connection header did not include 'upgrade'")
    return None


def refuse(head: RequestHead, why: PeerRefused) -> HeadAnswer:
    """The response to a peer that is not admitted."""
    return HeadAnswer(401, str(why).encode(), head_only=head.method == "HEAD")


def show_metrics(head: RequestHead, page: bytes) -> HeadAnswer:
    """The response at /metrics to an admitted peer."""
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return HeadAnswer(200, page, kind, head_only=head.method == "HEAD") if head.reads() else _READ_ONLY


def accept(head: RequestHead) -> bytes | None:
    """The response that opens a WebSocket after `answer` returned None, if the request is faultless.

    None: the library must report the fault. It is not loaded at start-up.
    """
    key = head.only("sec-websocket-key") or ""
    try:
        whole = len(binascii.a2b_base64(key.encode("ascii"), strict_mode=True)) == _KEY_BYTES
    except ValueError:
        return None
    upgrade = (head.only("upgrade") or "").lower() == "websocket"
    if not (whole and upgrade and head.version == "HTTP/1.1" and head.only("sec-websocket-version") == "13"):
        return None
    proof = binascii.b2a_base64(hashlib.sha1(key.encode() + _KEY_SUFFIX).digest(), newline=False)  # noqa: S324 - as the RFC has it
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"
    )
