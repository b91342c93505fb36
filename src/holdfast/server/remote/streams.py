"""The streams on one connection to a relay: who may come in, what is whose. Pure module.

Feed it frames and the registry's verdicts, with the time; do what it returns, in order. A stream begins with
a handshake that we can read, exists once the registry has said that its caller may come in, and ends with a
reset. Ids of streams are chosen by others and come again, so streams and verdicts are told apart by numbers
of our own.

Whoever can write to the relay can make us work. So handshakes under way are bounded, and after MAX_FAILURES
that came to nothing no further one is looked at for PAUSE_S; streams that are open are not touched by that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from holdfast.errors import RemoteProtocolError
from holdfast.wire import relayframes
from holdfast.wire.noise import Channel, Handshake, KeyPair, Role, prologue
from holdfast.wire.registry import MAX_AUTHORIZATION_BYTES, PublicKey
from holdfast.wire.relayframes import Body, ReceiveWindow, RelayFrame

MAX_STREAMS: Final = 128
MAX_VALIDATIONS: Final = 32
MAX_FAILURES: Final = 8
PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Send:
    """Put this frame on the connection."""

    frame: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask the registry, and report by `settle` with this number."""

    attempt: int
    stream_id: str
    key: PublicKey = field(repr=False)
    authorization: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Open:
    """A stream exists, by this number."""

    stream: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message for a stream."""

    stream: int
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Close:
    """The other side of a stream is gone."""

    stream: int


Action: TypeAlias = Send | Validate | Open | Deliver | Close


class _Pending(NamedTuple):
    attempt: int
    handshake: Handshake


@dataclass(slots=True)
class _Stream:
    number: int
    stream_id: str
    channel: Channel
    window: ReceiveWindow = field(default_factory=ReceiveWindow)


class Streams:
    """Those of one connection, under one registration."""

    def __init__(self, identity: KeyPair, environment_id: str, registration_id: str) -> None:
        self._identity = identity
        self._place = (environment_id, registration_id)
        self._active: dict[str, _Stream] = {}
        self._by_number: dict[int, _Stream] = {}
        self._pending: dict[str, _Pending] = {}
        self._validating: set[int] = set()
        self._failures = 0
        self._paused_until = 0.0
        self._last = 0

    # --- what comes in

    def take(self, raw: bytes | None, now: float) -> list[Action]:
        """One message of the connection; what is no frame is dropped, whoever sent it."""
        if raw is None:
            return []
        try:
            frame = relayframes.decode(raw)
            body = relayframes.check(frame)
        except RemoteProtocolError:
            return []
        match body:
            case Body.HANDSHAKE:
                return self._greet(frame, now)
            case Body.DATA:
                return self._receive(frame, now)
            case Body.RESET:
                self._pending.pop(frame.stream_id, None)
                return self._drop(frame.stream_id)
            case _:
                return []  # claims, acknowledgements and heartbeats are the relay's business

    def _greet(self, frame: RelayFrame, now: float) -> list[Action]:
        """A handshake. The order is the specification."""
        id_ = frame.stream_id
        refusal = [Send(relayframes.reset(id_))]
        if id_ in self._active:
            return [*refusal]  # what is open stays open
        if self._pending.pop(id_, None) is not None:
            self._count_failure(now)
            return [*refusal]
        full = len(self._active) >= MAX_STREAMS or len(self._validating) >= MAX_VALIDATIONS
        if full or now < self._paused_until:
            return [*refusal]
        handshake = Handshake(Role.RESPONDER, self._identity, prologue(*self._place, id_))
        try:
            payload = handshake.read(frame.payload)
            if len(payload) > MAX_AUTHORIZATION_BYTES:
                raise RemoteProtocolError("an authorization is too long")
            authorization = payload.decode()
        except (RemoteProtocolError, UnicodeDecodeError):
            self._count_failure(now)
            return [*refusal]
        attempt = self._number()
        self._pending[id_] = _Pending(attempt, handshake)
        self._validating.add(attempt)
        return [Validate(attempt, id_, handshake.peer, authorization)]

    def _receive(self, frame: RelayFrame, now: float) -> list[Action]:
        id_ = frame.stream_id
        stream = self._active.get(id_)
        if stream is None:
            if self._pending.pop(id_, None) is not None:
                self._count_failure(now)
            return [Send(relayframes.reset(id_))]
        done: list[Action] = []
        try:
            for record in stream.window.push(frame.seq, frame.payload):
                done += [Deliver(stream.number, message) for message in stream.channel.open(record)]
        except RemoteProtocolError:
            return [*done, *self._drop(id_), Send(relayframes.reset(id_))]
        return done

    def settle(self, attempt: int, *, allowed: bool, now: float) -> list[Action]:
        """The registry's verdict; one about a handshake that was given up meanwhile changes nothing."""
        self._validating.discard(attempt)
        found = [(id_, one) for id_, one in self._pending.items() if one.attempt == attempt]
        if not found:
            return []
        ((id_, pending),) = found
        del self._pending[id_]
        refusal = Send(relayframes.reset(id_))
        if not allowed:
            self._count_failure(now)
            return [refusal]
        if len(self._active) >= MAX_STREAMS:
            return [refusal]
        try:
            answer = pending.handshake.write()
        except RemoteProtocolError:
            self._count_failure(now)
            return [refusal]
        stream = _Stream(self._number(), id_, pending.handshake.finish())
        self._active[id_] = self._by_number[stream.number] = stream
        return [Send(relayframes.handshake(id_, answer)), Open(stream.number)]

    # --- what goes out

    def seal(self, stream: int, message: bytes) -> Iterator[bytes]:
        """The frames of a message, each made when it is asked for.

        Raises:
            RemoteProtocolError: the stream has no numbers left.
        """
        found = self._by_number[stream]
        for seq, sealed in found.channel.seal(message):
            yield relayframes.data(found.stream_id, seq, sealed)

    def end(self, stream: int) -> list[Action]:
        """Our side of a stream is done; the other is told, unless it knows."""
        found = self._by_number.get(stream)
        if found is None:
            return []
        self._drop(found.stream_id)
        return [Send(relayframes.reset(found.stream_id))]

    def _drop(self, id_: str) -> list[Action]:
        stream = self._active.pop(id_, None)
        if stream is None:
            return []
        del self._by_number[stream.number]
        return [Close(stream.number)]

    def _count_failure(self, now: float) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._failures = 0
            self._paused_until = now + PAUSE_S

    def _number(self) -> int:
        self._last += 1
        return self._last
