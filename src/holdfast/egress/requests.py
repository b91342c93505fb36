"""Check the host in every plain HTTP request of a connection, before it is passed on. Pure module.

Parsing is as strict as the strictest server's: a request that two parsers could read differently is refused,
so that no server behind us finds a request in what we took for a body. The body itself is counted and not
read. After an upgrade that the server accepted nothing more is parsed.
"""

import enum
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

MAX_HEAD: Final = 64 * 1024  # of one request: line, headers
MAX_HEADERS: Final = 200
_MAX_LINE: Final = 256  # of a chunk's size, with extensions
_END: Final = b"\r\n\r\n"
_REQUEST: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x20-\x7e\x80-\xff\t]*[\x21-\x7e\x80-\xff])?)[ \t]*"
)
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\x20-\x7e\t]*)?")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_SWITCHING: Final = b"101"
_ABSOLUTE: Final = re.compile(rb"(?i:http)://([^/?#]*)(?:[/?#].*)?")


# Why a request is not passed on, by its method, target and header names; None: it is passed on.
Judge: TypeAlias = Callable[[bytes, bytes, Sequence[bytes]], str | None]


class BadRequest(ValueError):
    """A request that is refused; the text gives the reason, and `asked` is the request if it was judged."""

    asked: tuple[bytes, bytes] | None = None


class _State(enum.Enum):
    HEAD = enum.auto()
    BODY = enum.auto()
    CHUNK = enum.auto()  # the line with its size
    AFTER_CHUNK = enum.auto()
    TRAILER = enum.auto()
    ASKED = enum.auto()  # an upgrade: how to go on depends on the answer
    OPAQUE = enum.auto()


class RequestReader:
    """Follows the requests of a client on one connection to `host` at `port`.

    With a `judge` each request is judged and is the only one on its connection, so that a refusal can be
    answered.
    """

    def __init__(self, host: str, port: int, judge: Judge | None = None) -> None:
        self._host, self._port, self._judge = host, port, judge
        self._state = _State.HEAD
        self._held = bytearray()
        self._left = 0  # of a body or a chunk
        self._count = 0
        self._answer = bytearray()

    @property
    def waits(self) -> bool:
        """Whether nothing more can be passed on before the server has answered."""
        return self._state is _State.ASKED

    @property
    def may_wait(self) -> bool:
        """Whether it waits or may have to: only the first request can ask for an upgrade."""
        return self._count == 0 or self.waits

    @property
    def opaque(self) -> bool:
        """Whether the connection is no longer HTTP."""
        return self._state is _State.OPAQUE

    def feed(self, data: bytes) -> bytes:
        """Take more data of the client; return what may be passed on of all data so far.

        Raises:
            BadRequest: the connection must be refused.
        """
        self._held += data
        passed = bytearray()
        while self._held and (some := self._step()) is not None:
            passed += some
        return bytes(passed)

    def hear(self, data: bytes) -> bytes:
        """Take the server's data while `waits`; return what of the client may be passed on after it.

        Raises:
            BadRequest: as `feed` does.
        """
        if not self.waits:
            return b""
        self._answer += data
        if len(self._answer) < len(b"HTTP/1.1 101"):
            return b""
        status = _STATUS.match(self._answer)
        if status is None or (status[1].startswith(b"1") and status[1] != _SWITCHING):
            raise BadRequest("the answer to an upgrade cannot be understood")
        self._state = _State.OPAQUE if status[1] == _SWITCHING else _State.HEAD
        return self.feed(b"")

    def _step(self) -> bytes | None:
        """Pass the next part on; None if it is incomplete."""
        match self._state:
            case _State.HEAD:
                return self._take_head()
            case _State.BODY:
                return self._take_body(_State.HEAD)
            case _State.CHUNK:
                return self._take_chunk_line()
            case _State.AFTER_CHUNK:
                if len(self._held) < 2:
                    return None
                if self._held[:2] != b"\r\n":
                    raise BadRequest("a chunk does not end where it says")
                self._state = _State.CHUNK
                return self._pop(2)
            case _State.TRAILER:
                return self._take_trailer()
            case _State.ASKED:
                if len(self._held) > MAX_HEAD:
                    raise BadRequest("too much follows an upgrade that nobody agreed to")
                return None
            case _State.OPAQUE:
                return self._pop(len(self._held))

    def _pop(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    def _take_body(self, after: _State) -> bytes:
        taken = self._pop(min(self._left, len(self._held)))
        self._left -= len(taken)
        if not self._left:
            self._state = after
        return taken

    def _take_chunk_line(self) -> bytes | None:
        if self._left:
            return self._take_body(_State.AFTER_CHUNK)
        end = self._held.find(b"\r\n")
        if end < 0:
            if len(self._held) > _MAX_LINE:
                raise BadRequest("the size of a chunk is too long")
            return None
        size = _CHUNK.fullmatch(self._held, 0, end)
        if size is None:
            raise BadRequest("the size of a chunk is no number")
        self._left = int(size[1], 16)
        if not self._left:
            self._state = _State.TRAILER
        return self._pop(end + 2)

    def _take_trailer(self) -> bytes | None:
        """Lines until an empty one."""
        end = self._held.find(b"\r\n")
        if end < 0:
            if len(self._held) > MAX_HEAD:
                raise BadRequest("the trailer is too long")
            return None
        if end and _HEADER.fullmatch(self._held, 0, end) is None:
            raise BadRequest("a line of the trailer is no header")
        if not end:
            self._state = _State.HEAD
        return self._pop(end + 2)

    def _take_head(self) -> bytes | None:
        end = self._held.find(_END)
        if end < 0:
            if len(self._held) > MAX_HEAD:
                raise BadRequest("the request is too long")
            return None
        if end > MAX_HEAD:
            raise BadRequest("the request is too long")
        head = self._pop(end + len(_END))
        line, *lines = head[:end].split(b"\r\n")
        request = _REQUEST.fullmatch(line)
        if request is None:
            raise BadRequest("its first line is not one of HTTP/1")
        headers = _read_headers(lines)
        path = self._check_target(request[1], request[2])
        self._check_host(headers)
        if self._judge is not None:
            self._check_judged(request[1], path, headers)
        self._count += 1
        self._frame(headers, old=request[3] == b"0")
        if self._judge is not None:
            return _for_one(line, headers)
        if self._ask_for(headers):
            return _without_upgrade(line, headers)
        return head

    def _check_judged(self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        if self._count:
            raise BadRequest("another request follows on the same connection")
        why = self._judge(method, path, [name for name, _ in headers]) if self._judge else None
        if why is not None:
            refused = BadRequest(why)
            refused.asked = method, path
            raise refused

    def _check_target(self, method: bytes, target: bytes) -> bytes:
        """The path in the target."""
        if method == b"CONNECT":
            raise BadRequest("CONNECT leads to another host")
        if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
            return target
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise BadRequest("its target is neither a path nor a URL of http")
        self._compare(absolute[1])
        return target[absolute.end(1) :] or b"/"

    def _check_host(self, headers: list[tuple[bytes, bytes]]) -> None:
        hosts = _values(headers, b"host")
        if len(hosts) != 1:
            raise BadRequest("it must name one host")
        self._compare(hosts[0])

    def _compare(self, authority: bytes) -> None:
        named, colon, port = authority.partition(b":")
        name = named.decode("ascii", "replace").lower().removesuffix(".")
        if name != self._host or (colon and port != str(self._port).encode()):
            shown = authority.decode("ascii", "backslashreplace")[:100]
            raise BadRequest(f"it names the host {shown!r}")

    def _frame(self, headers: list[tuple[bytes, bytes]], *, old: bool) -> None:
        """Determine where the request ends."""
        lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
        if codings:
            if lengths or old or codings[0].lower() != b"chunked" or len(codings) > 1:
                raise BadRequest("where its body ends is not clear")
            self._state = _State.CHUNK
        elif lengths:
            if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
                raise BadRequest("where its body ends is not clear")
            self._left = int(lengths[0])
            self._state = _State.BODY if self._left else _State.HEAD

    def _ask_for(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Note an upgrade; True if its headers must be removed.

        An upgrade to HTTP/2 is removed: HTTP/2 names a host in each request too, and we do not parse it.
        """
        wanted = [
            word.strip().lower() for value in _values(headers, b"upgrade") for word in value.split(b",")
        ]
        if not wanted:
            return False
        if any(word.startswith((b"h2", b"http/2")) for word in wanted):
            return True
        if self._count > 1 or self._state is not _State.HEAD:
            raise BadRequest("an upgrade is asked for in the middle of a connection")
        self._state = _State.ASKED
        return False


def _read_headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(lines) > MAX_HEADERS:
        raise BadRequest("it has too many headers")
    headers = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest("a line of it is no header")
        headers.append((header[1], header[2]))
    return headers


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def _for_one(line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The request with `Connection: close`, so that the server closes the connection after its answer."""
    hop = (b"connection", b"keep-alive", b"upgrade", b"http2-settings", b"proxy-connection")
    kept = [key + b": " + value for key, value in headers if key.lower() not in hop]
    return b"\r\n".join((line, *kept, b"Connection: close")) + _END


def _without_upgrade(line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The request without an upgrade to HTTP/2, which the next server could accept but we do not parse."""
    kept = [line]
    for key, value in headers:
        if key.lower() in (b"upgrade", b"http2-settings"):
            continue
        if key.lower() == b"connection":
            words = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in words if word.lower() not in (b"upgrade", b"http2-settings"))
            if not value:
                continue
        kept.append(key + b": " + value)
    return b"\r\n".join(kept) + _END
