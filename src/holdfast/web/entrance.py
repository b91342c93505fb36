"""Who may ask the dashboard, decided from the head of a request. Pure module.

The page itself is no secret; everything below `/api/` wants the token of this start, which reaches the page
in the fragment of the printed address, and so neither a log nor a referrer; or the cookie of this home. A
name that somebody else's DNS points at loopback is refused (`Host`), and so is a page of another origin
(`Origin`).

A browser sends a cookie to every port of a host name, and with requests that a page on another port makes. So
a cookie counts only with a header that no page of another origin can send, only when the browser does not
say that the request comes from elsewhere, and only from a process of the user whose home it is: somebody
else's server, which a browser may have shown the cookie, can do nothing with it.
"""

import hmac
import ipaddress
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.errors import HoldfastError, PeerRefused, StartupError, TokenRefused

# The usual port, so that a bookmark of the page stays good: not assigned to anybody (IANA), below the range
# from which kernels give ports to connections, and HOLD on the keys of a telephone.
PORT: Final = 4653
API: Final = "/api/"
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,255})(?::[0-9]{1,5})?")
_BEARER: Final = "Bearer "
PAGE: Final = ("x-holdfast", "page")  # which our page sends with every question

CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = (  # of every answer
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)


class PageRefusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    error: HoldfastError


def refusal(
    path: str, headers: Sequence[tuple[str, str]], token: str, *, has_cookie: bool = False
) -> PageRefusal | None:
    """None when the request may be answered. Names of headers are in small letters.

    `has_cookie` is whether it brings a good cookie of this home and is made by a process of its user.
    """
    host = _only("host", headers)
    if host is None or not is_loopback(host):
        return PageRefusal(403, PeerRefused("the dashboard answers only to names of this machine"))
    origins = [value for name, value in headers if name == "origin"]
    if any(origin.lower() != f"http://{host.lower()}" for origin in origins):
        return PageRefusal(403, PeerRefused("a page of another origin may not ask"))
    entered = is_known(_only("authorization", headers), token) or (has_cookie and is_of_page(headers))
    if path.startswith(API) and not entered:
        words = "the token is missing or not of this start, and there is no cookie of this home"
        return PageRefusal(401, TokenRefused(words, remedy="holdfast open"))
    return None


def is_of_page(headers: Sequence[tuple[str, str]]) -> bool:
    """Could only our own page have sent this, as far as a browser lets pages send things?"""
    site = [value for name, value in headers if name == "sec-fetch-site"]
    return _only(PAGE[0], headers) == PAGE[1] and all(value == "same-origin" for value in site)


def is_loopback(authority: str) -> bool:
    """Does the value of a Host header name this machine, and could nobody else have named it so?"""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    return name == "localhost" or _is_loopback_ip(name)


def is_known(authorization: str | None, token: str) -> bool:
    """Compared in constant time."""
    given = (authorization or "").removeprefix(_BEARER)
    known = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())
    return known and (authorization or "").startswith(_BEARER)


def check_host(host: str) -> str:
    """The address to listen on.

    Raises:
        StartupError: others could reach it.
    """
    if not _is_loopback_ip(host):
        raise StartupError(
            f"the dashboard listens on loopback only, not on {host}",
            remedy="forward its port: ssh -L 8080:127.0.0.1:PORT this-machine",
        )
    return host


def _is_loopback_ip(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _only(name: str, headers: Sequence[tuple[str, str]]) -> str | None:
    """The value of a header that is there once."""
    found = [value for given, value in headers if given == name]
    return found[0] if len(found) == 1 else None
