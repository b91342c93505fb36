"""Check that a client's data is meant for the host that it was connected to. Pure module.

On the web ports it must be TLS or HTTP, and name that host. On other ports any protocol is allowed, but TLS
and HTTP must name that host as well. Data that some server could interpret as an HTTP request counts as one,
and is refused if it is not well-formed; text that stays ambiguous is refused as well. TLS without a server
name is let through: then there is nothing that could mean another host.
"""

import enum
import re
from collections.abc import Callable
from typing import Final

from holdfast.egress.clienthello import (
    ALERT_ACCESS_DENIED,
    ALERT_UNRECOGNIZED_NAME,
    HANDSHAKE,
    BadHello,
    HelloReader,
)
from holdfast.egress.requests import BadRequest, Judge, RequestReader

_RECORDS: Final = range(0x14, 0x18)  # the TLS record types: change of ciphers, alert, handshake, data
_MAX_VERSION: Final = 0x10  # Go takes bytes for a record if the first byte of the version is smaller
WEB_PORTS: Final = (80, 443)
MAX_FIRST_LINE: Final = 8 * 1024  # of a text that may still become a request
# What some servers skip before a request or take for the space between its words: Python's `str.split`.
_BLANKS: Final = b"\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0"
_TARGET: Final = re.compile(rb"[^\t\v\f\r\x1c-\x1f \x85\xa0]*")
_WORD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # such as a method
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]")
_VERSION: Final = re.compile(rb"(?i:HTTP/[0-9]|[\t\v\f\r ](?:RTSP|ICE)/[0-9])")  # Node accepts all three
# Some server takes a line with one of these for a request, whatever follows: no version, another protocol's
# version, invalid bytes. PROXY announces that the request comes after it.
_METHODS: Final = frozenset(
    (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"PRI", b"PROXY")
)
_MIN_METHOD: Final = 3  # letters, of the methods in use
_PROXY_2: Final = b"\r\n\r\n\0"  # the beginning of the binary form of PROXY


class Protocol(enum.Enum):
    UNKNOWN = enum.auto()  # so far
    TLS = enum.auto()
    HTTP = enum.auto()
    OTHER = enum.auto()


class Refused(Exception):
    """The data is not passed on. `answer` is a response for the sender; `asked` is the judged request."""

    def __init__(self, why: str, answer: bytes = b"", asked: tuple[bytes, bytes] | None = None) -> None:
        super().__init__(why)
        self.why, self.answer, self.asked = why, answer, asked


class NameCheck:
    """Decides which data of one connection may be passed on."""

    def __init__(self, host: str, port: int, *, tls_only: bool = False, judge: Judge | None = None) -> None:
        """With `tls_only` it must be TLS that names the host; with a `judge` plain HTTP, which is judged."""
        self._host, self._port, self._tls_only = host, port, tls_only
        self.protocol = Protocol.UNKNOWN
        self._held = bytearray()
        self._hello: HelloReader | None = HelloReader()
        self._judged = judge is not None
        self._requests = RequestReader(host, port, judge)

    @property
    def open(self) -> bool:
        """Whether all data may pass from now on."""
        if self.protocol is Protocol.HTTP:
            return self._requests.opaque
        return self.protocol is Protocol.OTHER or (self.protocol is Protocol.TLS and self._hello is None)

    @property
    def listens(self) -> bool:
        """Whether it needs the server's data now."""
        return self.protocol is Protocol.HTTP and self._requests.waits

    @property
    def reads_answers(self) -> bool:
        """Whether it may need the server's data: not once all data passes, nor if nothing depends on it."""
        if self.protocol is Protocol.HTTP:
            return self._requests.may_wait
        return self.protocol is Protocol.UNKNOWN

    def finish(self) -> bytes:
        """Handle the client's end of file; return the data that may still be passed on."""
        if self.protocol is Protocol.UNKNOWN and self._held:
            self.protocol = self._recognise(ended=True)
        held = b"" if self.protocol in (Protocol.TLS, Protocol.HTTP) else bytes(self._held)
        self._held.clear()
        return held

    def feed(self, data: bytes) -> bytes:
        """Take more data of the client; return what may be passed on of all data so far.

        Raises:
            Refused: it is meant for another host, or its host cannot be determined.
        """
        if self.open or not data:
            return data
        if self.protocol is Protocol.UNKNOWN:
            self._held += data
            self.protocol = self._recognise()
            if self.protocol is Protocol.UNKNOWN:
                if len(self._held) > MAX_FIRST_LINE:
                    why = "its first line does not end, so it may be a request of HTTP"
                    raise Refused(why, _tell(why))
                return b""
            data = bytes(self._held)
            self._held.clear()
        if self._tls_only and self.protocol is not Protocol.TLS:
            raise self.refusal("it is not TLS, and keys and rules of this host are for nothing else")
        if self._judged and self.protocol is not Protocol.HTTP:
            raise self.refusal("it is not plain HTTP, and rules of this host are about requests of that")
        if self.protocol is Protocol.OTHER:
            return data
        if self.protocol is Protocol.HTTP:
            return self._call_requests(self._requests.feed, data)
        return self._read_hello(data)

    def hear(self, data: bytes) -> bytes:
        """Take the server's data while `listens`; return what the client may send now. Raises Refused."""
        return self._call_requests(self._requests.hear, data)

    def refusal(self, why: str) -> Refused:
        """A refusal for another reason, in the client's protocol."""
        if self._held[:1] == bytes((HANDSHAKE,)) or self.protocol is Protocol.TLS:
            return Refused(why, ALERT_ACCESS_DENIED)
        return Refused(why, _tell(why) if self.protocol is Protocol.HTTP else b"")

    def _recognise(self, *, ended: bool = False) -> Protocol:
        if self._held[0] == HANDSHAKE:
            return Protocol.TLS
        if self._port in WEB_PORTS or self._judged:
            return Protocol.HTTP  # and no other protocol: anything unusual is refused
        if (record := _is_record(self._held, ended=ended)) is not False:
            return Protocol.UNKNOWN if record is None else Protocol.TLS
        return _recognise_text(bytes(self._held), ended=ended)

    def _read_hello(self, data: bytes) -> bytes:
        self._held += data
        if self._hello is None:
            raise AssertionError("it is open")
        try:
            hello = self._hello.feed(data)
        except BadHello as exc:
            raise Refused(f"its TLS hello cannot be read: {exc}", ALERT_ACCESS_DENIED) from None
        if hello is None:
            return b""
        if hello.encrypted:
            raise Refused("its TLS hello hides another one (ECH)", ALERT_UNRECOGNIZED_NAME)
        if hello.server_name is None and self._tls_only:
            raise Refused("its TLS hello names no host", ALERT_UNRECOGNIZED_NAME)
        if hello.server_name is not None and hello.server_name.lower().removesuffix(".") != self._host:
            shown = hello.server_name[:100]
            raise Refused(f"its TLS hello names {shown!r}", ALERT_UNRECOGNIZED_NAME)
        self._hello = None
        passed = bytes(self._held)
        self._held.clear()
        return passed

    def _call_requests(self, call: Callable[[bytes], bytes], data: bytes) -> bytes:
        try:
            return call(data)
        except BadRequest as exc:
            why = f"a request in it is refused: {exc}"
            raise Refused(why, _tell(why), exc.asked) from None


def _is_record(held: bytes | bytearray, *, ended: bool) -> bool | None:
    """Whether a TLS record other than a hello comes first; None if that is not known yet.

    Servers in Go skip alerts, and read the hello after them.
    """
    if held[0] not in _RECORDS:
        return False
    return held[1] < _MAX_VERSION if len(held) > 1 else (False if ended else None)


def _recognise_text(held: bytes, *, ended: bool) -> Protocol:
    """Recognise the protocol. Text that some server takes for a request counts as HTTP; `ended`: that is all.

    Clients of other protocols may wait for an answer, so their protocol must be recognised without the end of
    a line: by a byte that no request has there.
    """
    if held.startswith(_PROXY_2):
        return Protocol.HTTP
    line, feed, _ = held.lstrip(_BLANKS).partition(b"\n")
    word = _WORD.match(line)
    if word is None:
        return Protocol.OTHER if line else Protocol.UNKNOWN
    method, rest = word[0], line[word.end() :]
    words = rest.strip(_BLANKS)
    if (method in _METHODS and words) or _VERSION.search(rest):
        return Protocol.HTTP
    in_use = len(method) >= _MIN_METHOD and method == method.upper()
    if rest and (rest[0] not in _BLANKS or (not in_use and _CONTROL.search(rest))):
        return Protocol.OTHER
    if not (feed or ended):
        return Protocol.UNKNOWN
    if method == b"CONNECT" and words and not words.startswith(b"{"):  # NATS continues its CONNECT like this
        return Protocol.HTTP
    target = _TARGET.match(words)
    found = target is not None and (target[0].startswith((b"/", b"*")) or b"://" in target[0])
    return Protocol.HTTP if found else Protocol.OTHER


def _tell(why: str) -> bytes:
    """An HTTP response that gives the reason."""
    text = f"holdfast: the sandbox refused this: {why}\n".encode("ascii", "backslashreplace")
    head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    return head.encode() + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
