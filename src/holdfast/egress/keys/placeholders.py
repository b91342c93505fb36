"""Placeholders of keys: a word of the same shape that gives no access. Pure module."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

MIN_RANDOM: Final = 8  # characters of a key after its public prefix: fewer would match by chance
MAX_KEY: Final = 8 * 1024  # characters: more than most servers accept in a header
# Prefixes of kinds of keys. Only the part that is public in all keys of a kind may be shown.
PREFIXES: Final = (
    *("sk-ant-api03-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-or-v1-", "sk-"),
    *("sk_live_", "sk_test_", "rk_live_", "rk_test_", "gsk_", "xai-", "hf_", "r8_", "pplx-", "nvapi-"),
    *("github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "glpat-", "npm_", "pypi-", "dop_v1_", "AIza"),
    *("xoxb-", "xoxp-", "xapp-"),
)
_KEPT: Final = frozenset(".=:")  # separators and padding of a token
_HEX: Final = frozenset("0123456789abcdef")
_LETTERS: Final = string.ascii_letters + string.digits
Choose = Callable[[Sequence[str]], str]  # returns one of these, at random


class BadKey(ValueError):
    """The key cannot be kept outside; the text gives the reason, and no part of the key."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a key may be used: for paths below these of a host and port, in these headers.

    A header is given as its lower-case name and the beginning of its value; without headers any may carry the
    key.
    """

    below: frozenset[tuple[str, int, str]]
    headers: frozenset[tuple[bytes, bytes]] = frozenset()


@dataclass(frozen=True, slots=True)
class Key:
    """A key, its variable, its placeholder, and the hosts that may receive it."""

    name: str
    value: str = field(repr=False)
    placeholder: str
    targets: frozenset[tuple[str, int]]  # host, port
    plain: frozenset[tuple[str, int]] = frozenset()  # the targets that speak no TLS
    use: KeyUse | None = None  # None: in any header of any request there


def make_placeholder(value: str, choose: Choose) -> str:
    """Create a placeholder for this key: of the same length, with the prefix of its kind.

    Raises:
        BadKey: it cannot be sent in a header, or is too short to be distinguished from other words.
    """
    if any(not "\x20" <= char <= "\x7e" for char in value) or value != value.strip():
        raise BadKey("it has characters that no header holds")
    if len(value) > MAX_KEY:
        raise BadKey(f"it is longer than {MAX_KEY} characters")
    prefix = next((known for known in PREFIXES if value.startswith(known)), "")
    rest = value[len(prefix) :]
    if sum(char not in _KEPT for char in rest) < MIN_RANDOM:
        raise BadKey(f"fewer than {MIN_RANDOM} characters of it are its own")
    letters = sorted(_HEX) if _HEX.issuperset(rest) else _LETTERS
    while True:
        made = prefix + "".join(char if char in _KEPT else choose(letters) for char in rest)
        if made != value:
            return made
