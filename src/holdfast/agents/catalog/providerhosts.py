"""Where the model provider of a CLI is, as rules about hosts. Pure module.

A provider that is named has a rule for its name and port. One on this machine's loopback has a rule for that
address and port. For any other address there is no rule: by name only names are reached.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.agents.catalog.agent import Agent
from holdfast.egress.hosts import BadHost, parse_host

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_LOOPBACK: Final = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))


@dataclass(frozen=True, slots=True)
class ProviderHosts:
    """Rules for a provider, the names of those that its user chose, and an address that no rule is for."""

    rules: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    literal: str = ""


def find_provider(agent: Agent, base: str | None, bases: Iterable[str] = ()) -> ProviderHosts:
    """The hosts of its provider: one that it is sent to with `base`, or those of its record and its user."""
    rules: list[str] = [] if base is not None or agent.reach is None else list(agent.reach.hosts)
    own: list[str] = []
    for url in bases if base is None else (base,):
        found = _rule_of(url)
        if found is None:
            if base is not None:
                return ProviderHosts(literal=base[:200])
            continue
        rule, name = found
        if not rule:
            return ProviderHosts(literal=name)
        rules.append(rule)
        own += [name] if name else []
    return ProviderHosts(tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(own)))


def find_target(url: str) -> str | None:
    """A provider as a key is kept for it: its host and port, with the scheme where that is not TLS."""
    found = _rule_of(url)
    if found is None or not found[0]:
        return None
    secure = urlsplit(url).scheme.lower() in ("https", "wss")
    return found[0] if secure else f"http://{found[0]}"


def _rule_of(url: str) -> tuple[str, str] | None:
    """The rule for an address and its name; without a rule for a host that has no name; None: it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme.lower()]
        host = parse_host(parts.hostname or "")
    except (BadHost, KeyError, ValueError):
        return None
    if host.address is not None:
        if host.address not in _LOOPBACK:
            return "", host.name
        return f"[{host.name}]:{port}" if host.address.version == 6 else f"{host.name}:{port}", ""
    return f"{host.name}:{port}", "" if host.is_local else host.name
