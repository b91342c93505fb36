"""The cookies and codes of one dashboard, by the key of its home and by who calls."""

import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.types import Scope

from holdfast.handoff import key
from holdfast.local import peers
from holdfast.web import passes

KEY: Final = "web.key"  # in the home; without it no cookie is good any more


def link(home: Path, base: str) -> str:
    """An address that lets a browser in once, for a minute.

    Raises:
        StartupError: the key of the home cannot be used.
    """
    code = passes.make_code(key.load(home, KEY), base, time.time(), secrets.token_urlsafe(16))
    return f"{base}open?code={code}"


class Door:
    """Of the dashboard at this address."""

    def __init__(self, home: Path, base: str) -> None:
        self._home = str(home)
        self._key = key.load(home, KEY)
        self._codes = passes.Codes(self._key, base, time.time())

    def knows(self, scope: Scope, headers: Sequence[tuple[str, str]]) -> bool:
        """Whether the request brings a good cookie of this home, from a process of its user."""
        name = passes.cookie_name(self._home)
        sent = [
            value
            for header, text in headers
            if header == "cookie"
            for value in passes.sent_cookies(text, name)
        ]
        good = any(passes.is_good(value, self._key, self._home, time.time()) for value in sent)
        return good and _is_of_our_user(scope)

    def enter(self, scope: Scope, code: str) -> str | None:
        """The header that sets a cookie, for a code that is good; None for any other."""
        if (
            scope["method"] != "GET"
            or not _is_of_our_user(scope)
            or not self._codes.redeem(code, time.time())
        ):
            return None
        cookie = passes.make_cookie(self._key, self._home, time.time(), secrets.token_urlsafe(16))
        return passes.set_cookie(self._home, cookie)


def _is_of_our_user(scope: Scope) -> bool:
    """The owner of the socket at the other end; where no kernel says that, the cookie alone has to do."""
    if sys.platform != "linux":
        return True
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return False
    return peers.is_allowed(peers.uid_of_peer(tuple(server[:2]), tuple(client[:2])), own=os.getuid())
