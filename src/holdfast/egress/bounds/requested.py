"""Which requests a host may be asked: methods, and the beginning of a path. Pure module.

A path is compared as it is written, letter by letter. What a server could take for another path than the one
that is compared (dots that lead up, also encoded once or more, a backslash, a fragment) is refused, as are
headers by which some servers are told of another method or path.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from holdfast.egress.hosts import Requests

MAX_ROUNDS: Final = 4  # of encoding upon encoding
_OTHER_METHOD: Final = frozenset({b"x-http-method-override", b"x-http-method", b"x-method-override"})
_OTHER_PATH: Final = frozenset({b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-forwarded-uri"})
_BETWEEN: Final = re.compile(rb"[^a-z0-9]")  # a CGI variable has "_" for all of these, so do its readers
# Characters of a path in ways that are none: of IIS, and in more bytes of UTF-8 than they have.
_OTHER_CODE: Final = re.compile(rb"%u[0-9a-fA-F]{4}|[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")
_ODD: Final = re.compile(rb"[\x00-\x20\x7f#]")
_PLAIN: Final = re.compile(rb"/[A-Za-z0-9._~/@:+-]*")


def refuse_request(
    allowed: Sequence[Requests], method: bytes, target: bytes, headers: Iterable[bytes]
) -> str | None:
    """Why a request is not passed on; None: it is one of the allowed. `headers` are their names."""
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
    """The other methods that headers of a request tell some servers of."""
    return [value.strip() for name, value in headers if _spell_name(name) in _OTHER_METHOD]


def _spell_name(name: bytes) -> bytes:
    return _BETWEEN.sub(b"-", name.lower())


def is_below(path: bytes, prefix: bytes) -> bool:
    """`/v1/` is what is below it, `/v1` itself too, and `/v10` is neither."""
    return path.startswith(prefix) and (prefix.endswith(b"/") or path[len(prefix) :][:1] in (b"", b"/"))


def is_ambiguous(path: bytes) -> bool:
    """Whether some server would take it for another path."""
    for _ in range(MAX_ROUNDS):
        if _ODD.search(path) or _OTHER_CODE.search(path) or b"\\" in path:
            return True
        if any(map(_leads_elsewhere, path.split(b"/"))):
            return True
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return False
        path = decoded.replace(b" ", b"_")  # a space in a name is nothing odd
    return True


def _leads_elsewhere(segment: bytes) -> bool:
    return re.split(rb"[;?]", segment)[0].strip() in (b".", b"..")


def grant_request(scheme: str, host: str, port: int, method: bytes, target: bytes) -> str | None:
    """The smallest option that allows this request; None: its path is nothing to be typed again."""
    path = b"/" if target == b"*" else target.partition(b"?")[0]
    if not _PLAIN.fullmatch(path) or is_ambiguous(path) or not method.isalpha() or not method.isupper():
        return None
    at = "" if port == (443 if scheme == "https" else 80) else f":{port}"
    rule = f"{method.decode('ascii')} {scheme}://{host}{at}{path.decode('ascii')}"
    return f"--allow-host {shlex.quote(rule)}"


def _show(text: bytes) -> str:
    return text.decode("ascii", "backslashreplace")[:100]
