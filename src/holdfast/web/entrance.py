"""Who may use the dashboard, decided from the head of a request. Pure module.

The page itself is not secret. Everything below `/api/` requires the token of this start or the cookie of this
home. The page gets the token in the fragment of the printed address, which is in neither a log nor a
referrer. Requests by a name that another party's DNS points at loopback are refused (`Host`), and so are
those of pages of another origin (`Origin`).

A browser sends a cookie to every port of a host name, and with requests from pages on other ports. So a
cookie counts only with a header that no page of another origin can send, only if the browser does not report
another site as the source, and only from a process of the home's user: another user's server that a browser
has sent the cookie to cannot use it.
"""

import hmac
import ipaddress
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.errors import HoldfastError, PeerRefused, StartupError, TokenRefused

# The default port is fixed, so that a bookmark of the page stays valid. It is unassigned (IANA), below the
# range of ephemeral ports, and HOLD on a telephone keypad.
PORT: Final = 4653
API: Final = "/api/"
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,255})(?::[0-9]{1,5})?")
_BEARER: Final = "Bearer "
PAGE: Final = ("x-holdfast", "page")  # sent by our page with every request

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
HEADERS: Final = (  # of every response
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)


class PageRefusal(NamedTuple):
    """Why a request is refused."""

    status: int
    error: HoldfastError


def refusal(
    path: str, headers: Sequence[tuple[str, str]], token: str, *, has_cookie: bool = False
) -> PageRefusal | None:
    """None when the request may be answered, otherwise the refusal. Header names are in lower case.

    `has_cookie` is whether it has a valid cookie of this home and comes from a process of its user.
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
    """Whether only our own page could have sent this, as far as browsers restrict pages."""
    site = [value for name, value in headers if name == "sec-fetch-site"]
    return _only(PAGE[0], headers) == PAGE[1] and all(value == "same-origin" for value in site)


def is_loopback(authority: str) -> bool:
    """Whether the value of a Host header names this machine in a way that no foreign DNS can."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    return name == "localhost" or _is_loopback_ip(name)


def is_known(authorization: str | None, token: str) -> bool:
    """Whether the header has the token; compared in constant time."""
    given = (authorization or "").removeprefix(_BEARER)
    known = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())
    return known and (authorization or "").startswith(_BEARER)


def check_host(host: str) -> str:
    """Return the address to listen on if it is loopback.

    Raises:
        StartupError: other machines could reach it.
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
    """The value of a header that occurs exactly once; otherwise None."""
    found = [value for given, value in headers if given == name]
    return found[0] if len(found) == 1 else None
