"""Which executors a host admits, and for which environment: signed requests, each accepted once. Pure module.

    POST /cloud/environment/ID/direct/register       registration; the answer says where to dial
    GET  /direct/environment/ID/REGISTRATION         the WebSocket on which the executor serves us

The statuses follow the reference. Its executor ends after a registration that was refused, whatever the
status, and after an upgrade that was refused with 4xx, with three exceptions: after 409 it registers again,
after 408 and 429 it dials again, as it does after 5xx.
"""

import fnmatch
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import PeerRefused, UsageError
from holdfast.wire.registry import DIRECT, DirectRegisterAnswer
from holdfast.wire.sigv4 import AwsKeys, HttpRequest, Replays, Scope, verify

MAX_BODY_BYTES: Final = 1024  # of a registration: it has one member
MAX_ENVIRONMENTS: Final = 10_000  # at one host; each costs some hundred bytes

_REGISTER: Final = re.compile(r"/cloud/environment/([A-Za-z0-9._~-]{1,128})/direct/register")
_DIAL: Final = re.compile(r"/direct/environment/([A-Za-z0-9._~-]{1,128})/([0-9a-f]{32})")


class ExecutorKey(NamedTuple):
    """A key that executors sign with, and the environments that they may serve: names with `*` and `?`."""

    key_id: str
    secret: str
    environments: tuple[str, ...] = ("*",)
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"<ExecutorKey {', '.join(self.environments)}>"


class Asked(NamedTuple):
    """A request: a registration if `registration` is None, otherwise the upgrade of one."""

    environment: str
    registration: str | None


class HostRefusal(NamedTuple):
    """A refusal. `reason` is for the log; only the code is sent to the peer."""

    status: int
    code: str
    reason: str

    def encode(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": "the host does not allow this"}})


NO_ROUTE: Final = HostRefusal(404, "route_unavailable", "there is nothing at this address")
NO_REQUEST: Final = HostRefusal(400, "bad_request", "the request makes no sense")
UNKNOWN: Final = HostRefusal(409, "unknown_registration", "the registration is not known, or not any more")
SUPERSEDED: Final = HostRefusal(503, "route_unavailable", "another executor serves this environment")
FULL: Final = HostRefusal(503, "route_unavailable", "there are too many environments")


def parse(request: HttpRequest) -> Asked | None:
    """Parse what is requested; None for an unknown path."""
    path, question, _ = request.target.partition("?")
    if question:
        return None
    if request.method == "POST" and (found := _REGISTER.fullmatch(path)):
        return Asked(found[1], None)
    if request.method == "GET" and (found := _DIAL.fullmatch(path)):
        return Asked(found[1], found[2])
    return None


def answer(environment: str, request: HttpRequest, scheme: str, registration: str) -> bytes:
    """The answer to a registration: dial at the same `Host`, which the executor has signed."""
    place = next(value for name, value in request.headers if name == "host")
    url = f"{scheme}://{place}/direct/environment/{environment}/{registration}"
    return msgspec.json.encode(DirectRegisterAnswer(environment, url, DIRECT, registration))


class Gate:
    """The keys of one host, and the signatures that were used."""

    def __init__(self, keys: Iterable[ExecutorKey], scope: Scope) -> None:
        """Raises: UsageError: there is no valid key."""
        self._keys = {key.key_id: key for key in keys}
        self._scope = scope
        self._replays = Replays()
        if not self._keys or not all(key.key_id and key.secret for key in self._keys.values()):
            raise UsageError("a host needs a key, with an id and a secret, that its executors sign with")

    def judge(self, request: HttpRequest, asked: Asked, now: float) -> HostRefusal | None:
        """Return why this request is refused; None: it is signed by a key that may make it."""
        try:
            signed = verify(request, self._find, self._scope, now)
        except PeerRefused as exc:
            return HostRefusal(403, "forbidden", str(exc))
        patterns = self._keys[signed.key_id].environments
        if not any(fnmatch.fnmatchcase(asked.environment, pattern) for pattern in patterns):
            return HostRefusal(403, "forbidden", "the key is not for this environment")
        try:
            self._replays.note(signed.signature, now)
        except PeerRefused as exc:  # or two honest ones within a second, whose signatures are equal
            return HostRefusal(429, "rate_limited", str(exc))
        return None

    def _find(self, key_id: str) -> AwsKeys | None:
        key = self._keys.get(key_id)
        return None if key is None else AwsKeys(key.key_id, key.secret, key.session_token)
