"""The streams on one connection to a relay: admission, and the state of each stream. Pure module.

The caller passes in frames and the registry's verdicts, with the time, and carries out the returned actions
in order. A stream begins with a handshake that we can read, exists once the registry has admitted its client,
and ends with a reset. Ids of streams are chosen by others and may be reused, so streams and verdicts are
identified by numbers of our own.

Any peer that can write to the relay can cause work here. So the number of handshakes under way is bounded,
and after MAX_FAILURES failed ones no further handshake is processed for PAUSE_S. Open streams are not
affected.
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
UNREADABLE: Final = "its handshake cannot be read, or is for another key or registration"
FULL: Final = "as many streams as there may be are open, or about to be"
PAUSED: Final = f"{MAX_FAILURES} handshakes came to nothing: no other is looked at for {PAUSE_S:g} s"


@dataclass(frozen=True, slots=True)
class Send:
    """Send this frame on the connection.

    A `spare` one may be left out while the relay reads nothing: any peer that writes to the relay can cause
    an unlimited number of them.
    """

    frame: bytes = field(repr=False)
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask the registry, and report the verdict to `settle` with this number."""

    attempt: int
    stream_id: str
    key: PublicKey = field(repr=False)
    authorization: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Open:
    """A stream was opened, with this number."""

    stream: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver a message to a stream."""

    stream: int
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Close:
    """The other side of a stream is gone."""

    stream: int


@dataclass(frozen=True, slots=True)
class Note:
    """Log why a client was not admitted: fixed texts, each at most once in PAUSE_S."""

    reason: str


Action: TypeAlias = Send | Validate | Open | Deliver | Close | Note


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
    """The streams of one connection, under one registration."""

    def __init__(self, identity: KeyPair, environment_id: str, registration_id: str) -> None:
        self._identity = identity
        self._place = (environment_id, registration_id)
        self._active: dict[str, _Stream] = {}
        self._by_number: dict[int, _Stream] = {}
        self._pending: dict[str, _Pending] = {}
        self._validating: set[int] = set()
        self._gaps: dict[int, float] = {}
        self._failures = 0
        self._paused_until = 0.0
        self._noted: dict[str, float] = {}
        self._last = 0

    # --- what comes in

    def take(self, raw: bytes | None, now: float) -> list[Action]:
        """Take one message of the connection; an invalid frame is dropped."""
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
                return []  # claims, acknowledgements and heartbeats are handled by the relay

    def _greet(self, frame: RelayFrame, now: float) -> list[Action]:
        """Process a handshake. The order is the specification."""
        id_ = frame.stream_id
        refusal = [_reset(id_)]
        if id_ in self._active:
            return [*refusal]  # an open stream stays open
        if self._pending.pop(id_, None) is not None:
            return [*self._count_failure(now), *refusal]
        if len(self._active) >= MAX_STREAMS or len(self._validating) >= MAX_VALIDATIONS:
            return [*self._note(FULL, now), *refusal]
        if now < self._paused_until:
            return [*refusal]
        handshake = Handshake(Role.RESPONDER, self._identity, prologue(*self._place, id_))
        try:
            payload = handshake.read(frame.payload)
            if len(payload) > MAX_AUTHORIZATION_BYTES:
                raise RemoteProtocolError("an authorization is too long")
            authorization = payload.decode()
        except (RemoteProtocolError, UnicodeDecodeError):
            return [*self._note(UNREADABLE, now), *self._count_failure(now), *refusal]
        attempt = self._number()
        self._pending[id_] = _Pending(attempt, handshake)
        self._validating.add(attempt)
        return [Validate(attempt, id_, handshake.peer, authorization)]

    def _receive(self, frame: RelayFrame, now: float) -> list[Action]:
        id_ = frame.stream_id
        stream = self._active.get(id_)
        if stream is None:
            early = self._pending.pop(id_, None) is not None
            return [*(self._count_failure(now) if early else ()), _reset(id_)]
        done: list[Action] = []
        try:
            for record in stream.window.push(frame.seq, frame.payload, now):
                done += [Deliver(stream.number, message) for message in stream.channel.open(record)]
        except RemoteProtocolError:
            return [*done, *self._drop(id_), _reset(id_)]
        if stream.window.gap_ends is not None:
            self._gaps[stream.number] = stream.window.gap_ends
        elif self._gaps:
            self._gaps.pop(stream.number, None)
        return done

    @property
    def gap_ends(self) -> float | None:
        """When to call `check`, if a record is missing anywhere."""
        return min(self._gaps.values(), default=None)

    def check(self, now: float) -> list[Action]:
        """End the streams whose missing record has not come."""
        done: list[Action] = []
        for number in [number for number, ends in self._gaps.items() if now >= ends]:
            id_ = self._by_number[number].stream_id
            done += [*self._drop(id_), _reset(id_)]
        return done

    def settle(self, attempt: int, *, allowed: bool, now: float) -> list[Action]:
        """Take the registry's verdict; one about a handshake that has ended changes nothing."""
        self._validating.discard(attempt)
        found = [(id_, one) for id_, one in self._pending.items() if one.attempt == attempt]
        if not found:
            return []
        ((id_, pending),) = found
        del self._pending[id_]
        refusal = _reset(id_)
        if not allowed:
            return [*self._count_failure(now), refusal]
        if len(self._active) >= MAX_STREAMS:
            return [*self._note(FULL, now), refusal]
        try:
            answer = pending.handshake.write()
        except RemoteProtocolError:
            return [*self._count_failure(now), refusal]
        stream = _Stream(self._number(), id_, pending.handshake.finish())
        self._active[id_] = self._by_number[stream.number] = stream
        return [Send(relayframes.handshake(id_, answer)), Open(stream.number)]

    # --- what goes out

    def seal(self, stream: int, message: bytes) -> Iterator[bytes]:
        """Yield the frames of a message, each created on demand.

        Raises:
            RemoteProtocolError: the stream's sequence numbers are used up.
        """
        found = self._by_number[stream]
        for seq, sealed in found.channel.seal(message):
            yield relayframes.data(found.stream_id, seq, sealed)

    def end(self, stream: int) -> list[Action]:
        """End a stream from our side; return the reset for the other side, unless it has ended already."""
        found = self._by_number.get(stream)
        if found is None:
            return []
        self._drop(found.stream_id)
        return [_reset(found.stream_id)]

    def _drop(self, id_: str) -> list[Action]:
        stream = self._active.pop(id_, None)
        if stream is None:
            return []
        del self._by_number[stream.number]
        self._gaps.pop(stream.number, None)
        return [Close(stream.number)]

    def _count_failure(self, now: float) -> list[Action]:
        self._failures += 1
        if self._failures < MAX_FAILURES:
            return []
        self._failures = 0
        self._paused_until = now + PAUSE_S
        return self._note(PAUSED, now)

    def _note(self, reason: str, now: float) -> list[Action]:
        if now < self._noted.get(reason, now):
            return []
        self._noted[reason] = now + PAUSE_S
        return [Note(reason)]

    def _number(self) -> int:
        self._last += 1
        return self._last


def _reset(id_: str) -> Send:
    return Send(relayframes.reset(id_), spare=True)
