"""Authentication of WebSocket upgrades by bearer tokens. Pure module.

Two kinds: a capability token, of which only a digest is kept, and a signed token, an HS256 JWT with an
expiry. Secrets are compared in constant time and appear in no `repr`. The texts of refusals are those that
the reference sends; they never reveal the right token.
"""

import hashlib
import hmac
import json
import re
from typing import Final, Protocol

import msgspec
import pybase64

from holdfast import decoding
from holdfast.errors import PeerRefused, StartupError

DEFAULT_SKEW_S: Final = 30.0
MIN_KEY_BYTES: Final = 32  # the output of SHA-256: a shorter key is the weakest part

_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_BAD_JWT: Final = "invalid websocket jwt"


class Authenticator(Protocol):
    """Decides from the Authorization header whether a peer may connect."""

    def check(self, authorization: str | None, now: float) -> None:
        """Return if the peer may connect.

        Raises:
            PeerRefused: it may not; the text is the body of the 401.
        """


class CapabilityToken:
    """Admits every peer that knows the token."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    @classmethod
    def from_text(cls, token: str) -> "CapabilityToken":
        return cls(hashlib.sha256(token.encode("utf-8")).digest())

    @classmethod
    def from_sha256(cls, digest: str) -> "CapabilityToken":
        """Raises StartupError if `digest` is not 64 hex digits."""
        if not _HEX_DIGEST.fullmatch(digest):
            raise StartupError("--ws-token-sha256 must be a 64-character hex SHA-256 digest")
        return cls(bytes.fromhex(digest))

    def check(self, authorization: str | None, now: float) -> None:
        token = _bearer(authorization)
        if not hmac.compare_digest(hashlib.sha256(token.encode("ascii")).digest(), self._digest):
            raise PeerRefused("invalid websocket bearer token")


class SignedToken:
    """Admits every holder of a token that is signed with the key, until it expires."""

    def __init__(
        self,
        key: bytes,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        skew_s: float = DEFAULT_SKEW_S,
    ) -> None:
        if len(key) < MIN_KEY_BYTES:
            raise StartupError(
                f"the secret in --ws-shared-secret-file must be at least {MIN_KEY_BYTES} bytes"
            )
        if not skew_s >= 0:
            raise StartupError("--ws-max-clock-skew-seconds must not be negative")
        self._key = key
        self._issuer = issuer
        self._audience = audience
        self._skew_s = skew_s

    def check(self, authorization: str | None, now: float) -> None:
        claims = self._verify(_bearer(authorization))
        if now > claims.exp + self._skew_s:
            raise PeerRefused("expired websocket jwt")
        if claims.nbf is not None and claims.nbf > now + self._skew_s:
            raise PeerRefused("websocket jwt is not valid yet")
        if self._issuer is not None and claims.iss != self._issuer:
            raise PeerRefused("websocket jwt issuer mismatch")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if self._audience is not None and self._audience not in audiences:
            raise PeerRefused("websocket jwt audience mismatch")

    def _verify(self, token: str) -> "_Claims":
        """Return the claims of a token with our signature; nothing else of it is parsed before the check."""
        signed, _, signature = token.rpartition(".")
        head, _, payload = signed.partition(".")
        expected = hmac.digest(self._key, signed.encode("ascii"), "sha256")
        if not hmac.compare_digest(_base64url(signature), expected):
            raise PeerRefused(_BAD_JWT)
        try:
            algorithm = decoding.convert(_json(_base64url(head)), _Head).alg
            claims = decoding.convert(_json(_base64url(payload)), _Claims)
        except (ValueError, RecursionError):
            raise PeerRefused(_BAD_JWT) from None
        # The bound also excludes values that are not finite.
        if algorithm != "HS256" or not all(abs(t) < 2**63 for t in (claims.exp, claims.nbf or 0)):
            raise PeerRefused(_BAD_JWT)
        return claims


class _Head(msgspec.Struct):
    alg: str


class _Claims(msgspec.Struct):
    exp: int | float
    nbf: int | float | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


def _bearer(authorization: str | None) -> str:
    if authorization is None:
        raise PeerRefused("missing websocket bearer token")
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise PeerRefused("invalid authorization header")
    return token


def _base64url(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise PeerRefused(_BAD_JWT)
    return pybase64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _json(data: bytes) -> object:
    parsed: object = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    return parsed


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse duplicate keys: two readers of a token must not see different claims."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return made


def load(
    mode: str | None,
    *,
    token_file_text: str | None = None,
    token_sha256: str | None = None,
    secret_bytes: bytes | None = None,
    issuer: str | None = None,
    audience: str | None = None,
    skew_s: float = DEFAULT_SKEW_S,
) -> Authenticator | None:
    """Create the authenticator that the flags describe; None if they request none.

    Raises:
        StartupError: the flags contradict each other or a secret is unusable; the text names the flag.
    """
    of_capability: dict[str, object] = {"--ws-token-file": token_file_text, "--ws-token-sha256": token_sha256}
    of_signed: dict[str, object] = {
        "--ws-shared-secret-file": secret_bytes,
        "--ws-issuer": issuer,
        "--ws-audience": audience,
        "--ws-max-clock-skew-seconds": None if skew_s == DEFAULT_SKEW_S else skew_s,
    }
    match mode:
        case None:
            _refuse(of_capability | of_signed, "--ws-auth capability-token or --ws-auth signed-bearer-token")
            return None
        case "capability-token":
            _refuse(of_signed, "--ws-auth signed-bearer-token")
            return _capability(token_file_text, token_sha256)
        case "signed-bearer-token":
            _refuse(of_capability, "--ws-auth capability-token")
            if secret_bytes is None:
                raise StartupError("--ws-auth signed-bearer-token requires --ws-shared-secret-file")
            return SignedToken(
                secret_bytes.strip(),
                issuer=issuer,
                audience=audience,
                skew_s=skew_s,
            )
    raise StartupError("--ws-auth must be capability-token or signed-bearer-token")


def _refuse(flags: dict[str, object], required: str) -> None:
    given = [flag for flag, value in flags.items() if value is not None]
    if given:
        raise StartupError(f"{given[0]} requires {required}")


def _capability(token_file_text: str | None, token_sha256: str | None) -> CapabilityToken:
    if token_file_text is not None and token_sha256 is not None:
        raise StartupError("--ws-token-file and --ws-token-sha256 are mutually exclusive")
    if token_sha256 is not None:
        return CapabilityToken.from_sha256(token_sha256.strip())
    if token_file_text is None:
        raise StartupError("--ws-auth capability-token requires --ws-token-file or --ws-token-sha256")
    token = token_file_text.strip()
    if not token:
        raise StartupError("the token in --ws-token-file must not be empty")
    return CapabilityToken.from_text(token)
