"""Keys that a client describes, in `credentialProviders` of the wire protocol. Pure module.

A description names variables, the addresses that their values are for, and how a request carries one. The
patterns of the values are checked for validity but not used: every value of such a variable stays outside, so
that a wrong pattern leaves no key inside.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.egress.hosts import BadHost, parse_host, parse_target
from holdfast.egress.keys.placeholders import BadKey, KeyUse, make_placeholder
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import SecretWish, parse_secret

MAX_PROVIDERS: Final = 32
MAX_NAMES: Final = 64  # variables, patterns and addresses of one
MAX_PATTERN: Final = 1024
Auth: TypeAlias = Literal["bearer", "token", "basic", "header"]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_PREFIX: Final = re.compile(r"https://([^/?#@\\\s*]+)(/[A-Za-z0-9._~@:+,=/-]*)?", re.ASCII)
_BUILT_IN: Final = frozenset({"OPENAI_API_KEY"})
_SCHEMES: Final[Mapping[Auth, bytes]] = {"bearer": b"bearer ", "token": b"token ", "basic": b"basic "}


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, as a client describes it."""

    env: Sequence[str] = ()
    patterns: Sequence[str] = ()
    url_prefixes: Sequence[str] = ()
    url_prefix_from_env: str | None = None
    auth: Sequence[Auth] = ()
    header: str | None = None
    prefix: str | None = None


def check_providers(providers: Mapping[str, Provider]) -> None:
    """Validate each provider. Raises UsageError."""
    if len(providers) > MAX_PROVIDERS:
        raise UsageError(f"more than {MAX_PROVIDERS} credential providers")
    for name, given in providers.items():
        if (why := _find_fault(given)) is not None:
            raise UsageError(f"credential provider {name[:100]!r}: {why}")


def _find_fault(given: Provider) -> str | None:
    if max(map(len, (given.env, given.patterns, given.url_prefixes))) > MAX_NAMES:
        return f"it has more than {MAX_NAMES} names"
    if not given.env or not all(map(_VARIABLE.fullmatch, given.env)):
        return "it names no variables"
    if _BUILT_IN.intersection(given.env):
        return "it names a variable that is known without it"
    if not given.patterns or not all(map(_is_pattern, given.patterns)):
        return "it has no patterns of what its keys look like"
    variable = given.url_prefix_from_env
    if not given.url_prefixes and variable is None:
        return "it has no addresses that its keys are for"
    if variable is not None and not _VARIABLE.fullmatch(variable):
        return "the variable with its address is none"
    if any(_read_prefix(prefix) is None for prefix in given.url_prefixes):
        return "its addresses are of the form https://api.example.com/v1/"
    if ("header" in given.auth) != (given.header is not None):
        return "a header is named where keys are in one, and only there"
    if given.header is not None and not _HEADER.fullmatch(given.header):
        return "its header is none"
    if given.prefix is not None and (given.header is None or not given.prefix.isascii()):
        return "what is before a key is for keys in a header of their own"
    return None


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return 0 < len(text) <= MAX_PATTERN


def _read_prefix(text: str) -> tuple[str, int, str] | None:
    """Parse host, port and path prefix; None if it is not an address that a key may be for."""
    found = _PREFIX.fullmatch(text)
    if found is None:
        return None
    try:
        host, port = parse_target(found[1], 443)
        if host.address is not None or parse_host(host.name) != host:
            return None
    except BadHost:
        return None
    path = found[2] or "/"
    return None if any(part in (".", "..") for part in path.split("/")) else (host.name, port, path)


def find_described_keys(
    providers: Mapping[str, Provider], environment: Mapping[str, str]
) -> list[tuple[list[SecretWish], str, KeyUse]]:
    """The variables that hold a described key, with its hosts and its allowed use.

    Raises:
        UsageError: the variable for an address holds none, or a key cannot be kept outside.
    """
    found = []
    for title, given in providers.items():
        places = [read for read in map(_read_prefix, given.url_prefixes) if read is not None]
        if said := environment.get(given.url_prefix_from_env or ""):
            if (read := _read_prefix(said)) is None:
                raise UsageError(f"credential provider {title[:80]!r}: its variable has no https:// address")
            places.append(read)
        if not places:
            continue
        use = KeyUse(frozenset(places), _find_headers(given))
        targets = sorted({(host, port) for host, port, _ in places})
        for name in given.env:
            if not (value := environment.get(name)):
                continue
            try:
                make_placeholder(value, lambda letters: letters[0])
            except BadKey as exc:
                raise UsageError(f"credential provider {title[:100]!r}: the key in ${name}: {exc}") from None
            found.append(([parse_secret(f"{name}@{host}:{port}") for host, port in targets], value, use))
    return found


def _find_headers(given: Provider) -> frozenset[tuple[bytes, bytes]]:
    """The headers that may carry its keys, and how their values begin; empty: any may."""
    made = {(b"authorization", _SCHEMES[auth]) for auth in given.auth if auth != "header"}
    if given.header is not None:
        made.add((given.header.lower().encode(), (given.prefix or "").lower().encode()))
    return frozenset(made)
