"""Streams on a connection that takes only so much: turns, flow, and ends that come in between."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from holdfast.errors import ConnectionLost, HoldfastError
from holdfast.rendezvous.relaysocket import RelaySocket
from holdfast.server.remote import relayedge
from holdfast.server.remote.relayedge import (
    MAX_KEPT,
    WRITE_HIGH_BYTES,
    Port,
    RelayEdge,
)
from holdfast.server.remote.streams import Action, Close, Deliver, Note, Open, Send, Streams, Validate
from holdfast.wire import relayframes
from holdfast.wire.noise import SEED_BYTES, KeyPair
from tests.support.patience import patient

LIMIT_S = patient(10.0)


class Socket:
    """Takes `room` frames, then says so."""

    def __init__(self, edge: RelayEdge, room: int = 10**9) -> None:
        self.sent: list[bytes] = []
        self._edge = edge
        self.room = room
        self.unsent = 0
        self.aborted: HoldfastError | None = None

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)
        self.room -= 1
        if self.room <= 0:
            self._edge.on_writable(False)

    def abort(self, error: HoldfastError) -> None:
        self.aborted = error

    def make_room(self, room: int) -> None:
        self.room = room
        self._edge.on_writable(True)


class Scripted:
    """Streams that do what a test says; a message is one frame for each of its letters."""

    def __init__(self) -> None:
        self.next: list[Action] = []
        self.ended: list[int] = []
        self.gap_ends: float | None = None

    def check(self, now: float) -> list[Action]:
        if self.gap_ends is None or now < self.gap_ends:
            return []
        self.gap_ends = None
        return [Close(1), Send(b"reset 1")]

    def take(self, _raw: bytes | None, _now: float) -> list[Action]:
        return self.next

    def settle(self, attempt: int, *, allowed: bool, now: float) -> list[Action]:
        return [Send(b"settled %d %d" % (attempt, allowed))]

    def seal(self, stream: int, message: bytes) -> Iterator[bytes]:
        for at in range(min(len(message), 4)):
            yield b"%d:%c" % (stream, message[at])

    def end(self, stream: int) -> list[Action]:
        self.ended.append(stream)
        return [Send(b"reset %d" % stream)]


class End:
    def __init__(self, port: Port) -> None:
        self.port = port
        self.heard: list[bytes] = []
        self.told: list[str] = []

    def receive(self, message: bytes) -> None:
        self.heard.append(message)

    def on_writing_paused(self) -> None:
        self.told.append("wait")

    def on_writing_resumed(self) -> None:
        self.told.append("go on")

    def close(self) -> None:
        self.told.append("closed")


class Scene:
    def __init__(self) -> None:
        self.streams = Scripted()
        self.ends: list[End] = []
        self.verdicts: list[object] = []
        self.edge = RelayEdge(cast(Streams, self.streams), validate=self._validate, lead=self._lead)
        self.socket = Socket(self.edge)
        self.edge.on_open(cast(RelaySocket, self.socket))

    def _lead(self, port: Port) -> End:
        self.ends.append(End(port))
        return self.ends[-1]

    async def _validate(self, asked: Validate) -> bool:
        verdict = self.verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return bool(verdict)

    def happen(self, *actions: Action) -> None:
        self.streams.next = list(actions)
        self.edge.on_frame(b"")


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    scene.happen(Open(1), Open(2))
    return scene


async def test_streams_take_turns_by_records(scene: Scene) -> None:
    scene.socket.make_room(1)
    one, two = scene.ends
    one.port.send(b"abcd")
    two.port.send(b"xy")
    one.port.send(b"e")
    assert scene.socket.sent == [b"1:a"]
    scene.socket.make_room(100)
    assert scene.socket.sent[1:] == [b"1:b", b"2:x", b"1:c", b"2:y", b"1:d", b"1:e"]


async def test_a_stream_that_is_ahead_of_the_connection_waits_and_no_other_does(scene: Scene) -> None:
    scene.socket.make_room(1)
    one, two = scene.ends
    two.port.send(b"x")
    one.port.send(bytes(WRITE_HIGH_BYTES))
    one.port.send(b"more")
    assert (one.told, two.told) == (["wait"], [])
    scene.socket.make_room(100)
    assert one.told == ["wait", "go on"]


async def test_an_end_that_is_done_is_reset_after_its_last_record(scene: Scene) -> None:
    scene.socket.make_room(1)
    one, two = scene.ends
    one.port.send(b"abc")
    one.port.finish()
    two.port.finish()
    assert scene.streams.ended == [2]
    scene.socket.make_room(100)
    assert scene.socket.sent == [b"1:a", b"reset 2", b"1:b", b"1:c", b"reset 1"]
    assert one.told == []


async def test_what_an_end_does_not_take_is_kept_for_it_up_to_a_bound(scene: Scene) -> None:
    one, two = scene.ends
    one.port.pause_reading()
    scene.happen(*(Deliver(1, b"%d" % number) for number in range(MAX_KEPT)))
    scene.happen(Deliver(2, b"beside"))
    assert (one.heard, two.heard) == ([], [b"beside"])
    one.port.resume_reading()
    assert one.heard == [b"%d" % number for number in range(MAX_KEPT)]
    one.port.pause_reading()
    scene.happen(*(Deliver(1, b"x") for _ in range(MAX_KEPT + 1)))
    assert (one.told, scene.streams.ended) == (["closed"], [1])
    scene.happen(Deliver(1, b"late"))  # nobody is there any more
    assert len(one.heard) == MAX_KEPT


async def test_a_stream_that_is_closed_sends_nothing_more(scene: Scene) -> None:
    one, _ = scene.ends
    scene.happen(Close(1))
    assert one.told == ["closed"]
    one.port.send(b"abc")
    one.port.abort()
    assert scene.socket.sent == []


async def test_a_stream_whose_record_stays_missing_is_closed_when_it_is_time(scene: Scene) -> None:
    scene.streams.gap_ends = asyncio.get_running_loop().time()
    scene.happen()
    async with asyncio.timeout(LIMIT_S):
        while not scene.socket.sent:
            await asyncio.sleep(0)
    one, two = scene.ends
    assert (one.told, two.told, scene.socket.sent) == (["closed"], [], [b"reset 1"])


async def test_what_is_to_be_noted_is_a_warning(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.happen(Note("why"))
    (told,) = caplog.records
    assert (told.levelname, told.message, vars(told)["reason"]) == (
        "WARNING",
        "a client was not let in",
        "why",
    )


async def test_everything_ends_with_the_connection(scene: Scene) -> None:
    scene.edge.on_end(ConnectionLost("gone"))
    assert [end.told for end in scene.ends] == [["closed"], ["closed"]]
    assert str(await scene.edge.ended) == "gone"
    scene.ends[0].port.send(b"abc")
    assert scene.socket.sent == []


@pytest.mark.parametrize(("verdict", "allowed"), [(True, 1), (False, 0), (OSError("crash"), 0)])
async def test_anything_but_a_yes_is_a_no(scene: Scene, verdict: object, allowed: int) -> None:
    asking = cast(Any, Validate)(7, "s", None, "x")
    scene.verdicts.append(verdict)
    scene.happen(asking)
    (task,) = scene.edge._tasks
    await asyncio.gather(task, return_exceptions=True)
    assert scene.socket.sent == [b"settled 7 %d" % allowed]


async def test_a_relay_that_makes_us_reset_streams_and_takes_nothing_costs_no_memory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayedge, "MAX_UNSENT", 10_000, raising=False)
    identity = KeyPair.from_seed(bytes(SEED_BYTES))
    edge = RelayEdge(Streams(identity, "env", "reg"), validate=scene._validate, lead=scene._lead)
    socket = scene.socket
    edge.on_open(cast(RelaySocket, socket))
    for number in range(1000):
        edge.on_frame(relayframes.data(f"stream {number}", 0, b"x"))
        socket.unsent = sum(map(len, socket.sent))
    assert 0 < socket.unsent < 11_000
    assert socket.aborted is None


async def test_a_relay_that_does_not_take_the_answer_to_a_handshake_is_left(scene: Scene) -> None:
    scene.socket.unsent = relayedge.MAX_UNSENT + 1
    scene.happen(Send(b"the answer to a handshake"))
    assert scene.socket.sent == []
    assert isinstance(scene.socket.aborted, ConnectionLost)


async def test_resets_go_out_while_output_waits(scene: Scene) -> None:
    scene.edge.on_writable(False)
    scene.happen(Send(b"reset", spare=True), Send(b"the answer to a handshake"))
    assert scene.socket.sent == [b"reset", b"the answer to a handshake"]
