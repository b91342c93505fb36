"""A login of the Codex CLI (`auth.json` in its home) as an executor's credential for its registry.

It is read before every request, because codex renews it; we do not renew it, and never write there. An API
key is sent to the same places as `CODEX_API_KEY`. The tokens of a ChatGPT account are sent to their vendor
and to this machine only; the reference sends them anywhere.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pybase64

from holdfast import decoding
from holdfast.errors import StartupError, TokenRefused, UsageError
from holdfast.rendezvous.credentials import check_header
from holdfast.server.remote.credential import is_for_vendor

FILE: Final = "auth.json"
MAX_BYTES: Final = 256 * 1024  # of the file; one with two tokens has some 5 KB
_ACCOUNT_HOST: Final = "chatgpt.com"
_RENEW: Final = "run codex once, which renews its login, or `codex login`"


class _Tokens(msgspec.Struct):
    access_token: str
    id_token: str = ""
    account_id: str | None = None


class _File(msgspec.Struct):
    auth_mode: str | None = None
    api_key: str | None = msgspec.field(default=None, name="OPENAI_API_KEY")
    tokens: _Tokens | None = None


class _Account(msgspec.Struct):
    chatgpt_account_is_fedramp: bool = False


class _Claims(msgspec.Struct):
    exp: float | None = None
    account: _Account = msgspec.field(default_factory=_Account, name="https://api.openai.com/auth")


class Login:
    """The file of one home, for one registry. `clock` returns the seconds since 1970."""

    def __init__(self, path: str, registry_url: str, clock: Callable[[], float]) -> None:
        self._path = path
        self._url = registry_url
        self._clock = clock

    def headers(self) -> dict[str, str]:
        """The current headers.

        Raises:
            TokenRefused: there is no login that may be sent there, or it is no longer valid.
        """
        try:
            with open(self._path, "rb") as file:
                return read_login(file.read(MAX_BYTES), self._url, self._clock())
        except OSError:
            raise TokenRefused("the Codex CLI's login cannot be read", remedy=_RENEW) from None

    def __repr__(self) -> str:
        return "<Login>"


def find_login(registry_url: str, environ: Mapping[str, str], clock: Callable[[], float]) -> Login | None:
    """Find the Codex CLI's login, if there is one that may be sent to this registry.

    Raises:
        StartupError: there is one, but it is not usable.
    """
    home = environ.get("CODEX_HOME") or (
        os.path.join(environ["HOME"], ".codex") if environ.get("HOME") else None
    )
    if home is None or not may_go_there(registry_url) or not os.path.exists(os.path.join(home, FILE)):
        return None
    login = Login(os.path.join(home, FILE), registry_url, clock)
    try:
        login.headers()
    except TokenRefused as exc:
        raise StartupError(str(exc), remedy=exc.remedy) from None
    return login


def may_go_there(url: str) -> bool:
    """Whether any login may be sent there."""
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    account = parts.scheme == "https" and (host == _ACCOUNT_HOST or host.endswith(f".{_ACCOUNT_HOST}"))
    return account or is_for_vendor(url)


def read_login(content: bytes, registry_url: str, now: float) -> dict[str, str]:
    """Return the headers of a login.

    Raises:
        TokenRefused: it has none that may be sent to this registry, or has expired.
    """
    try:
        said = decoding.decode(content, _File)
        by_key = bool(said.api_key) and said.auth_mode != "chatgpt"
        if by_key and is_for_vendor(registry_url):
            return {"authorization": f"Bearer {check_header(said.api_key or '', FILE)}"}
        if by_key or said.tokens is None:
            raise TokenRefused("the Codex CLI's login is not for this registry, or none", remedy=_RENEW)
        return _of_account(said.tokens, now)
    except (msgspec.DecodeError, UsageError, ValueError):  # the error's text may quote the file
        raise TokenRefused("the Codex CLI's login makes no sense", remedy=_RENEW) from None


def _of_account(tokens: _Tokens, now: float) -> dict[str, str]:
    expires = _claims(tokens.access_token).exp
    if expires is not None and expires <= now:
        raise TokenRefused("the Codex CLI's login has expired", remedy=_RENEW)
    shown = {"authorization": f"Bearer {check_header(tokens.access_token, FILE)}"}
    if tokens.account_id:
        shown["chatgpt-account-id"] = check_header(tokens.account_id, FILE)
    if _claims(tokens.id_token).account.chatgpt_account_is_fedramp:
        shown["x-openai-fedramp"] = "true"
    return shown


def _claims(token: str) -> _Claims:
    """Parse the claims of a token; none if it is opaque. The registry verifies the token, not we."""
    parts = token.split(".")
    if len(parts) != 3:
        return _Claims()
    try:
        payload = pybase64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        return decoding.decode(payload, _Claims)
    except (ValueError, msgspec.DecodeError):
        return _Claims()
