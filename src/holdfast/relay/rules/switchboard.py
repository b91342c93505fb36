"""Route frames to sockets. Pure module.

An executor has one socket and many streams; a harness has one socket and one stream, which its first frame,
`resume`, claims. A harness may not send for any other stream, and no two may have the same one. Frames are
passed on unchanged. A frame for a stream without a harness has no recipient.

A slow reader must not block others. Reading from an executor stops only while every one of its harnesses is
behind, because then no other one is blocked. A harness that is behind alone is cut off by the edge when it is
too far behind.
"""

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from holdfast.errors import RemoteProtocolError
from holdfast.wire import relayframes
from holdfast.wire.relayframes import Body

S = TypeVar("S")

MOST_HARNESSES: Final = 256  # sockets of one executor, which itself accepts 128 streams
GONE: Final = "peer_gone"  # the reason of a reset after the harness has left


class Held(NamedTuple):
    """The identity of an executor's socket: its registration, its token, and the number of the socket."""

    tenant: str
    environment: str
    registration: str
    token_id: str
    epoch: int


class ExecutorSocket(Generic[S]):
    """`behind`: it does not read fast enough, so its harnesses are not read from."""

    __slots__ = ("behind", "harnesses", "held", "socket", "streams")

    def __init__(self, held: Held, socket: S) -> None:
        self.held = held
        self.socket = socket
        self.streams: dict[str, HarnessSocket[S]] = {}
        self.harnesses: set[HarnessSocket[S]] = set()
        self.behind = False

    @property
    def readable(self) -> bool:
        """Whether at least one harness could take its frames, or there is none."""
        return not self.harnesses or not all(one.behind for one in self.harnesses)


class HarnessSocket(Generic[S]):
    __slots__ = ("behind", "executor", "socket", "stream_id", "token_id")

    def __init__(self, executor: ExecutorSocket[S], token_id: str, socket: S) -> None:
        self.executor = executor
        self.token_id = token_id
        self.socket = socket
        self.stream_id: str | None = None
        self.behind = False


class Switchboard(Generic[S]):
    def __init__(self) -> None:
        self._executors: dict[tuple[str, str], ExecutorSocket[S]] = {}

    # --- who is there

    def add_executor(self, held: Held, socket: S) -> tuple[ExecutorSocket[S], ExecutorSocket[S] | None]:
        """Register the newest socket of an environment; the returned previous one must be closed."""
        place = held.tenant, held.environment
        before = self._executors.get(place)
        made = self._executors[place] = ExecutorSocket(held, socket)
        return made, before

    def has_newer(self, held: Held) -> bool:
        """Whether a later socket of this environment is here: the store's answers may overtake each other."""
        executor = self._executors.get((held.tenant, held.environment))
        return executor is not None and executor.held.epoch > held.epoch

    def remove_executor(self, executor: ExecutorSocket[S]) -> list[S]:
        """Remove an executor that is gone; the returned sockets of harnesses must be closed."""
        place = executor.held.tenant, executor.held.environment
        if self._executors.get(place) is executor:
            del self._executors[place]
        left = [harness.socket for harness in executor.harnesses]
        executor.harnesses.clear()
        executor.streams.clear()
        return left

    def holds(self, tenant: str, environment: str, registration: str) -> bool:
        """Whether the executor of this registration is here."""
        executor = self._executors.get((tenant, environment))
        return executor is not None and executor.held.registration == registration

    def add_harness(
        self, tenant: str, environment: str, registration: str, token_id: str, socket: S
    ) -> HarnessSocket[S] | None:
        """Add a harness for this registration; None: its executor is not here, or has too many."""
        executor = self._executors.get((tenant, environment))
        if executor is None or not self.holds(tenant, environment, registration):
            return None
        if len(executor.harnesses) >= MOST_HARNESSES:
            return None
        harness = HarnessSocket(executor, token_id, socket)
        executor.harnesses.add(harness)
        return harness

    def remove_harness(self, harness: HarnessSocket[S]) -> bytes | None:
        """Remove a harness that is gone; return the frame that resets its stream at the executor, if any."""
        executor = harness.executor
        if harness not in executor.harnesses:
            return None
        executor.harnesses.discard(harness)
        if harness.stream_id is None:
            return None
        executor.streams.pop(harness.stream_id, None)
        return relayframes.reset(harness.stream_id, GONE)

    def opened_by(self, token_id: str) -> Iterator[S]:
        """Yield the sockets that were opened with a token."""
        for executor in self._executors.values():
            if executor.held.token_id == token_id:
                yield executor.socket
            yield from (one.socket for one in executor.harnesses if one.token_id == token_id)

    def held_until(self, tenant: str, environment: str, epoch: int) -> S | None:
        """The socket of an environment, unless it was opened after this epoch."""
        executor = self._executors.get((tenant, environment))
        return None if executor is None or executor.held.epoch > epoch else executor.socket

    def executors(self) -> list[ExecutorSocket[S]]:
        return list(self._executors.values())

    # --- frames

    def from_harness(self, harness: HarnessSocket[S], raw: bytes) -> S:
        """Return the socket to which a frame of a harness goes.

        Raises:
            RemoteProtocolError: it is not a frame, or belongs to another stream.
        """
        stream_id, body = relayframes.peek(raw)
        if harness.stream_id is None:
            self._claim(harness, stream_id, body)
        elif stream_id != harness.stream_id:
            raise RemoteProtocolError("a harness has one stream")
        return harness.executor.socket

    def _claim(self, harness: HarnessSocket[S], stream_id: str, body: Body | None) -> None:
        if body is not Body.RESUME:
            raise RemoteProtocolError("the first frame of a harness claims its stream")
        if stream_id in harness.executor.streams:
            raise RemoteProtocolError("the stream belongs to another connection")
        harness.stream_id = stream_id
        harness.executor.streams[stream_id] = harness

    def from_executor(self, executor: ExecutorSocket[S], raw: bytes) -> S | None:
        """Return the socket to which a frame of an executor goes; None: no harness has that stream.

        Raises:
            RemoteProtocolError: it is not a frame.
        """
        harness = executor.streams.get(relayframes.peek(raw)[0])
        return None if harness is None else harness.socket
