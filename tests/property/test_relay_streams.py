"""Streams of an executor under whatever a relay sends and a registry says, in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.server.remote import streams as module
from holdfast.server.remote.streams import Action, Close, Deliver, Open, Send, Streams, Validate
from holdfast.wire import relayframes
from holdfast.wire.noise import Channel, Handshake, KeyPair, Role, prologue

EXECUTOR, CLIENT = KeyPair.from_seed(bytes(32)), KeyPair.from_seed(bytes(31) + b"\1")
names = st.sampled_from(["a", "b", "c"])


class StreamsMachine(RuleBasedStateMachine):
    """What was said by a client is delivered in order, once, and only to the stream that it opened."""

    @initialize()
    def begin(self) -> None:
        self.streams = Streams(EXECUTOR, "env", "reg")
        self.now = 0.0
        self.asked: list[tuple[Validate, Handshake]] = []
        self.clients: dict[int, tuple[str, Channel, list[bytes]]] = {}  # open ones, with what is to be heard
        self.closed: set[int] = set()
        self.calling: dict[str, Handshake] = {}

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Validate():
                    self.asked.append((action, self.calling[action.stream_id]))
                case Deliver(stream, message):
                    assert self.clients[stream][2].pop(0) == message
                case Close(stream):
                    self.clients.pop(stream)
                    self.closed.add(stream)
                case Send() | Open():
                    pass

    @rule(stream=names, good=st.booleans())
    def greet(self, stream: str, good: bool) -> None:
        peer = EXECUTOR if good else CLIENT
        calling = Handshake(Role.INITIATOR, CLIENT, prologue("env", "reg", stream), peer=peer.public)
        self.calling[stream] = calling
        self.do(self.streams.take(relayframes.handshake(stream, calling.write(b"x")), self.now))

    @rule(data=st.data(), allowed=st.booleans())
    def settle(self, data: st.DataObject, allowed: bool) -> None:
        if not self.asked:
            return
        asked, calling = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        done = self.streams.settle(asked.attempt, allowed=allowed, now=self.now)
        opened = [action.stream for action in done if isinstance(action, Open)]
        assert len(opened) <= allowed
        for number in opened:
            assert number not in self.clients.keys() | self.closed
            answer = done[0]
            assert isinstance(answer, Send)
            calling.read(relayframes.decode(answer.frame).payload)
            self.clients[number] = (asked.stream_id, calling.finish(), [])

    @rule(data=st.data(), message=st.binary(min_size=1, max_size=30), copies=st.integers(1, 2))
    def say(self, data: st.DataObject, message: bytes, copies: int) -> None:
        if not self.clients:
            return
        number = data.draw(st.sampled_from(sorted(self.clients)))
        stream, channel, due = self.clients[number]
        due.append(message)
        for seq, sealed in channel.seal(message):
            for _ in range(copies):
                self.do(self.streams.take(relayframes.data(stream, seq, sealed), self.now))
        assert due == []

    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        if self.clients:
            number = data.draw(st.sampled_from(sorted(self.clients)))
            (frame,) = self.streams.seal(number, b"hello")
            stream, channel, _ = self.clients[number]
            assert relayframes.decode(frame).stream_id == stream
            assert channel.open(relayframes.decode(frame).payload) == [b"hello"]

    @rule(stream=names, seq=st.integers(0, 200), payload=st.binary(max_size=40))
    def make_up_a_record(self, stream: str, seq: int, payload: bytes) -> None:
        self.do(self.streams.take(relayframes.data(stream, seq, payload), self.now))
        # A record that nobody sent may wait for its turn; whoever sends the real one is refused then.
        for number in [n for n, (name, *_) in self.clients.items() if name == stream]:
            self.do(self.streams.take(relayframes.reset(stream), self.now))
            assert number in self.closed

    @rule(stream=names)
    def reset(self, stream: str) -> None:
        self.do(self.streams.take(relayframes.reset(stream), self.now))
        assert stream not in [name for name, *_ in self.clients.values()]

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.clients:
            number = data.draw(st.sampled_from(sorted(self.clients)))
            assert len(self.streams.end(number)) == 1
            self.clients.pop(number)
            self.closed.add(number)

    @rule(junk=st.none() | st.binary(max_size=60), wait=st.floats(0, 20))
    def send_junk(self, junk: bytes | None, wait: float) -> None:
        self.now += wait
        self.streams.take(junk, self.now)

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "streams"):
            assert len(self.streams._active) == len(self.clients) <= module.MAX_STREAMS
            assert set(self.streams._by_number) == set(self.clients)
            assert len(self.streams._pending) <= len(self.streams._validating) <= module.MAX_VALIDATIONS


TestStreams = StreamsMachine.TestCase
