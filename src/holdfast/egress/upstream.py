"""The upstream proxies that this host itself needs, from its environment. Pure module."""

import base64  # not pybase64: an import while a command runs must only search the standard library
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from holdfast.egress.addresses import is_loopback
from holdfast.egress.hosts import Host

Scheme: TypeAlias = Literal["http", "https"]

DEFAULT_PORT: Final = 80  # of a proxy whose URL has no port
REPEATS: Final = "an upstream proxy looks names up once more: what it connects to cannot be pinned"
_PASSED_BY: Final = "hosts by name are dialled without this machine's proxy: "


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies that the environment sets; upper-case names win, as in the reference."""

    http: str | None = field(repr=False)  # a proxy URL may hold a password
    https: str | None = field(repr=False)
    bypass: tuple[str, ...]

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Proxies":
        def first(*names: str) -> str | None:
            return next((environ[name].strip() for name in names if environ.get(name, "").strip()), None)

        # In a CGI process HTTP_PROXY is the client's "Proxy" header, not the administrator's setting.
        http = ("http_proxy",) if "REQUEST_METHOD" in environ else ("HTTP_PROXY", "http_proxy")
        entries = (entry.strip().lower() for entry in (first("NO_PROXY", "no_proxy") or "").split(","))
        return cls(
            http=_proxy_url(first(*http, "ALL_PROXY", "all_proxy")),
            https=_proxy_url(first("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")),
            bypass=tuple(entry for entry in entries if entry),
        )

    def choose(self, scheme: str, host: str) -> str | None:
        """The proxy's URL, or None to connect directly."""
        if any(_bypasses(entry, host.lower()) for entry in self.bypass):
            return None
        return self.https if scheme == "https" else self.http


def _proxy_url(text: str | None) -> str | None:
    return text if text is None or "://" in text else f"http://{text}"


def _bypasses(entry: str, host: str) -> bool:
    """Whether an entry matches: `*`, a domain and its subdomains, an address, or an IPv4 network."""
    if entry == "*":
        return True
    network, slash, bits = entry.partition("/")
    if slash:
        inside, address = _ipv4(network), _ipv4(host)
        if inside is None or address is None or not bits.isdecimal() or int(bits) > 32:
            return False
        return (inside ^ address) >> (32 - int(bits)) == 0
    domain = entry.strip("[]").lstrip(".")
    return host == domain or host.endswith("." + domain)


def _ipv4(text: str) -> int | None:
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        return None
    return int.from_bytes(bytes(map(int, parts)), "big")


@dataclass(frozen=True, slots=True)
class Upstream:
    """An HTTP proxy, and the value of its `Proxy-Authorization` header."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def parse_upstream(url: str) -> Upstream | None:
    """Parse the URL of a proxy; None if its scheme is not supported."""
    try:
        split = urlsplit(url)
        port = split.port or DEFAULT_PORT
    except ValueError:
        return None
    if split.scheme != "http" or not split.hostname:
        return None
    if split.username is None:
        return Upstream(split.hostname, port)
    pair = unquote_to_bytes(split.username) + b":" + unquote_to_bytes(split.password or "")
    return Upstream(split.hostname, port, f"Basic {base64.b64encode(pair).decode()}")


def describe_by_name(proxies: Proxies) -> tuple[str | None, str | None]:
    """How connections by name use the proxies (only the https one), and what that weakens."""
    if proxies.https is None:
        only = f"{_PASSED_BY}HTTP_PROXY alone is not for them, HTTPS_PROXY is"
        return None, None if proxies.http is None else only
    if parse_upstream(proxies.https) is None:
        return None, f"{_PASSED_BY}HTTPS_PROXY or ALL_PROXY names one whose URL is not http://"
    return f"by name: {REPEATS}", None


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Chooses the proxy for a host. `private`: also for addresses that are not public; never for loopback."""

    proxies: Proxies | None = None
    private: bool = False

    def lead_to(self, scheme: Scheme, host: Host) -> Upstream | None:
        """The proxy on the way to this host; None if there is none."""
        if self.proxies is None or (host.is_local and not self._may_be_private(host)):
            return None
        url = self.proxies.choose(scheme, host.name)
        return None if url is None else parse_upstream(url)

    def _may_be_private(self, host: Host) -> bool:
        return self.private and host.address is not None and not is_loopback(host.address)


NONE: Final = Upstreams()
