"""The credential of an executor for its registry, and the one that comes on standard input. Pure module.

A token is given by a file or a variable and stays, or comes through a pipe, line by line, and each line
replaces the last:

    {"version": 1, "environment_id": "box", "token": "…", "expires_at": 1800000000}
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast import decoding
from holdfast.errors import StartupError, TokenRefused, UsageError
from holdfast.rendezvous.credentials import check_header, is_loopback

VARIABLE: Final = "HOLDFAST_REGISTRY_TOKEN"
API_KEY: Final = "CODEX_API_KEY"
FIRST_LINE_S: Final = 10.0  # for the first credential of a pipe
MAX_LINE_BYTES: Final = 64 * 1024
_VENDOR: Final = ("openai.com", "openai.org")  # where an API key of the vendor may be sent


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    environment_id: str
    token: str
    expires_at: int


class Credential(NamedTuple):
    token: str
    expires_at: float | None = None

    def __repr__(self) -> str:
        return "<Credential>"


class Shown(Protocol):
    """A credential for a registry, of any kind."""

    def headers(self) -> dict[str, str]:
        """The current headers. Raises: TokenRefused: there is no credential, or it is no longer valid."""


class CredentialHolder:
    """The current credential; `clock` returns the seconds since 1970."""

    def __init__(
        self, environment_id: str, clock: Callable[[], float], first: Credential | None = None
    ) -> None:
        self._environment_id = environment_id.strip()
        self._clock = clock
        self._current = first

    def headers(self) -> dict[str, str]:
        held = self._current
        if held is None or (held.expires_at is not None and held.expires_at <= self._clock()):
            raise TokenRefused("the registry's credential has expired", remedy="send a new one by the pipe")
        return {"authorization": f"Bearer {held.token}"}

    def take(self, line: bytes) -> None:
        """Take a line of the pipe.

        Raises:
            StartupError: it is not a credential, not for us, or expired.
        """
        try:
            said = decoding.decode(line, _Line)
            token = check_header(said.token, "the credential")
        except (msgspec.DecodeError, UsageError):  # the error's text may quote the line
            raise StartupError("what came on standard input is no credential") from None
        if said.environment_id != self._environment_id:
            raise StartupError("the credential on standard input is for another environment")
        if said.expires_at <= self._clock():
            raise StartupError("the credential on standard input has expired")
        self._current = Credential(token, said.expires_at)


def choose(
    registry_url: str, token_file_text: str | None, environ: Mapping[str, str]
) -> tuple[Credential, str | None]:
    """Choose the token, and the variable that it came from: a file's, ours, or the vendor's API key.

    Raises:
        StartupError: there is none, or the vendor's would go to another party.
    """
    try:
        if token_file_text is not None:
            return Credential(check_header(token_file_text, "the token's file")), None
        for variable in (VARIABLE, API_KEY):
            if environ.get(variable, "").strip():
                if variable == API_KEY and not is_for_vendor(registry_url):
                    break
                return Credential(check_header(environ[variable], variable)), variable
    except UsageError as exc:
        raise StartupError(str(exc)) from None
    if environ.get(API_KEY, "").strip():
        raise StartupError(
            f"{API_KEY} is shown to a registry of its vendor or on this machine only",
            remedy=f"give the registry's own token: --remote-token-file FILE, or {VARIABLE}",
        )
    raise StartupError(
        "the registry wants a token", remedy=f"give it: --remote-token-file FILE, or {VARIABLE}"
    )


def is_given(token_file_text: str | None, environ: Mapping[str, str]) -> bool:
    """Whether `choose` would find anything."""
    return token_file_text is not None or any(environ.get(name, "").strip() for name in (VARIABLE, API_KEY))


def is_for_vendor(url: str) -> bool:
    """Whether an API key may be sent there: TLS to the vendor, or this machine."""
    if is_loopback(url):
        return True
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    return parts.scheme == "https" and any(host == name or host.endswith(f".{name}") for name in _VENDOR)
