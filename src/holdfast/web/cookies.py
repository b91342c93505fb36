"""Access for a browser: a code that works once, and the cookie that it is exchanged for.

Both are signed with the key of the home. So a dashboard remembers only the used codes, and a cookie stays
valid after a restart. Browsers send cookies of one host name to all of its ports, so a cookie is named after
its home, and its signature includes that home.
"""

import hashlib
import hmac
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from starlette.types import Scope

from holdfast.local import homekey, peers

KEY: Final = "web.key"  # in the home; without it no cookie is valid any more
CODE_S: Final = 60.0  # enough to start a browser, too short to be found in its history later
COOKIE_S: Final = 90 * 24 * 3600  # a bookmark that is used once a quarter stays valid
SKEW_S: Final = 5.0  # how far a clock may have been set back since a code was made
ROUNDED_S: Final = 0.001  # times are written in milliseconds
MAX_LENGTH: Final = 200  # characters: clients must not make us hash a megabyte
MAX_USED: Final = 1000  # codes in one minute; a process that makes more has the key, and may wait


def home_id(home: str) -> str:
    """An id that is unique for each home of a machine and does not reveal its path."""
    return hashlib.sha256(home.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def cookie_name(home: str) -> str:
    return f"holdfast-{home_id(home)}"


def make_code(key: bytes, base: str, now: float, nonce: str) -> str:
    """A code for the dashboard at this address. `nonce` is random."""
    return _seal(key, f"code {base}", now, nonce)


def make_cookie(key: bytes, home: str, now: float, nonce: str) -> str:
    return _seal(key, f"cookie {home_id(home)}", now, nonce)


def is_good(cookie: str, key: bytes, home: str, now: float) -> bool:
    """Whether this home made the cookie less than 90 days ago. Compared in constant time."""
    made = _unseal(cookie, key, f"cookie {home_id(home)}")
    return made is not None and -SKEW_S <= now - made < COOKIE_S


def set_cookie(home: str, value: str) -> str:
    """The value of a Set-Cookie header. Not `Secure`, which a browser may not send to http on loopback."""
    return f"{cookie_name(home)}={value}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Strict"


def sent_cookies(header: str, name: str) -> list[str]:
    """The values of the cookies of this name in a Cookie header."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for given, _, value in pairs if given == name]


class Codes:
    """The codes of one dashboard, which remembers the used ones. Times are seconds since 1970."""

    def __init__(self, key: bytes, base: str, since: float) -> None:
        self._key = key
        self._about = f"code {base}"
        self._since = since
        self._used: dict[str, float] = {}

    def redeem(self, code: str, now: float) -> bool:
        """Whether this code gives access: made for this address, in the last minute, and not used before."""
        made = _unseal(code, self._key, self._about)
        if made is None or made < self._since - ROUNDED_S or not -SKEW_S <= now - made < CODE_S:
            return False
        self._used = {used: at for used, at in self._used.items() if now - at < CODE_S + SKEW_S}
        if code in self._used or len(self._used) >= MAX_USED:
            return False
        self._used[code] = made
        return True


def _seal(key: bytes, about: str, now: float, nonce: str) -> str:
    body = f"{round(now * 1000)}.{nonce}"
    return f"{body}.{_mac(key, about, body)}"


def _unseal(text: str, key: bytes, about: str) -> float | None:
    """When it was made; None unless it was made with this key and for this purpose."""
    if len(text) > MAX_LENGTH or not text.isascii():
        return None
    body, _, mac = text.rpartition(".")
    if not hmac.compare_digest(mac.encode(), _mac(key, about, body).encode()):
        return None
    return int(body.partition(".")[0]) / 1000


def _mac(key: bytes, about: str, body: str) -> str:
    return hmac.new(key, f"{about}\n{body}".encode(), hashlib.sha256).hexdigest()


def link(home: Path, base: str) -> str:
    """An address that gives a browser access once, within a minute.

    Raises:
        StartupError: the key of the home cannot be used.
    """
    code = make_code(homekey.load(home, KEY), base, time.time(), secrets.token_urlsafe(16))
    return f"{base}open?code={code}"


class Door:
    """Access control of the dashboard at this address."""

    def __init__(self, home: Path, base: str) -> None:
        self._home = str(home)
        self._key = homekey.load(home, KEY)
        self._codes = Codes(self._key, base, time.time())

    def knows(self, scope: Scope, headers: Sequence[tuple[str, str]]) -> bool:
        """Whether the request brings a good cookie of this home, from a process of its user."""
        name = cookie_name(self._home)
        sent = [value for header, text in headers if header == "cookie" for value in sent_cookies(text, name)]
        good = any(is_good(value, self._key, self._home, time.time()) for value in sent)
        return good and _is_of_our_user(scope)

    def enter(self, scope: Scope, code: str) -> str | None:
        """The Set-Cookie header for a valid code; None for any other."""
        if (
            scope["method"] != "GET"
            or not _is_of_our_user(scope)
            or not self._codes.redeem(code, time.time())
        ):
            return None
        cookie = make_cookie(self._key, self._home, time.time(), secrets.token_urlsafe(16))
        return set_cookie(self._home, cookie)


def _is_of_our_user(scope: Scope) -> bool:
    """Whether our user owns the socket at the other end.

    Where the kernel cannot tell, the cookie alone decides.
    """
    return is_own(scope.get("server"), scope.get("client"))


def is_own(server: Sequence[Any] | None, client: Sequence[Any] | None) -> bool:
    """Whether our own user is at the other end of a connection with these addresses; True if not on Linux."""
    if sys.platform != "linux":
        return True
    if client is None or server is None:
        return False
    ends = (str(server[0]), int(server[1])), (str(client[0]), int(client[1]))
    return peers.is_allowed(peers.uid_of_peer(*ends), own=os.getuid())
