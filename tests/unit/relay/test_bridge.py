"""Links between two nodes, over a bus that does what the test says."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.relay import bridge as bridges
from holdfast.relay.bridge import UNAVAILABLE, Bridge, Joint, Link
from holdfast.relay.rules import crossing
from holdfast.relay.rules.crossing import WINDOW, Opening
from holdfast.relay.rules.switchboard import ExecutorSocket, HarnessSocket
from holdfast.relay.sockets import HARD_BYTES, STALLED_S, Socket
from tests.support.patience import patient

OPENING = Opening("t", "box", "reg_1", "bundle", "10.0.0.1")
KEY = bytes(32)
LIMIT_S = patient(20.0)


class Wire:
    """Both nodes' bus. `carry` says what becomes of a message: nothing, itself, or more."""

    def __init__(self) -> None:
        self.is_up = True
        self.is_full = False
        self.carry: Callable[[bytes], list[bytes]] = lambda raw: [raw]
        self.nodes: dict[str, Bridge] = {}
        self._way: list[tuple[str, bytes, str]] = []

    def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        if self.is_full or not self.is_up:
            return False
        self._way.append((subject, data, reply))
        asyncio.get_running_loop().call_soon(self.run)
        return True

    def run(self) -> None:
        while self._way:
            subject, data, reply = self._way.pop(0)
            node = self.nodes.get(subject.rpartition(".")[0])
            if node is None and reply:
                self.nodes[reply.rpartition(".")[0]].take_nobody(reply)
            for raw in self.carry(data):
                if node is not None:
                    node.take(raw)


class Owner:
    """Whoever has a link: what it was told."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost = 0
        self.flow: list[bool] = []
        self.ended = asyncio.Event()

    def take(self, socket: Socket, frame: bytes) -> None:
        self.frames.append(frame)

    def note_flow(self, socket: Socket) -> None:
        self.flow.append(socket.behind)

    def lose(self, socket: Socket) -> None:
        self.lost += 1
        self.ended.set()


class Nodes:
    def __init__(self) -> None:
        self.wire = Wire()
        self.near = Bridge(self.wire, KEY, "near", self._admit)
        self.far = Bridge(self.wire, KEY, "far", self._admit)
        for node in (self.near, self.far):
            self.wire.nodes[node.subjects.removesuffix(".*")] = node
        self.here, self.there = Owner(), Owner()
        self.admitted: list[tuple[Link, Opening]] = []
        self.refusal: str | None = None

    def _admit(self, link: Link, opening: Opening) -> None:
        self.admitted.append((link, opening))
        if self.refusal is not None:
            link.refuse(self.refusal)
        else:
            link.accept(self.there, "tok_1")

    async def open(self) -> tuple[Link, Link]:
        async with asyncio.timeout(LIMIT_S):
            found = await self.near.dial("far", OPENING)
        assert not isinstance(found, str)
        link, token_id = found
        assert token_id == "tok_1"
        link.owner = self.here
        return link, self.admitted[-1][0]

    async def both_ended(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.here.ended.wait()
            await self.there.ended.wait()
        assert (len(self.near), len(self.far)) == (0, 0)
        assert (self.here.lost, self.there.lost) == (1, 1)


@pytest.fixture
async def nodes() -> Nodes:
    return Nodes()


async def test_a_link_carries_frames_both_ways_in_order(nodes: Nodes) -> None:
    near, far = await nodes.open()
    assert nodes.admitted[0][1] == OPENING
    for number in range(50):
        near.send(bytes((number,)))
        far.send(bytes((number, number)))
    nodes.wire.run()
    assert nodes.there.frames == [bytes((number,)) for number in range(50)]
    assert nodes.here.frames == [bytes((number, number)) for number in range(50)]
    near.drop("done")
    nodes.wire.run()
    await nodes.both_ended()


def nth(number: int, then: list[bytes] | None = None) -> Callable[[bytes], list[bytes]]:
    """The n-th message from now on is lost, or something else comes; all others are carried."""
    count = iter(range(10**6))
    return lambda raw: (then or []) if next(count) == number else [raw]


@pytest.mark.parametrize("number", range(4))
async def test_a_lost_frame_ends_the_link_at_both_nodes_and_nothing_after_it_is_passed_on(
    nodes: Nodes, number: int
) -> None:
    near, _ = await nodes.open()
    nodes.wire.carry = nth(number)
    for frame in range(5):
        near.send(bytes((frame,)))
    nodes.wire.run()
    assert nodes.there.frames == [bytes((frame,)) for frame in range(number)]
    await nodes.both_ended()
    assert (nodes.near.lost, nodes.far.lost) == (0, 1)


async def test_a_last_frame_that_is_lost_ends_the_link_with_the_second_beat(nodes: Nodes) -> None:
    near, _ = await nodes.open()
    nodes.wire.carry = nth(0)
    near.send(b"the last")
    nodes.wire.run()
    for _ in range(2):
        assert nodes.here.lost == 0
        nodes.near.beat()
        nodes.far.beat()
        nodes.wire.run()
    await nodes.both_ended()
    assert nodes.far.lost == 1


async def test_a_lost_credit_ends_the_link_instead_of_holding_it_up_for_ever(nodes: Nodes) -> None:
    near, _ = await nodes.open()
    nodes.wire.carry = lambda raw: [] if raw[0] == crossing.MessageKind.CREDIT else [raw]
    for _ in range(WINDOW // 60_000 + 3):
        near.send(bytes(60_000))
    nodes.wire.run()
    assert near.behind
    for _ in range(2):
        nodes.far.beat()
        nodes.wire.run()
    await nodes.both_ended()
    assert nodes.near.lost == 1


async def test_repeated_messages_change_nothing(nodes: Nodes) -> None:
    nodes.wire.carry = lambda raw: [raw, raw]
    near, far = await nodes.open()
    for number in range(5):
        near.send(bytes((number,)))
        far.send(bytes((number,)))
        nodes.near.beat()
        nodes.wire.run()
    assert nodes.there.frames == nodes.here.frames == [bytes((number,)) for number in range(5)]
    assert len(nodes.admitted) == 1


async def test_whoever_reads_slowly_holds_the_sender_up_and_is_cut_off_in_the_end(nodes: Nodes) -> None:
    near, far = await nodes.open()
    far.set_reading(False)
    block = bytes(60_000)
    for _ in range(20):
        near.send(block)
    nodes.wire.run()
    assert len(nodes.there.frames) * len(block) < WINDOW + len(block)
    assert (near.behind, nodes.here.flow) == (True, [True])
    far.set_reading(True)
    nodes.wire.run()
    assert len(nodes.there.frames) == 20
    assert (near.behind, nodes.here.flow) == (False, [True, False])
    far.set_reading(False)
    for _ in range((HARD_BYTES + 2 * WINDOW) // len(block)):
        near.send(block)
    nodes.wire.run()
    await nodes.both_ended()


async def test_a_node_that_falls_silent_is_gone(nodes: Nodes) -> None:
    now = asyncio.get_running_loop().time()
    near, _ = await nodes.open()
    nodes.near.check(now + bridges.SILENT_S)
    assert not near.gone
    nodes.near.check(now + bridges.SILENT_S + LIMIT_S)
    nodes.wire.run()
    await nodes.both_ended()


async def test_who_stays_behind_is_cut_off(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "SILENT_S", 10**6)
    now = asyncio.get_running_loop().time
    near, far = await nodes.open()
    far.set_reading(False)
    for _ in range(20):
        near.send(bytes(60_000))
    nodes.wire.run()
    nodes.near.check(now() + STALLED_S - 1)
    assert (near.behind, near.gone) == (True, False)
    nodes.near.check(now() + STALLED_S + 1)
    nodes.wire.run()
    await nodes.both_ended()


async def test_a_bus_that_takes_no_more_ends_the_link(nodes: Nodes) -> None:
    near, far = await nodes.open()
    nodes.wire.is_full = True
    near.send(b"x")
    assert near.gone
    nodes.wire.is_full = False
    nodes.far.beat()  # who knows nothing of a link says so
    nodes.wire.run()
    await nodes.both_ended()
    assert far.gone


async def test_a_lost_bus_ends_all_links_and_none_is_opened_without_it(nodes: Nodes) -> None:
    await nodes.open()
    nodes.wire.is_up = False
    for node in (nodes.near, nodes.far):
        node.cut("NATS is lost")
    await nodes.both_ended()
    assert await nodes.near.dial("far", OPENING) == UNAVAILABLE


async def test_the_other_node_decides_and_its_refusal_is_passed_on(nodes: Nodes) -> None:
    nodes.refusal = "expired"
    async with asyncio.timeout(LIMIT_S):
        assert await nodes.near.dial("far", OPENING) == "expired"
    assert (len(nodes.near), len(nodes.far)) == (0, 0)


async def test_a_node_that_is_not_there_is_said_at_once_and_one_that_says_nothing_in_time(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S):
        assert await nodes.near.dial("nowhere", OPENING) == UNAVAILABLE
        monkeypatch.setattr(bridges, "OPEN_S", 0.01)
        nodes.wire.carry = lambda raw: []
        assert await nodes.near.dial("far", OPENING) == UNAVAILABLE
    assert len(nodes.near) == 0


async def test_an_answer_that_comes_too_late_leaves_no_link_behind(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "OPEN_S", 0.01)
    late: list[bytes] = []

    def keep(raw: bytes) -> list[bytes]:
        late.append(raw)
        return []

    nodes.wire.carry = keep
    assert await nodes.near.dial("far", OPENING) == UNAVAILABLE
    nodes.wire.run()  # its farewell is lost too
    nodes.wire.carry = lambda raw: [raw]
    nodes.far.take(late[0])
    assert len(nodes.far) == 1
    nodes.wire.run()
    async with asyncio.timeout(LIMIT_S):
        await nodes.there.ended.wait()
    assert len(nodes.far) == 0


@pytest.mark.parametrize("fill", [b"", b"\0" * 100, b"x" * 57])
async def test_what_no_node_has_signed_is_counted_and_nothing_else(nodes: Nodes, fill: bytes) -> None:
    near, _ = await nodes.open()
    nodes.far.take(fill)
    near.send(b"x")
    nodes.wire.run()
    assert (nodes.far.foreign, nodes.there.frames) == (1, [b"x"])


async def test_more_links_than_a_node_has_sockets_are_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "MAX_LINKS", 1)
    await nodes.open()
    async with asyncio.timeout(LIMIT_S):
        assert await nodes.near.dial("far", OPENING) == UNAVAILABLE
        other = Bridge(nodes.wire, KEY, "other", nodes._admit)
        nodes.wire.nodes[other.subjects.removesuffix(".*")] = other
        assert await other.dial("far", OPENING) == UNAVAILABLE
    assert len(nodes.far) == 1


class Plug:
    """A socket that keeps what it is told."""

    def __init__(self) -> None:
        self.peer = ""
        self.end: ExecutorSocket[Socket] | HarnessSocket[Socket] | None = None
        self.sent: list[bytes] = []
        self.reading: list[bool] = []
        self.behind = False
        self.dropped = 0

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def set_reading(self, wanted: bool) -> None:
        self.reading.append(wanted)

    def drop(self, reason: str) -> None:
        self.dropped += 1


async def test_a_joint_passes_frames_pauses_and_the_end_from_each_side_to_the_other(nodes: Nodes) -> None:
    link, far = await nodes.open()
    plug, ended = Plug(), asyncio.Event()
    joint = Joint(plug, link, "tok_1", lambda _: ended.set())
    joint.take(plug, b"up")
    far.send(b"down")
    nodes.wire.run()
    assert (nodes.there.frames, plug.sent) == ([b"up"], [b"down"])
    far.set_reading(False)
    for _ in range(20):
        joint.take(plug, bytes(60_000))
    nodes.wire.run()
    assert plug.reading == [False]
    far.set_reading(True)
    nodes.wire.run()
    assert plug.reading == [False, True]
    joint.lose(plug)
    nodes.wire.run()
    async with asyncio.timeout(LIMIT_S):
        await ended.wait()
        await nodes.there.ended.wait()
    assert link.gone
