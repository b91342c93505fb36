"""Requests to the registry and its refusals, on top of the messages of `wire.registry`. Pure module.

Ids of environments consist of unreserved characters, because the reference puts them into the path unescaped
and expects the same ones in the answer.
"""

import hashlib
import re
from typing import Final, NamedTuple, TypeVar

import msgspec

from holdfast import decoding
from holdfast.errors import RemoteProtocolError
from holdfast.wire.registry import AUTHENTICATION_DOWN, OFFLINE, PublicKey

T = TypeVar("T")

PREFIX: Final = "/cloud/environment/"
OPERATIONS: Final = ("register", "connect", "validate")
MAX_BODY_BYTES: Final = 16 * 1024  # the largest, of validate: a key of 1.7 KB and an authorization of 4 KB
ENVIRONMENT: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")


class Asked(NamedTuple):
    """An operation and its environment."""

    operation: str
    environment: str


class RegistryRefusal(NamedTuple):
    """A refusal and its reason; the text repeats nothing of the request."""

    status: int
    code: str
    message: str

    def encode(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})


BAD_REQUEST: Final = RegistryRefusal(400, "bad_request", "the body is not the message that belongs here")
UNAUTHORIZED: Final = RegistryRefusal(401, "unauthorized", "a valid bearer token is required")
FORBIDDEN: Final = RegistryRefusal(403, "forbidden", "the token does not allow this")
FULL: Final = RegistryRefusal(409, "registration_conflict", "the tenant has as many environments as it may")
NO_ROUTE: Final = RegistryRefusal(404, "route_unavailable", "there is nothing here")
TOO_LARGE: Final = RegistryRefusal(413, "bad_request", "the body is too large")
NO_LENGTH: Final = RegistryRefusal(411, "bad_request", "the length of the body must be given")
IS_OFFLINE: Final = RegistryRefusal(409, OFFLINE, "no executor of this environment is connected")
TOO_OFTEN: Final = RegistryRefusal(429, "rate_limited", "too many requests; try again later")
STORE_DOWN: Final = RegistryRefusal(
    503, "store_unavailable", "the relay's store does not answer; try again later"
)
INTERNAL: Final = RegistryRefusal(500, "internal", "the relay failed; its log says more")
# The only refusal that makes an executor register again later; every other one ends it.
REGISTER_LATER: Final = RegistryRefusal(
    502, AUTHENTICATION_DOWN, "registration is not possible now; try again later"
)


def parse_path(path: str) -> Asked | None:
    """The operation that a path names; None for any other path."""
    if not path.startswith(PREFIX):
        return None
    environment, _, operation = path.removeprefix(PREFIX).rpartition("/")
    if operation not in OPERATIONS or not ENVIRONMENT.fullmatch(environment):
        return None
    return Asked(operation, environment)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a request.

    Raises:
        RemoteProtocolError: the body is not such a request.
    """
    try:
        return decoding.decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RemoteProtocolError(BAD_REQUEST.message) from None


def digest_of_key(key: PublicKey) -> str:
    """The digest that represents a key in the store."""
    return hashlib.sha256(b"".join((key.suite.encode(), b"\0", key.x25519, key.mlkem768))).hexdigest()


def later(refusal: RegistryRefusal, operation: str) -> RegistryRefusal:
    """The same refusal, in the form that makes the requester of this operation try again if that helps."""
    again = refusal.status in (429, 503)
    return REGISTER_LATER if again and operation == "register" else refusal
