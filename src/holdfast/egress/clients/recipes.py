"""`--allow-net`: rules about hosts, derived from a client's own settings. Pure module, but for what it is
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
    """How to find a client's hosts, and the remedy if there are none."""

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
    """A rule that a preset yields, and where it was found."""

    rule: str
    where: str


def find_hosts(name: str, seen: Surroundings) -> list[Given]:
    """The hosts of a preset.

    Raises:
        UsageError: the preset is unknown, or its client's settings name no host.
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
    """Add the hosts of its presets to a policy, and where each was found.

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
    """Raises UsageError if there is no such preset."""
    if name not in RECIPES:
        raise UsageError(
            f"--allow-net {name!r:.100}: there is no such preset",
            remedy=f"one of {', '.join(RECIPES)}; any other host by --allow-host HOST",
        )


def _rules_of(origins: Iterable[Origin]) -> Iterable[tuple[str, str]]:
    """Skip values that are not a host's address, such as paths. A rule is named by its first source."""
    seen = set()
    for url, where in origins:
        rule = rule_of(url)
        if rule is not None and rule not in seen:
            seen.add(rule)
            yield rule, where


def rule_of(url: str) -> str | None:
    """The rule that allows only the host and port of an address; None if it has none."""
    text = url.strip().removeprefix("sparse+").removeprefix("registry+").removeprefix("git+")
    if not text.isprintable() or " " in text:
        return None  # a URL parser may drop unusual characters, and so find another host
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
