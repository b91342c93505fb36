"""Hosts as programs name them, rules about them, and which rule decides. Pure module.

A rule is a name (`api.example.com`), its subdomains (`*.example.com`), both (`**.example.com`), every host
(`*`, to allow only) or an address, each with or without a port after a colon. Names are compared in DNS form:
lower case, in ASCII, without the last dot. Text that a resolver might take for an address in another notation
(`0x7f.1`, `2130706433`) is not a name.

A rule that is a URL, with or without methods before it (`GET,HEAD https://api.example.com/v1/`), allows only
those requests. It is the narrowest rule: patterns that allow the same host then no longer apply to it.
"""

import enum
import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.egress.addresses import Address, is_public, unmap, untranslate
from holdfast.errors import UsageError
from holdfast.light import replace
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.secretwish import parse_secret

MAX_NAME: Final = 253  # of a name in the DNS, without its last dot
MAX_TEXT: Final = 1024  # of a host as written, checked before parsing
DEFAULT_PORTS: Final = frozenset({80, 443})
ANY_PORT: Final = None
SCHEMES: Final = {"http": 80, "https": 443}  # schemes of requests that a rule can name
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_URL: Final = re.compile(r"(?:([A-Z]+(?:,[A-Z]+)*) )?(https?)://([^/?#@\\\s]+)(/[!-~]*)?", re.ASCII)
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~@:+,=-]*)+", re.ASCII)
# Letters that one version of IDNA keeps and the other maps to "ss", to a sigma or to nothing (RFC 5894, 7.2).
_DEVIATIONS: Final = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)


class BadHost(ValueError):
    """The text names no host that may be connected to; the message says why, and does not repeat the text."""


class Reason(enum.Enum):
    """How a host was decided about, in the terms of the protocol."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NOT_ALLOWED = "not_allowed"
    NOT_ALLOWED_LOCAL = "not_allowed_local"


@dataclass(frozen=True, slots=True)
class Host:
    """A host in canonical form: an ASCII name in lower case, or an address."""

    name: str
    address: Address | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def is_local(self) -> bool:
        """Whether its text shows that it is not public."""
        if self.address is not None:
            return not is_public(self.address)
        return self.name == "localhost" or self.name.endswith(".localhost")


class Extent(enum.Enum):
    """Which hosts a rule covers."""

    EXACT = ""
    BELOW = "*."
    TREE = "**."
    ALL = "*"


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that a rule allows: by `scheme`, of these methods (None: any), for paths below `prefix`."""

    scheme: str
    methods: frozenset[str] | None
    prefix: str


@dataclass(frozen=True, slots=True)
class HostRule:
    """A rule about hosts: those of `extent` around `name`, at these ports; None: at any.

    With `only` it allows these requests and nothing else.
    """

    extent: Extent
    name: str
    ports: frozenset[int] | None
    only: Requests | None = None

    def __str__(self) -> str:
        host = f"[{self.name}]" if ":" in self.name else self.name
        if self.only is not None:
            methods = f"{','.join(sorted(self.only.methods))} " if self.only.methods else ""
            port = "".join(f":{port}" for port in self.ports or () if port != SCHEMES[self.only.scheme])
            return f"{methods}{self.only.scheme}://{host}{port}{self.only.prefix}"
        shown = f"{self.extent.value}{host}"
        if self.ports is None or self.ports == DEFAULT_PORTS:
            return shown
        return f"{shown}:{','.join(map(str, sorted(self.ports)))}"

    def covers(self, host: Host, port: int) -> bool:
        """Whether the rule covers this host and port."""
        return (self.ports is None or port in self.ports) and self._covers_name(host)

    def _covers_name(self, host: Host) -> bool:
        below = host.address is None and host.name.endswith(f".{self.name}")
        match self.extent:
            case Extent.ALL:
                return True
            case Extent.EXACT:
                return host.name == self.name
            case Extent.BELOW:
                return below
            case Extent.TREE:
                return below or host.name == self.name


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a host, and the rule that decided, if any."""

    reason: Reason
    rule: HostRule | None = None

    @property
    def allowed(self) -> bool:
        return self.reason is Reason.ALLOWED


@dataclass(frozen=True, slots=True)
class HostRules:
    """What may be reached. `private`: allow addresses that are not public; `own`: only for these names."""

    allow: tuple[HostRule, ...] = ()
    deny: tuple[HostRule, ...] = ()
    private: bool = False
    own: frozenset[str] = frozenset()
    _by_name: dict[str, list[tuple[bool, HostRule]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for denies, rules in ((True, self.deny), (False, self.allow)):
            for rule in rules:
                self._by_name.setdefault(rule.name, []).append((denies, rule))
        for found in self._by_name.values():
            found.sort(key=lambda item: item[1].extent is not Extent.EXACT)

    def find(self, host: Host, port: int, *, denies: bool) -> HostRule | None:
        """The narrowest allowing or denying rule that covers this host and port."""
        for name in _parents(host):
            for kind, rule in self._by_name.get(name, ()):
                if kind is denies and rule.covers(host, port):
                    return rule
        return None

    def find_requests(self, host: Host, port: int) -> tuple[Requests, ...]:
        """The requests that may be sent to this host; empty if all are allowed.

        A rule about the whole host overrides those about requests, unless it is a pattern.
        """
        found = [
            rule
            for denies, rule in self._by_name.get(host.name, ())
            if not denies and rule.extent is Extent.EXACT and rule.covers(host, port)
        ]
        only = tuple(rule.only for rule in found if rule.only is not None)
        return only if len(only) == len(found) else ()

    @property
    def requested(self) -> dict[tuple[str, int], tuple[Requests, ...]]:
        """Hosts and ports to which only certain requests are allowed."""
        found: dict[tuple[str, int], tuple[Requests, ...]] = {}
        for rule in self.allow:
            for port in (rule.ports or ()) if rule.only is not None else ():
                if only := self.find_requests(Host(rule.name), port):
                    found[rule.name, port] = only
        return found


def _parents(host: Host) -> Iterator[str]:
    """The names of rules that can cover this host, the narrowest first; the rule for every host has none."""
    yield host.name
    if host.address is None:
        rest = host.name
        while "." in rest:
            rest = rest.partition(".")[2]
            yield rest
    yield ""


def decide(rules: HostRules, host: Host, port: int) -> Decision:
    """Decide whether this host may be reached, as far as is known before its name is resolved.

    A denial beats all other rules. An address that is not public needs a rule of its own: `*` does not cover
    it.
    """
    if denied := rules.find(host, port, denies=True):
        return Decision(Reason.DENIED, denied)
    allowed = rules.find(host, port, denies=False)
    if host.is_local and not rules.private and not (allowed and allowed.extent is Extent.EXACT):
        return Decision(Reason.NOT_ALLOWED_LOCAL)
    return Decision(Reason.ALLOWED, allowed) if allowed else Decision(Reason.NOT_ALLOWED)


def may_be_private(rules: HostRules, host: Host, decision: Decision) -> bool:
    """Whether an allowed host may be at private addresses: by `private`, `own` or a rule of its own."""
    exact = decision.rule is not None and decision.rule.extent is Extent.EXACT
    return rules.private or (exact and (host.is_local or host.name in rules.own))


def find_denial(rules: HostRules, port: int, address: Address) -> HostRule | None:
    """The rule that denies an address, for any name that led there."""
    for one in {address, untranslate(address)}:
        if (denied := rules.find(_host_of(one), port, denies=True)) is not None:
            return denied
    return None


def parse_host(text: str) -> Host:
    """Parse a host; an IPv6 address may be in brackets.

    Raises:
        BadHost: it names no host that may be connected to.
    """
    if not text or len(text) > MAX_TEXT:
        raise BadHost("a host has between 1 and 253 characters")
    if text.startswith("[") or ":" in text:
        return _literal_v6(text)
    name = text if text.isascii() else _to_ascii(text)
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise BadHost("a name has labels of letters, digits and hyphens, between dots")
    if not _NUMBER.fullmatch(labels[-1]):
        return Host(name)
    try:
        return _host_of(ipaddress.IPv4Address(text))
    except ValueError:
        raise BadHost("an IPv4 address is written as four decimal numbers") from None


def _literal_v6(text: str) -> Host:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if "%" in inner:  # a zone, which has a meaning on one machine only
            raise ValueError
        return _host_of(ipaddress.IPv6Address(inner))
    except ValueError:
        raise BadHost("this is not an IPv6 address") from None


def _host_of(address: Address) -> Host:
    inner = unmap(address)
    return Host(str(inner), inner)


def _to_ascii(text: str) -> str:
    if not _DEVIATIONS.isdisjoint(text):
        raise BadHost("programs differ in which name this is: write it as it begins with xn--")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise BadHost("the name cannot be written in ASCII") from None


def parse_target(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """Parse `host:port`, as in CONNECT; without a port use the default.

    Raises:
        BadHost: the host or the port is invalid or missing.
    """
    name, port = _split_port(text)
    number = default_port if port is None else port
    if number is None:
        raise BadHost("a port is missing")
    return parse_host(name), number


def _split_port(text: str) -> tuple[str, int | None]:
    """Split host and port; an IPv6 address with a port is in brackets."""
    if text.startswith("["):
        inner, closed, rest = text.partition("]")
        name = inner + closed
    elif text.count(":") > 1:
        return text, None
    else:
        name, colon, after = text.partition(":")
        rest = colon + after
    if not rest:
        return name, None
    if not rest.startswith(":") or not _PORT.fullmatch(rest[1:]) or not 0 < int(rest[1:]) < 1 << 16:
        raise BadHost("a port is a number from 1 to 65535")
    return name, int(rest[1:])


def parse_rule(
    text: str, *, denies: bool = False, default_ports: frozenset[int] | None = DEFAULT_PORTS
) -> HostRule:
    """Parse a rule; a denying rule without a port covers every port.

    Raises:
        UsageError: it is invalid.
    """
    try:
        return _rule(text, denies=denies, default_ports=default_ports)
    except BadHost as exc:
        raise UsageError(
            f"{text!r:.300} is no rule about hosts: {exc}",
            remedy="write api.example.com, *.example.com, **.example.com, a host and its port, or a URL",
        ) from None


def _rule(text: str, *, denies: bool, default_ports: frozenset[int] | None) -> HostRule:
    if "://" in text:
        return _request_rule(text, denies=denies)
    name, port = _split_port(text)
    ports = frozenset({port}) if port is not None else (ANY_PORT if denies else default_ports)
    if name == Extent.ALL.value:
        if denies:
            raise BadHost("every host can be allowed, and not denied: what is not allowed is refused")
        return HostRule(Extent.ALL, "", ports)
    for extent in (Extent.TREE, Extent.BELOW):
        if name.startswith(extent.value):
            base = parse_host(name.removeprefix(extent.value))
            if base.address is not None:
                raise BadHost("an address has no subdomains")
            return HostRule(extent, base.name, ports)
    return HostRule(Extent.EXACT, parse_host(name).name, ports)


def _request_rule(text: str, *, denies: bool) -> HostRule:
    """Parse a rule that is a URL."""
    found = _URL.fullmatch(text)
    if denies:
        raise BadHost("a host is denied as a whole")
    if found is None:
        raise BadHost("requests are written as GET,POST https://api.example.com/v1/")
    methods, scheme, authority, path = found[1], found[2], found[3], found[4] or "/"
    if not _PATH.fullmatch(path) or any(part in (".", "..") for part in path.split("/")):
        raise BadHost("a path is letters, digits and -._~@:+,= between slashes")
    name, port = _split_port(authority)
    host = parse_host(name)
    if host.address is not None:
        raise BadHost("requests are those to a name")
    only = Requests(scheme, frozenset(methods.split(",")) if methods else None, path)
    return HostRule(Extent.EXACT, host.name, frozenset({port or SCHEMES[scheme]}), only)


def parse_rules(
    allow: Iterable[str] = (), deny: Iterable[str] = (), *, private: bool = False, own: Iterable[str] = ()
) -> HostRules:
    """Parse the rules of `--allow-host` and the like.

    Raises:
        UsageError: a rule is invalid.
    """
    return HostRules(
        tuple(map(parse_rule, allow)),
        tuple(parse_rule(text, denies=True) for text in deny),
        private,
        frozenset(parse_rule(text).name for text in own),
    )


def narrow_keys(allow: Iterable[str], brought: Iterable[str]) -> tuple[str, ...]:
    """These rules without those that keys added, where another rule limits the requests to that host.

    A key allows its host as a whole; it must not lift a rule about requests.

    Raises:
        UsageError: a rule is invalid.
    """
    rules = {text: parse_rule(text) for text in allow}
    narrow = {(rule.name, rule.ports) for rule in rules.values() if rule.only is not None}
    implied = set(map(parse_rule, brought)) if narrow else set()
    return tuple(
        text for text, rule in rules.items() if rule not in implied or (rule.name, rule.ports) not in narrow
    )


def forget_keys(hosts: HostWish) -> HostWish:
    """The same hosts for a command that gets none of the keys. Raises UsageError."""
    if not hosts.secrets:
        return hosts
    brought = [parse_secret(text).rule for text in hosts.secrets]
    return replace(hosts, allow=narrow_keys(hosts.allow, brought), secrets=())


def check_addresses(given: Iterable[tuple[str, str]]) -> None:
    """Check hosts with fixed addresses, which replace a lookup.

    Raises:
        UsageError: an address or a host is invalid.
    """
    for name, address in given:
        try:
            parse_host(name)
            ipaddress.ip_address(address)
        except ValueError:
            raise UsageError(f"{name!r:.300} at {address!r:.100} is no host and its address") from None
