"""A policy written in TOML, as a parsed tree. Pure module.

    network = "off"
    sockets = ["/run/postgresql/.s.PGSQL.5432"]

    [filesystem]
    ":root" = "read"
    ":workspace" = "write"
    "~/.ssh" = "deny"
    "**/.env" = "deny"

    [hosts]
    "api.example.com" = "allow"
    "**.example.org:443" = "allow"
    "ads.example.org" = "deny"
    private = false

    [hosts.secrets]
    OPENAI_API_KEY = "api.openai.com"

    [limits]
    memory = "2G"
    pids = 200
    timeout = "10m"

A key is a place (`:root`), an absolute path, a path below the home directory (`~/`) or below the workspace
(`./`), or a pattern. What the file does not allow is not allowed. The limits are those of
`sandbox/limits.py`.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast.errors import UsageError
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.paths import is_pattern
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    Glob,
    Network,
    Place,
    Policy,
    Rule,
    Special,
    Target,
)
from holdfast.sandbox.policy.secretwish import parse_secret

if TYPE_CHECKING:
    from holdfast.sandbox.limits import Limits

PLACES: Final = {
    ":root": Place.ROOT,
    ":minimal": Place.MINIMAL,
    ":workspace": Place.PROJECT_ROOTS,
    ":tmpdir": Place.TMPDIR,
    ":slash_tmp": Place.SLASH_TMP,
}
_ACCESS: Final = {"read": Access.READ, "write": Access.WRITE, "deny": Access.DENY}
_NETWORK: Final = {"on": Network.ON, "off": Network.OFF}


def policy_of(tree: Mapping[str, object], *, source: str, home: str) -> Policy:
    """The policy that the tree describes. `source` is the file, for messages.

    Raises:
        UsageError: the tree is invalid; the message names the file and the key.
    """
    for key in tree:
        if key not in ("filesystem", "network", "sockets", "hosts", "limits"):
            raise _wrong(
                source, key, "unknown key; there are [filesystem], [hosts], [limits], network and sockets"
            )
    table = tree.get("filesystem")
    if not isinstance(table, dict):
        raise _wrong(source, "filesystem", "must be a table of paths")
    rules = tuple(_rule(str(key), value, source, home) for key, value in table.items())
    granted = _sockets(tree.get("sockets", []), source, home)
    network = _network(tree.get("network", "off"), source)
    hosts = hosts_of(tree.get("hosts", {}), source=source)
    if (hosts.allow or hosts.presets) and network is Network.ON:
        raise _wrong(source, "hosts", 'say what is left of the network when it is "off"')
    return Policy(rules, network, sockets=granted, hosts=hosts)


def limits_of(tree: Mapping[str, object], *, source: str) -> "Limits | None":
    """The limits in the tree, None without any. Raises as `policy_of` does."""
    table = tree.get("limits")
    if table is None:
        return None
    if not isinstance(table, dict):
        raise _wrong(source, "limits", "must be a table")
    from holdfast.sandbox.policy import amounts

    try:
        return amounts.parse({str(key): content for key, content in table.items()})
    except UsageError as exc:
        raise UsageError(f"{source}: limits: {exc}", remedy=exc.remedy) from None


def escape(path: str) -> str:
    """The pattern that matches exactly this path."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _network(value: object, source: str) -> Network:
    if not isinstance(value, str) or value not in _NETWORK:
        raise _wrong(source, "network", 'must be "on" or "off"')
    return _NETWORK[value]


def _sockets(value: object, source: str, home: str) -> tuple[str, ...]:
    paths = value if isinstance(value, list) else [None]
    found = [_target(path, home) if isinstance(path, str) else None for path in paths]
    if not all(isinstance(one, At) for one in found):
        raise _wrong(source, "sockets", "must be a list of paths that begin with / or ~/")
    return tuple(one.path for one in found if isinstance(one, At))


def hosts_of(value: object, *, source: str) -> HostWish:
    """The hosts of a profile: rules with verdicts, `private`, and `addresses` that replace a lookup.

    Raises:
        UsageError: the table is invalid; the message names the file and the key.
    """
    if not isinstance(value, dict):
        raise _wrong(source, "hosts", "must be a table of hosts")
    rules: dict[str, list[str]] = {"allow": [], "deny": []}
    private, addresses = value.get("private", False), value.get("addresses", {})
    for key, verdict in value.items():
        if key in ("private", "addresses", "secrets", "presets", "limits"):
            continue
        if not isinstance(verdict, str) or verdict not in rules:
            raise _wrong(source, f'hosts."{key}"', 'must be "allow" or "deny"')
        rules[verdict].append(str(key))
    if not isinstance(private, bool):
        raise _wrong(source, "hosts.private", "must be true or false")
    if not isinstance(addresses, dict) or not all(isinstance(at, str) for at in addresses.values()):
        raise _wrong(source, "hosts.addresses", "must be a table of hosts and their addresses")
    given = tuple((str(name).lower().removesuffix("."), str(at)) for name, at in addresses.items())
    secrets = _secrets(value.get("secrets", {}), source)
    rules["allow"] += [secret.rule for secret in map(parse_secret, secrets)]
    presets = _texts(value, "presets", "clients, as pip and npm", source)
    limits = _texts(value, "limits", "amounts, as 500M and 10M/s", source)
    allow, deny = map(tuple, (rules["allow"], rules["deny"]))
    return HostWish(allow, deny, private, given, secrets, presets=presets, limits=limits)


def _texts(table: Mapping[str, object], key: str, what: str, source: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise _wrong(source, f"hosts.{key}", f"must be a list of {what}")
    return tuple(found)


def _secrets(value: object, source: str) -> tuple[str, ...]:
    """The secrets, as `--secret` takes them, from variables with `HOST` or `SOURCE@HOST`."""
    if not isinstance(value, dict) or not all(isinstance(where, str) for where in value.values()):
        raise _wrong(source, "hosts.secrets", "must be a table of variables and their hosts")
    texts = tuple(f"{name}{'=' if '@' in where else '@'}{where}" for name, where in value.items())
    for name, text in zip(value, texts, strict=True):
        try:
            parse_secret(text)
        except UsageError as exc:
            raise _wrong(source, f"hosts.secrets.{name}", str(exc).partition(": ")[2]) from None
    return texts


def _rule(key: str, value: object, source: str, home: str) -> Rule:
    if not isinstance(value, str) or value not in _ACCESS:
        raise _wrong(source, f'filesystem."{key}"', 'must be "read", "write" or "deny"')
    access = _ACCESS[value]
    if key == ":minimal" and access is not Access.READ:
        raise _wrong(source, f'filesystem."{key}"', "can only be read")
    if is_pattern(key) and access is not Access.DENY:
        raise _wrong(source, f'filesystem."{key}"', "a pattern can only be denied")
    target = _target(key, home)
    if target is None:
        places = ", ".join(PLACES)
        raise _wrong(
            source, f'filesystem."{key}"', f"unknown key; a path begins with /, ~/ or ./, a place is {places}"
        )
    return Rule(target, access)


def _target(key: str, home: str) -> Target | None:
    """The target of a key; None if the key is none of those that a profile may have."""
    if key in PLACES:
        return Special(PLACES[key])
    if key.startswith(":"):
        return None
    below_home = key == "~" or key.startswith("~/")
    if is_pattern(key):
        return Glob(escape(home) + key[1:] if below_home else key.removeprefix("./"))
    if below_home:
        return At(home + key[1:])
    if key.startswith("./"):
        return Special(Place.PROJECT_ROOTS, key[2:] or None)
    return At(key) if key.startswith("/") else None


def _wrong(source: str, key: str, what: str) -> UsageError:
    return UsageError(f"{source}: {key}: {what}")
