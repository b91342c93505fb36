"""Cookies by which one family of hosts leads a client back to the same machine of theirs. Pure module.

Their MCP servers are stateful behind a load balancer, so every request of this process sends these cookies
again, as the reference does. They belong to the infrastructure and not to an account: only these names, only
over https, only to those hosts. Every other cookie is dropped.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

MAX_COOKIES: Final = 64  # a dozen names on a few hosts; beyond it the oldest are dropped
MAX_VALUE: Final = 4096  # bytes of name and value, as in browsers

HOSTS: Final = frozenset({"chatgpt.com", "chat.openai.com", "chatgpt-staging.com"})
_BELOW: Final = (".chatgpt.com", ".chatgpt-staging.com")
NAMES: Final = frozenset(
    {
        "__cf_bm",
        "__cflb",
        "__cfruid",
        "__cfseq",
        "__cfwaitingroom",
        "_cfuvid",
        "cf_clearance",
        "cf_ob_info",
        "cf_use_ob",
    }
)
_DATE: Final = re.compile(r"(\d{1,2})[ -]([A-Za-z]{3})[ -](\d{4}) (\d\d):(\d\d):(\d\d)")
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CHALLENGES: Final = "cf_chl_"  # prefix of their names


def is_meant(scheme: str, host: str) -> bool:
    """Whether cookies of this origin are kept at all."""
    host = host.lower()
    return scheme == "https" and (host in HOSTS or host.endswith(_BELOW))


class _Key(NamedTuple):
    name: str
    domain: str
    path: str


@dataclass(frozen=True, slots=True)
class _Cookie:
    value: str
    host_only: bool
    expires_at: float | None


@dataclass(slots=True)
class AffinityCookies:
    """The cookies of one process, in memory only; `now` is the time of day in seconds."""

    _kept: dict[_Key, _Cookie] = field(default_factory=dict, repr=False)

    def keep(self, scheme: str, host: str, path: str, headers: Iterable[bytes], now: float) -> None:
        """Take the `Set-Cookie` headers of a response, as far as they are kept."""
        if not is_meant(scheme, host):
            return
        for header in headers:
            self._keep_one(host.lower(), path, header, now)

    def _keep_one(self, host: str, path: str, header: bytes, now: float) -> None:
        try:
            pair, *attributes = header.decode("ascii").split(";")
        except UnicodeDecodeError:
            return
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not (name in NAMES or name.startswith(_CHALLENGES)) or len(pair) > MAX_VALUE:
            return
        said = {key.strip().lower(): text.strip() for key, _, text in (a.partition("=") for a in attributes)}
        domain = said.get("domain", "").removeprefix(".").lower()
        if domain and not (_matches(host, domain) and is_meant("https", domain)):
            return
        place = said.get("path", "")
        if not place.startswith("/"):
            place = path.rpartition("/")[0] or "/"
        key = _Key(name, domain or host, place)
        self._kept.pop(key, None)
        expires_at = _expiry(said, now)
        if expires_at is None or expires_at > now:
            self._kept[key] = _Cookie(value, not domain, expires_at)
            while len(self._kept) > MAX_COOKIES:
                del self._kept[next(iter(self._kept))]

    def header(self, scheme: str, host: str, path: str, now: float) -> bytes | None:
        """Return the value of `Cookie`, longest path first; None if there is no cookie to send."""
        if not is_meant(scheme, host):
            return None
        host = host.lower()
        found = [
            (key, cookie)
            for key, cookie in self._kept.items()
            if (key.domain == host if cookie.host_only else _matches(host, key.domain))
            and _is_below(path or "/", key.path)
            and (cookie.expires_at is None or cookie.expires_at > now)
        ]
        found.sort(key=lambda pair: -len(pair[0].path))
        return "; ".join(f"{key.name}={cookie.value}" for key, cookie in found).encode("ascii") or None


def _matches(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place if place.endswith("/") else f"{place}/")


def _expiry(said: dict[str, str], now: float) -> float | None:
    """Return when the cookie expires; None: with this process."""
    if re.fullmatch("-?[0-9]{1,12}", said.get("max-age", "")):
        return now + int(said["max-age"])
    found = _DATE.search(said.get("expires", ""))
    if found is None or found[2].lower() not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[number]) for number in (1, 3, 4, 5, 6))
    try:
        month = _MONTHS.index(found[2].lower()) + 1
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
