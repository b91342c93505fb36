"""Keys that are recognised by their variable or their shape, and the hosts that they are for. Pure module.

Used when a client sends `credentialMasking` without naming providers; the list is the reference's.
"""

import re
from collections.abc import Mapping
from typing import Final

from holdfast.egress.keys.placeholders import BadKey, make_placeholder
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import SecretWish, parse_secret

_OPENAI: Final = ("OPENAI_API_KEY",)
_GITHUB: Final = re.compile(r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})")
_HOSTS: Final = {
    "openai": ("api.openai.com",),
    "github": ("api.github.com", "github.com", "uploads.github.com"),
}


def find_known_keys(environment: Mapping[str, str]) -> list[tuple[list[SecretWish], str]]:
    """The variables that hold such a key, with its hosts; skip values that cannot be kept outside."""
    found = []
    for name, value in environment.items():
        kind = "openai" if name in _OPENAI else "github" if _GITHUB.fullmatch(value) else None
        if kind is None or not value:
            continue
        try:
            make_placeholder(value, lambda letters: letters[0])
            found.append(([parse_secret(f"{name}@{host}") for host in _HOSTS[kind]], value))
        except (BadKey, UsageError):
            continue
    return found
