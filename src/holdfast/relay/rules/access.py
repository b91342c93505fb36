"""Tokens of a relay and what they allow. Pure module.

The holder of a token acts for its tenant, as an executor, as a harness or as both, for the environments that
match its patterns. Environments of two tenants are separate, even with equal names. Only the digest of a
token is stored. A token has 256 random bits, so its digest reveals nothing about it, and the look-up by
digest does not reveal how much of a guess was right.
"""

import enum
import fnmatch
import hashlib
import hmac
import re
from typing import Final

import msgspec

from holdfast.errors import PeerRefused, UsageError

PREFIX: Final = "hfr_"
LEAST_TOKEN: Final = 16  # characters of one that the user chose; a shorter one can be guessed
MOST_TOKEN: Final = 512  # a request head has room for more, but no token needs it
MOST_PATTERNS: Final = 64
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PATTERN: Final = re.compile(r"[A-Za-z0-9._~*?-]{1,128}")


class Role(enum.StrEnum):
    """The role of a token's holder towards an environment."""

    EXECUTOR = "executor"
    HARNESS = "harness"


class Token(msgspec.Struct, frozen=True):
    """A row of the table of tokens, without the token itself."""

    id: str
    tenant: str
    name: str
    digest: str
    roles: tuple[Role, ...]
    environments: tuple[str, ...]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None

    def state(self, now_ms: int) -> str:
        """The state in one word, for a list."""
        if self.expires_ms is not None and self.expires_ms <= now_ms:
            return "expired"
        return "valid" if self.revoked_ms is None else "revoked"


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def bearer(authorization: str | None) -> str:
    """Extract the token of an Authorization header.

    Raises:
        PeerRefused: there is none.
    """
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > MOST_TOKEN or not token.isascii():
        raise PeerRefused("a bearer token is required")
    return token


def check(token: str, found: Token | None, now_ms: int) -> Token:
    """Return the row of this token if it is valid.

    Raises:
        PeerRefused: it is unknown, revoked or expired; the text does not say which.
    """
    right = found is not None and hmac.compare_digest(found.digest, digest_of(token))
    if found is None or not right or found.state(now_ms) != "valid":
        raise PeerRefused("the token is not valid here")
    return found


def allows(token: Token, role: Role, environment: str) -> bool:
    return role in token.roles and any(
        fnmatch.fnmatchcase(environment, pattern) for pattern in token.environments
    )


def check_new(
    name: str, tenant: str, roles: tuple[Role, ...], environments: tuple[str, ...], token: str | None
) -> None:
    """Raises: UsageError: no token can have these values."""
    for what, text in (("name", name), ("tenant", tenant)):
        if not NAME.fullmatch(text):
            raise UsageError(f"a {what} has 1 to 64 letters, digits, dots, - and _")
    if not roles:
        raise UsageError("a token is for an executor, a harness or both", remedy="give --role")
    if not 0 < len(environments) <= MOST_PATTERNS:
        raise UsageError(f"a token names 1 to {MOST_PATTERNS} environments")
    for pattern in environments:
        if not PATTERN.fullmatch(pattern):
            raise UsageError(
                f"{pattern[:64]!r} names no environment", remedy="use letters, digits, . _ ~ - and * or ?"
            )
    if token is not None and not (
        LEAST_TOKEN <= len(token) <= MOST_TOKEN and token.isascii() and token.isprintable()
    ):
        raise UsageError(f"a token has {LEAST_TOKEN} to {MOST_TOKEN} characters that a header can carry")
    if token is not None and any(char.isspace() for char in token):
        raise UsageError("a token has no spaces in it")
