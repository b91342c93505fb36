"""Which requests a command may send to a host: methods, and path prefixes. Pure module.

A path is compared as written, byte by byte. A path that a server could interpret as another one (dot
segments, also percent-encoded once or more, a backslash, a fragment) is refused, and so are headers that
override the method or the path for some servers.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from holdfast.egress.hosts import Requests

MAX_ROUNDS: Final = 4  # of nested percent-encoding
_OTHER_METHOD: Final = frozenset({b"x-http-method-override", b"x-http-method", b"x-method-override"})
_OTHER_PATH: Final = frozenset({b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-forwarded-uri"})
_BETWEEN: Final = re.compile(rb"[^a-z0-9]")  # a CGI variable has "_" for all of these, and so do its readers
# Nonstandard encodings of characters in a path: IIS's %u, and overlong UTF-8.
_OTHER_CODE: Final = re.compile(rb"%u[0-9a-fA-F]{4}|[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")
_ODD: Final = re.compile(rb"[\x00-\x20\x7f#]")
_PLAIN: Final = re.compile(rb"/[A-Za-z0-9._~/@:+-]*")


def refuse_request(
    allowed: Sequence[Requests], method: bytes, target: bytes, headers: Iterable[bytes]
) -> str | None:
    """Why a request is not passed on; None if a rule allows it. `headers` are its header names."""
    path = b"/" if target == b"*" else target.partition(b"?")[0]
    named = set(map(_spell_name, headers))
    shown = f"{_show(method)} {_show(path)}"
    for rule in allowed:
        if rule.methods is not None and method.decode("ascii", "replace") not in rule.methods:
            continue
        if rule.prefix != "/" and not is_below(path, rule.prefix.encode("ascii")):
            continue
        if rule.methods is not None and named & _OTHER_METHOD:
            return f"{shown} has a header that names another method"
        if rule.prefix == "/":
            return None
        if named & _OTHER_PATH:
            return f"{shown} has a header that names another path"
        if is_ambiguous(path):
            return f"{shown} could be taken for another path"
        return None
    return f"no rule allows {shown}"


def find_methods(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The methods in override headers of a request, which some servers obey."""
    return [value.strip() for name, value in headers if _spell_name(name) in _OTHER_METHOD]


def _spell_name(name: bytes) -> bytes:
    return _BETWEEN.sub(b"-", name.lower())


def is_below(path: bytes, prefix: bytes) -> bool:
    """Whether a path is below a prefix: `/v1/` covers what is below it, `/v1` itself too, neither `/v10`."""
    return path.startswith(prefix) and (prefix.endswith(b"/") or path[len(prefix) :][:1] in (b"", b"/"))


def is_ambiguous(path: bytes) -> bool:
    """Whether some server would interpret it as another path."""
    for _ in range(MAX_ROUNDS):
        if _ODD.search(path) or _OTHER_CODE.search(path) or b"\\" in path:
            return True
        if any(map(_leads_elsewhere, path.split(b"/"))):
            return True
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return False
        path = decoded.replace(b" ", b"_")  # a space in a name is normal
    return True


def _leads_elsewhere(segment: bytes) -> bool:
    return re.split(rb"[;?]", segment)[0].strip() in (b".", b"..")


def grant_request(scheme: str, host: str, port: int, method: bytes, target: bytes) -> str | None:
    """The smallest option that allows this request; None if its path is unfit for a command line."""
    path = b"/" if target == b"*" else target.partition(b"?")[0]
    if not _PLAIN.fullmatch(path) or is_ambiguous(path) or not method.isalpha() or not method.isupper():
        return None
    at = "" if port == (443 if scheme == "https" else 80) else f":{port}"
    rule = f"{method.decode('ascii')} {scheme}://{host}{at}{path.decode('ascii')}"
    return f"--allow-host {shlex.quote(rule)}"


def _show(text: bytes) -> str:
    return text.decode("ascii", "backslashreplace")[:100]
