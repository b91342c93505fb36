"""What nodes say to each other about streams that cross."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.relay.rules import crossing
from holdfast.relay.rules.crossing import NOBODY, Flow, Message, MessageKind, MessageLost
from tests.support.rows import every_row

KEY = crossing.derive_key(bytes(32))
HERE, THERE = crossing.mailbox_of("node_a", KEY), crossing.mailbox_of("node_b", KEY)
LINK = b"l" * 16
MESSAGE = Message(MessageKind.FRAME, THERE, LINK, 7, b"sealed by the ends")


def test_a_message_comes_out_as_it_went_in() -> None:
    assert crossing.unseal(crossing.seal(MESSAGE, HERE, KEY), HERE, KEY) == MESSAGE


SEALED = crossing.seal(MESSAGE, HERE, KEY)


@every_row(
    ("raw", "here", "key"),
    [
        (SEALED, THERE, KEY),
        (SEALED, HERE, crossing.derive_key(b"x" * 32)),
        (SEALED[:-1], HERE, KEY),
        (SEALED + b"\0", HERE, KEY),
        (b"\x06" + SEALED[1:], HERE, KEY),
        (SEALED[:60] + b"?" + SEALED[61:], HERE, KEY),
        (b"", HERE, KEY),
        (bytes(crossing.OVERHEAD), HERE, KEY),
    ],
    ids=["for another", "another key", "cut", "longer", "another kind", "another byte", "nothing", "zeros"],
)
def test_what_no_node_has_signed_for_us_is_no_message(raw: bytes, here: bytes, key: bytes) -> None:
    assert crossing.unseal(raw, here, key) is None


def test_a_kind_of_a_later_version_is_no_message() -> None:
    raw = bytearray(crossing.seal(MESSAGE, HERE, KEY)[:-16])
    raw[0] = 99
    assert crossing.unseal(bytes(raw) + crossing._sign(bytes(raw), HERE, KEY), HERE, KEY) is None


def test_nodes_are_named_so_that_nobody_without_the_key_finds_them() -> None:
    assert len({HERE, THERE, crossing.mailbox_of("node_a", crossing.derive_key(b"x" * 32))}) == 3


def test_a_missing_message_is_noticed_with_the_next_and_a_repeated_one_is_not_taken() -> None:
    flow = Flow(0.0)
    assert [flow.expect(number, 1.0) for number in (0, 0, 1, 0)] == [True, False, True, False]
    with pytest.raises(MessageLost):
        flow.expect(3, 1.0)


def test_the_last_message_is_missed_with_the_second_beat_that_names_it() -> None:
    flow = Flow(0.0)
    flow.hear_beat(1, 2, 1.0)
    assert flow.heard == 1.0
    flow.expect(0, 1.0)
    with pytest.raises(MessageLost):
        flow.hear_beat(2, 2, 2.0)


def test_a_beat_that_overtakes_a_message_is_no_loss_and_an_old_one_says_nothing() -> None:
    flow = Flow(0.0)
    flow.hear_beat(5, 1, 1.0)
    flow.hear_beat(5, 9, 2.0)
    flow.hear_beat(4, 9, 2.0)
    assert flow.heard == 1.0
    flow.expect(0, 1.0)
    flow.hear_beat(6, 1, 3.0)
    assert flow.heard == 3.0


@every_row("total", [-1, 1, 2**40])
def test_a_credit_for_what_was_not_sent_is_refused(total: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Flow(0.0).credit(total)


@every_row("body", [b"", b"1234567", b"123456789"])
def test_a_credit_is_a_number(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        crossing.decode_total(body)


def test_beats_about_many_links_are_several() -> None:
    sent = [(number.to_bytes(16, "big"), number) for number in range(crossing.MAX_ENTRIES + 1)]
    bodies = list(crossing.encode_beats(sent))
    assert [entry for body in bodies for entry in crossing.decode_beats(body)] == sent
    assert len(bodies) == 2
    assert list(crossing.encode_beats([])) == []
    assert crossing.decode_beats(bodies[1] + b"rest") == sent[-1:]
    assert len(NOBODY) == 16


@given(st.lists(st.one_of(st.integers(1, 200_000), st.none()), max_size=20))
def test_frames_keep_their_order_and_no_more_than_a_window_is_on_its_way(steps: list[int | None]) -> None:
    """A number sends a frame of that size, None lets the other side pass one on."""
    one, other = Flow(0.0), Flow(0.0)
    sent: list[int] = []
    arrived: list[int] = []
    way: list[bytes] = []
    for step in steps:
        if step is not None:
            sent.append(step)
            way += one.send(bytes(step))
        elif way:
            frame = way.pop(0)
            arrived.append(len(frame))
            other.pass_on(len(frame))
            if (total := other.owed_credit()) is not None:
                way += one.credit(total)
        assert sum(map(len, way)) <= crossing.WINDOW + 200_000
    while way:
        frame = way.pop(0)
        arrived.append(len(frame))
        other.pass_on(len(frame))
        if (total := other.owed_credit(least=1)) is not None:
            way += one.credit(total)
    assert arrived == sent
    assert one.waiting_bytes == 0
