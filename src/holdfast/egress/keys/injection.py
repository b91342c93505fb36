"""How a request is rewritten on its way to a host that has keys. Pure module.

The key replaces the placeholder in the value of a header and nowhere else. A request with a placeholder
elsewhere is refused. The response is requested uncompressed and whole: otherwise it could not be searched for
a key that the server sends back.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from holdfast.egress.bounds.requested import is_ambiguous, is_below
from holdfast.egress.keys.placeholders import Key

Headers: TypeAlias = list[tuple[bytes, bytes]]
# RFC 3229 compresses instances without a Content-Encoding; Apache accepts ranges by either name.
_LEFT_OUT: Final = frozenset({b"accept-encoding", b"a-im", b"range", b"request-range", b"if-range"})
_BASIC: Final = b"basic "


class BadUse(ValueError):
    """A request that is refused; the text gives the reason."""


def check_target(method: bytes, target: bytes, keys: Sequence[Key]) -> None:
    """Check that the target is a path of the host, without a key. Raises BadUse."""
    if method == b"CONNECT" or not (target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")):
        raise BadUse("its target is not a path")
    for key in keys:
        if _has(key, target) or _has(key, unquote_to_bytes(target)):
            raise BadUse(f"it has ${key.name} in its URL")


def check_host(headers: Headers, host: str, port: int) -> None:
    """Check that the Host header names this host, once. Raises BadUse."""
    named = [value for name, value in headers if name.lower() == b"host"]
    if len(named) != 1:
        raise BadUse("it must name one host")
    name, colon, at = named[0].decode("ascii", "replace").partition(":")
    if name.lower().removesuffix(".") != host or (colon and at != str(port)):
        raise BadUse(f"it names the host {named[0].decode('ascii', 'backslashreplace')[:100]!r}")


def check_use(headers: Headers, target: bytes, keys: Sequence[Key], host: str, port: int) -> None:
    """Check that keys for certain paths and headers are used only there. Raises BadUse."""
    path = target.partition(b"?")[0]
    for key in (key for key in keys if key.use is not None and (host, port) in key.targets):
        used = [(name.lower(), value.lower()) for name, value in headers if _put(key, value) != value]
        if not used or key.use is None:
            continue
        below = [prefix for name, at, prefix in key.use.below if (name, at) == (host, port)]
        if is_ambiguous(path) or not any(is_below(path, prefix.encode("ascii")) for prefix in below):
            raise BadUse(f"it has ${key.name}, which is not for this path")
        for name, value in used if key.use.headers else ():
            if not any(name == header and value.startswith(begin) for header, begin in key.use.headers):
                raise BadUse(f"it has ${key.name} in another header than it is for")


def inject(headers: Headers, keys: Sequence[Key], host: str, port: int) -> Headers:
    """The headers as sent to the host.

    Raises:
        BadUse: a header has a key of another host, or the request asks for another protocol.
    """
    made = []
    for name, value in headers:
        if name.lower() == b"upgrade":
            raise BadUse("it asks for another protocol")
        for key in keys:
            if _has(key, name):
                raise BadUse(f"it has ${key.name} in the name of a header")
            changed = _put(key, value)
            if changed != value and (host, port) not in key.targets:
                raise BadUse(f"it has ${key.name}, which is not for this host")
            value = changed
        if name.lower() not in _LEFT_OUT:
            made.append((name, value))
    return [*made, (b"Accept-Encoding", b"identity")]


def _has(key: Key, text: bytes) -> bool:
    return key.placeholder.encode("ascii") in text


def _put(key: Key, value: bytes) -> bytes:
    """Insert the key into a header value, also in the base64 of a user and password."""
    placeholder, real = key.placeholder.encode("ascii"), key.value.encode("ascii")
    if value[: len(_BASIC)].lower() == _BASIC:
        try:
            plain = base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
        except binascii.Error:
            plain = b""
        if placeholder in plain:
            return value[: len(_BASIC)] + base64.b64encode(plain.replace(placeholder, real))
    return value.replace(placeholder, real)
