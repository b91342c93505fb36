"""Host rules for the model provider of a CLI. Pure module.

A provider given by name gets a rule for its name and port. A provider on this machine's loopback gets a rule
for that address and port. Any other IP address gets no rule, because only names can be allowed.
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
    """Rules for a provider, the host names that the user configured, and an address that gets no rule."""

    rules: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    literal: str = ""


def find_provider(agent: Agent, base: str | None, bases: Iterable[str] = ()) -> ProviderHosts:
    """Return the provider's hosts: that of `base` if given, else those of the record and of `bases`."""
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
    """Return the provider in the form that keys are bound to: host and port, with `http://` if not TLS."""
    found = _rule_of(url)
    if found is None or not found[0]:
        return None
    secure = urlsplit(url).scheme.lower() in ("https", "wss")
    return found[0] if secure else f"http://{found[0]}"


def _rule_of(url: str) -> tuple[str, str] | None:
    """Return the rule for a URL and its host name; the rule is empty for an IP address. None: invalid URL."""
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
