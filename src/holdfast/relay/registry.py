"""The registry: requests over HTTP, answered from the store.

Every request carries a token, and acts for the token's tenant. A refusal has a code as its reason, and
repeats nothing of the request. If the store does not answer, a registering executor gets the only answer that
makes it try again later.
"""

import logging
import time
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError, PeerRefused, RemoteProtocolError
from holdfast.relay import store as verbs
from holdfast.relay.audit import record
from holdfast.relay.rules import access, messages, signedurl
from holdfast.relay.rules.access import Role, Token
from holdfast.relay.rules.messages import Asked, RegistryRefusal
from holdfast.relay.rules.ratelimit import Rate, RateLimit
from holdfast.relay.rules.signedurl import Claim
from holdfast.relay.store import RelayStore
from holdfast.wire import registry as wire

log = logging.getLogger(__name__)

# An executor registers once, and again after a 4xx at its address.
REGISTERING: Final = Rate(per_s=0.5, burst=10)  # of one environment
# A harness sends a request for each connection; an executor for each handshake.
ASKING: Final = Rate(per_s=100.0, burst=500)  # of one token
GUESSING: Final = Rate(per_s=0.5, burst=20)  # wrong tokens, of one address

MOST_KNOWN: Final = 10_000  # some 2 MB

_ROLES: Final = {"register": Role.EXECUTOR, "validate": Role.EXECUTOR, "connect": Role.HARNESS}


class Limits(NamedTuple):
    registering: Rate = REGISTERING
    asking: Rate = ASKING
    guessing: Rate = GUESSING


class Answered(NamedTuple):
    body: bytes


class Registry:
    """The registry of one node; `public_url` is where executors dial, whichever node that leads to."""

    def __init__(self, store: RelayStore, key: bytes, public_url: str, limits: Limits) -> None:
        self._store = store
        self._key = key
        self._public_url = public_url
        self._registering = RateLimit(limits.registering)
        self._asking = RateLimit(limits.asking)
        self._guessing = RateLimit(limits.guessing)
        self._known: set[str] = (
            set()
        )  # digests that were valid: a guesser at the same address cannot lock them out

    async def answer(
        self, asked: Asked, authorization: str | None, peer: str, body: bytes
    ) -> Answered | RegistryRefusal:
        """Answer one request; raises nothing."""
        try:
            return await self._answer(asked, authorization, peer, body)
        except PeerRefused:
            self._guessing.take(peer, time.monotonic())
            record("token.refused", peer=peer, environment=asked.environment)
            return messages.UNAUTHORIZED
        except RemoteProtocolError:
            return messages.BAD_REQUEST
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": str(exc)})
            return messages.later(messages.STORE_DOWN, asked.operation)
        except Exception:
            log.exception("a request failed")
            return messages.INTERNAL

    async def _answer(
        self, asked: Asked, authorization: str | None, peer: str, body: bytes
    ) -> Answered | RegistryRefusal:
        now, text = time.monotonic(), access.bearer(authorization)
        digest = access.digest_of(text)
        if digest not in self._known and not self._guessing.has(peer, now):
            return messages.later(messages.TOO_OFTEN, asked.operation)
        try:
            token = access.check(text, *await self._store.read(verbs.find_token, digest))
        except PeerRefused:
            self._known.discard(digest)  # revoked or expired: now limited like any wrong token
            raise
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(digest)
        if not access.allows(token, _ROLES[asked.operation], asked.environment):
            asks = self._asking.take(token.id, now)
            return messages.FORBIDDEN if asks else messages.later(messages.TOO_OFTEN, asked.operation)
        limit, who = self._asking, token.id
        if asked.operation == "register":
            limit, who = self._registering, f"{token.tenant} {asked.environment}"
        if not limit.take(who, now):
            return messages.later(messages.TOO_OFTEN, asked.operation)
        match asked.operation:
            case "register":
                return await self._register(token, asked.environment, body)
            case "connect":
                return await self._connect(token, asked.environment, body)
            case _:
                return await self._validate(token, asked.environment, body)

    async def _register(self, token: Token, environment: str, body: bytes) -> Answered | RegistryRefusal:
        request = messages.decode(body, wire.RegisterRequest)
        key = request.executor_public_key
        registration = await self._store.write(
            verbs.register, token, environment, key, messages.digest_of_key(key)
        )
        if registration is None:
            return messages.FULL
        _record("executor.registered", token, environment, registration)
        expires = int(time.time()) + signedurl.EXECUTOR_S
        claim = Claim(environment, signedurl.EXECUTOR_ROLE, token.tenant, registration, expires)
        url = self._public_url + signedurl.sign(claim, self._key)
        return _encode(wire.RegisterAnswer(environment, url, wire.PROFILE, registration))

    async def _connect(self, token: Token, environment: str, body: bytes) -> Answered | RegistryRefusal:
        key = messages.decode(body, wire.ConnectRequest).harness_public_key
        made = await self._store.write(verbs.authorize, token, environment, messages.digest_of_key(key))
        if made is None:
            return messages.IS_OFFLINE
        online, id_, text, expires_ms = made
        _record("harness.authorized", token, environment, online.registration)
        claim = Claim(
            environment,
            signedurl.HARNESS_ROLE,
            token.tenant,
            online.registration,
            expires_ms // 1000,
            id_,
        )
        url = online.node_url + signedurl.sign(claim, self._key)
        return _encode(
            wire.ConnectAnswer(environment, url, wire.PROFILE, online.registration, online.public_key, text)
        )

    async def _validate(self, token: Token, environment: str, body: bytes) -> Answered:
        request = messages.decode(body, wire.ValidateRequest)
        valid = await self._store.write(
            verbs.use,
            token,
            environment,
            request.executor_registration_id,
            messages.digest_of_key(request.harness_public_key),
            request.harness_key_authorization,
        )
        event = "harness.validated" if valid else "harness.rejected"
        record(event, tenant=token.tenant, environment=environment, token_id=token.id)
        return _encode(wire.ValidateAnswer(valid))


def _record(event: str, token: Token, environment: str, registration: str) -> None:
    record(event, tenant=token.tenant, environment=environment, token_id=token.id, registration=registration)


def _encode(answer: msgspec.Struct) -> Answered:
    return Answered(msgspec.json.encode(answer))
