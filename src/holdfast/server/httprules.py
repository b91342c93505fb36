"""What an HTTP request of the client may contain, and which parts of it follow a redirect. Pure module.

The client chooses the method, the URL and the headers; the executor adds only what the protocol
demands and, where the client names one, the value of an environment variable. Texts of errors
name a header or a variable, never a value or a URL: both may carry secrets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

import pybase64

from holdfast.errors import UsageError
from holdfast.wire.http import HttpHeader, HttpHeaderResult
from holdfast.wire.rpc import MAX_MESSAGE_BYTES

MAX_REDIRECTS: Final = 10  # as the reference; stops a loop
MAX_DELTA_BYTES: Final = 1024 * 1024  # clients drop the connection on a larger one
_REPLY_OVERHEAD_BYTES: Final = (
    1024 * 1024
)  # room for the headers (the parser stops at 100 KiB) and the envelope
MAX_BUFFERED_BYTES: Final = (
    (MAX_MESSAGE_BYTES - _REPLY_OVERHEAD_BYTES) // 4 * 3
)  # base64 must fit one message

PROTECTED_VARIABLES: Final = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "CODEX_ACCESS_TOKEN",
        "CODEX_API_KEY",
        "CODEX_CONNECTORS_TOKEN",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "CODEX_GUARDIAN_DECISIONS_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "OPENAI_API_KEY",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    }
)

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OF_THE_BODY: Final = frozenset(
    {b"content-type", b"content-length", b"content-encoding", b"transfer-encoding"}
)
_OF_THE_ORIGIN: Final = frozenset(
    {
        b"authorization",
        b"cookie",
        b"cookie2",
        b"host",
        b"proxy-authorization",
        b"referer",
        b"www-authenticate",
    }
)
_EXPECT_A_BODY: Final = frozenset({"POST", "PUT", "PATCH"})  # some servers answer 411 without a length

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TEXT = re.compile(rb"[\t\x20-\x7e]*")
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_NOT_IN_A_HOST = re.compile(r'[\x00-\x20"%<>\\^`{|}\x7f]')


class Header(NamedTuple):
    """One header to send; `secret` if its value came from the executor's environment."""

    name: bytes
    value: bytes
    secret: bool = False


Headers: TypeAlias = tuple[Header, ...]


@dataclass(frozen=True, slots=True, repr=False)
class RequestTarget:
    """A checked URL without fragment and credentials, and the credentials as a header value."""

    url: str
    authorization: bytes | None


class Hop(NamedTuple):
    """The request that follows a redirect."""

    method: str
    headers: Headers
    keep_body: bool


def method(text: str) -> str:
    """Check a method as it is sent: any token, its case kept."""
    if not _TOKEN.fullmatch(text):
        raise UsageError("http/request method is invalid: invalid HTTP method")
    return text


def target(text: str) -> RequestTarget:
    """Parse the URL to request.

    Raises:
        UsageError: it is relative, without a host, with an invalid port, or neither http nor https.
    """
    text = text.strip(_TRIMMED).translate({ord(blank): None for blank in "\t\r\n"}).partition("#")[0]
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError("http/request url is invalid") from None
    if not parts.scheme:
        raise UsageError("http/request url is invalid: relative URL without a base")
    if parts.scheme not in ("http", "https"):
        raise UsageError("http/request only supports http and https URLs")
    if not host:
        raise UsageError("http/request url is invalid: empty host")
    if _NOT_IN_A_HOST.search(host):
        raise UsageError("http/request url is invalid: invalid international domain name")
    credentials, at, bare = parts.netloc.rpartition("@")
    if not at:
        return RequestTarget(text, None)
    return RequestTarget(text.replace(parts.netloc, bare, 1), _basic(parts, credentials))


def _basic(parts: SplitResult, credentials: str) -> bytes | None:
    if credentials in ("", ":"):
        return None
    pair = b"%b:%b" % (unquote_to_bytes(parts.username or ""), unquote_to_bytes(parts.password or ""))
    return b"Basic " + pybase64.b64encode(pair)


def headers(given: Iterable[HttpHeader], environ: Mapping[str, str], *, body_bytes: int) -> Headers:
    """Return the client's headers in its order, with values from the environment filled in.

    Raises:
        UsageError: a bad name or value, a variable that may not be used, a length that is not the body's.
    """
    checked = tuple(_header(header, environ) for header in given)
    for header in checked:
        if header.name.lower() == b"content-length" and header.value != b"%d" % body_bytes:
            raise UsageError("http/request content-length is not the length of the body")
    return checked


def _header(header: HttpHeader, environ: Mapping[str, str]) -> Header:
    if not _TOKEN.fullmatch(header.name):
        raise UsageError("http/request header name is invalid: invalid HTTP header name")
    text, variable = header.value, header.value_env_var
    if variable is not None:
        text += _from_environment(header.name, variable, environ)
    try:
        value = text.encode("utf-8")
    except UnicodeEncodeError:  # a variable that is not UTF-8
        value = b"\0"
    if not _VALUE.fullmatch(value):
        raise UsageError(
            f"http/request header value is invalid for {header.name}: failed to parse header value"
        )
    return Header(header.name.encode("ascii"), value.strip(b" \t"), secret=variable is not None)


def _from_environment(name: str, variable: str, environ: Mapping[str, str]) -> str:
    if variable.upper() in PROTECTED_VARIABLES:
        raise UsageError(f"http/request header {name} cannot use executor environment variable {variable}")
    value = environ.get(variable)
    if value is None:
        raise UsageError(f"http/request header {name} requires executor environment variable {variable}")
    if not value:
        raise UsageError(
            f"http/request header {name} requires a non-empty executor environment variable {variable}"
        )
    return value


def to_send(
    method: str,
    chosen: Headers,
    *,
    host: bytes,
    authorization: bytes | None,
    cookie: bytes | None = None,
    body_bytes: int,
) -> list[tuple[bytes, bytes]]:
    """Return the chosen headers plus the few that a request needs; no encoding is accepted."""
    names = {header.name.lower() for header in chosen}
    sent = [(header.name, header.value) for header in chosen]
    if authorization is not None and b"authorization" not in names:
        sent.append((b"authorization", authorization))
    if cookie is not None and b"cookie" not in names:
        sent.append((b"cookie", cookie))
    if b"accept" not in names:
        sent.append((b"accept", b"*/*"))
    if b"host" not in names:
        sent.append((b"host", host))
    if (body_bytes or method in _EXPECT_A_BODY) and not names & {b"content-length", b"transfer-encoding"}:
        sent.append((b"content-length", b"%d" % body_bytes))
    return sent


def hop(status: int, method: str, chosen: Headers, *, same_origin: bool) -> Hop:
    """How a redirect is followed: 303, and 301 or 302 after POST, become a GET without a body.

    Another origin gets no credentials: neither the headers made for them nor any value that
    came from the environment.
    """
    becomes_get = (
        method == "POST" if status in (301, 302) else status == 303 and method not in ("GET", "HEAD")
    )
    unwanted = _OF_THE_BODY if becomes_get else frozenset()
    if not same_origin:
        unwanted |= _OF_THE_ORIGIN
    kept = tuple(
        header
        for header in chosen
        if header.name.lower() not in unwanted and (same_origin or not header.secret)
    )
    return Hop("GET" if becomes_get else method, kept, keep_body=not becomes_get)


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> list[HttpHeaderResult]:
    """Convert response headers in order: lower-case names, repeats kept, values that are not text dropped."""
    return [
        HttpHeaderResult(name.decode("ascii").lower(), value.decode("ascii"))
        for name, value in raw
        if _TEXT.fullmatch(value)
    ]


def pieces(chunk: bytes) -> Iterator[bytes]:
    """Split `chunk` into parts that fit one delta each."""
    for start in range(0, len(chunk), MAX_DELTA_BYTES):
        yield chunk[start : start + MAX_DELTA_BYTES]
