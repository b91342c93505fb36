"""Requests signed with a shared key, by AWS's Signature Version 4: signing and verification. Pure module.

A signature covers the method, path, query, some headers and the body, in a canonical form that both sides
compute. It is valid in one region, for one service and for some minutes. It does not limit how often the
request may be made: the verifier must remember the signatures it has seen (`Replays`).

Paths are taken as they are on the wire and encoded once more, as for every service except S3.
"""

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote

from holdfast.errors import PeerRefused

ALGORITHM: Final = "AWS4-HMAC-SHA256"
MAX_SKEW_S: Final = 300.0  # between the two clocks, including the transfer of the request; the same as AWS's
MAX_REPLAYS: Final = 10_000  # signatures that are kept; executors do not make more in ten minutes

_TERMINATOR: Final = "aws4_request"
_DATE: Final = "x-amz-date"
_SESSION: Final = "x-amz-security-token"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([A-Za-z0-9_-]{1,128})/([0-9]{8})/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})"
    r"/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;_-]{1,1024}), ?Signature=([0-9a-f]{64})"
)
_SPACES: Final = re.compile(r" +")


class AwsKeys(NamedTuple):
    """The keys of a signer; a session token belongs to temporary keys."""

    key_id: str
    secret: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return "<AwsKeys>"


class Scope(NamedTuple):
    """Where a signature is valid."""

    region: str
    service: str


class HttpRequest(NamedTuple):
    """The signed request. `target` is path and query as on the request line; header names are lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


Sign: TypeAlias = Callable[[HttpRequest], Awaitable[Mapping[str, str]]]  # with the current keys


class Signed(NamedTuple):
    """The content of a verified signature."""

    key_id: str
    signature: str


def sign(request: HttpRequest, keys: AwsKeys, scope: Scope, now: float) -> dict[str, str]:
    """Return the headers that sign a request with these headers; further headers are not signed."""
    stamp = datetime.fromtimestamp(now, UTC).strftime(_STAMP)
    more = {_DATE: stamp}
    if keys.session_token is not None:
        more[_SESSION] = keys.session_token
    whole = request._replace(headers=(*request.headers, *more.items()))
    names = sorted({name for name, _ in whole.headers})
    signature = _signature(whole, names, keys.secret, scope, stamp)
    place = "/".join((keys.key_id, stamp[:8], *scope, _TERMINATOR))
    said = f"{ALGORITHM} Credential={place}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return {**more, "authorization": said}


def verify(request: HttpRequest, find: Callable[[str], AwsKeys | None], scope: Scope, now: float) -> Signed:
    """Verify the signature of this request; `find` returns the keys of an id.

    Raises:
        PeerRefused: it is not signed with a known key, for this scope and time; the text is for the log only.
    """
    said = _AUTHORIZATION.fullmatch(_only(request, "authorization") or "")
    if said is None:
        raise PeerRefused("the request is not signed")
    key_id, day, region, service, names, signature = said.groups()
    if (region, service) != scope:
        raise PeerRefused("the signature is for another region or service")
    stamp = _only(request, _DATE) or ""
    if not stamp.startswith(day) or abs(_seconds(stamp) - now) > MAX_SKEW_S:
        raise PeerRefused("the signature is of another time: expired, or a clock is wrong")
    signed = names.split(";")
    needed = {"host", _DATE, *(name for name, _ in request.headers if name.startswith("x-amz-"))}
    if sorted(set(signed)) != signed or not needed <= set(signed):
        raise PeerRefused("the signature leaves out a header that must be signed")
    keys = find(key_id)
    # An unknown key costs as much time as a wrong signature, and gets the same answer.
    expected = _signature(request, signed, "" if keys is None else keys.secret, scope, stamp)
    token = "" if keys is None else keys.session_token or ""
    right = hmac.compare_digest(expected, signature)
    same_token = hmac.compare_digest((_only(request, _SESSION) or "").encode(), token.encode())
    if keys is None or not right or not same_token:
        raise PeerRefused("the signature is not of a key that is known here")
    return Signed(key_id, signature)


class Replays:
    """The signatures that were seen, for as long as they would be valid."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def note(self, signature: str, now: float) -> None:
        """Raises: PeerRefused: it was seen before, or too many were seen to know."""
        while self._order and self._order[0][0] <= now:
            self._seen.discard(self._order.popleft()[1])
        if signature in self._seen:
            raise PeerRefused("the same signed request has come before")
        if len(self._order) >= MAX_REPLAYS:
            raise PeerRefused("too many signed requests have come")
        self._seen.add(signature)
        self._order.append((now + 2 * MAX_SKEW_S, signature))


# --- the canonical form


def _signature(request: HttpRequest, names: Iterable[str], secret: str, scope: Scope, stamp: str) -> str:
    values = _values(request)
    listed = list(names)
    path, _, query = request.target.partition("?")
    canonical = "\n".join(
        (
            request.method,
            _path(path),
            _query(query),
            *(f"{name}:{values.get(name, '')}" for name in listed),
            "",
            ";".join(listed),
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    day = stamp[:8]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((ALGORITHM, stamp, "/".join((day, *scope, _TERMINATOR)), digest))
    key = f"AWS4{secret}".encode()
    for part in (day, *scope, _TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _values(request: HttpRequest) -> Mapping[str, str]:
    """Every header with its values on one line, in the order of arrival."""
    gathered: dict[str, list[str]] = {}
    for name, value in request.headers:
        gathered.setdefault(name, []).append(_SPACES.sub(" ", value.strip()))
    return {name: ",".join(values) for name, values in gathered.items()}


def _path(path: str) -> str:
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(quote(part, safe="-_.~"))
    end = "/" if kept and path.endswith(("/", "/.", "/..")) else ""
    return f"/{'/'.join(kept)}{end}"


def _query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    encoded = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _only(request: HttpRequest, wanted: str) -> str | None:
    values = [value for name, value in request.headers if name == wanted]
    return values[0] if len(values) == 1 else None


def _seconds(stamp: str) -> float:
    """Raises: PeerRefused: this is not a time."""
    try:
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise PeerRefused("the request says no time") from None
