"""`--allow-net`: the rules about hosts that a client's own settings come to. Pure module, but for what it is
given to read.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.egress.clients import others, packages
from holdfast.egress.clients.packages import Origin, Surroundings
from holdfast.egress.hosts import BadHost, parse_host
from holdfast.errors import UsageError
from holdfast.light import replace
from holdfast.sandbox.policy.policy import Policy

_PORTS: Final = {"http": 80, "https": 443, "ssh": 22, "git": 9418}


class Recipe(NamedTuple):
    """How a client's hosts are found, and what to do when it says nothing."""

    find: Callable[[Surroundings], list[Origin]]
    otherwise: str


RECIPES: Final = {
    "pip": Recipe(packages.find_pip, "set index-url: pip config set global.index-url URL"),
    "npm": Recipe(packages.find_npm, "set the registry: npm config set registry URL"),
    "cargo": Recipe(
        packages.find_cargo,
        "run `cargo fetch` once outside: cargo then keeps where its registry is; or name the host yourself",
    ),
    "go": Recipe(packages.find_go, "set it: go env -w GOPROXY=URL"),
    "apt": Recipe(packages.find_apt, "add a source to /etc/apt/sources.list.d"),
    "git": Recipe(
        others.find_git, "remotes are the workspace's own word: name the host that `git remote -v` shows"
    ),
    "model": Recipe(others.find_model, "set the key or base URL of your provider, as OPENAI_BASE_URL"),
}


class Given(NamedTuple):
    """A rule that a preset came to, and where that was read."""

    rule: str
    where: str


def find_hosts(name: str, seen: Surroundings) -> list[Given]:
    """The hosts of a preset.

    Raises:
        UsageError: there is no such preset, or its client says nothing.
    """
    check_name(name)
    recipe = RECIPES[name]
    found = dict(_rules_of(recipe.find(seen)))
    if not found:
        raise UsageError(
            f"--allow-net {name}: nothing outside of the workspace says which hosts {name} needs",
            remedy=f"{recipe.otherwise}: --allow-host HOST",
        )
    return [Given(rule, where) for rule, where in found.items()]


def grant_presets(policy: Policy, seen: Surroundings) -> Policy:
    """The policy with the hosts of its presets, and where each was read.

    Raises:
        UsageError: as `find_hosts` does.
    """
    origins: list[str] = []
    names = dict.fromkeys(policy.hosts.presets)
    for name in names:
        for rule, where in find_hosts(name, seen):
            origins.append(f"{name}: {rule}, from {where}")
            policy = policy.allow_host(rule)
    return replace(policy, hosts=replace(policy.hosts, presets=(), origins=tuple(origins)))


def check_name(name: str) -> None:
    """There is such a preset. Raises UsageError."""
    if name not in RECIPES:
        raise UsageError(
            f"--allow-net {name!r:.100}: there is no such preset",
            remedy=f"one of {', '.join(RECIPES)}; any other host by --allow-host HOST",
        )


def _rules_of(origins: Iterable[Origin]) -> Iterable[tuple[str, str]]:
    """What is no address of a host, as a path, is left out. The first source of a rule is the one named."""
    seen = set()
    for url, where in origins:
        rule = rule_of(url)
        if rule is not None and rule not in seen:
            seen.add(rule)
            yield rule, where


def rule_of(url: str) -> str | None:
    """The rule that allows the host of an address at its port, and nothing else; None: it has none."""
    text = url.strip().removeprefix("sparse+").removeprefix("registry+").removeprefix("git+")
    if not text.isprintable() or " " in text:
        return None  # whoever splits it may leave out what is odd, and so make another host of it
    if "://" not in text:
        user, at, rest = text.partition("@")  # git's short form: user@host:path
        host, colon, _ = rest.partition(":")
        if not at or not colon or "/" in user:
            return None
        text = f"ssh://{host}"
    try:
        split = urlsplit(text)
        port = split.port or _PORTS.get(split.scheme)
        host = parse_host(split.hostname or "").name
    except (ValueError, BadHost):
        return None
    if port is None or split.scheme not in _PORTS:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
