"""What waits for its readers, and how much of it."""

import pytest

from holdfast.client.events.backlog import FULL_BYTES, KEPT_BYTES, ROOM_BYTES, Backlog, Ends, Reader
from holdfast.client.events.ordering import Closed, Event, Exited, Output
from tests.support.rows import every_row

HALF = KEPT_BYTES // 2


def rest(reader: Reader) -> list[Event]:
    return list(iter(reader.next, None))


def is_full(backlog: Backlog) -> bool:
    return backlog.full  # asked anew each time, also in the eyes of the type checker


def out(seq: int, stream: str = "stdout", size: int = 1) -> Output:
    return Output(seq, stream, b"x" * size)


def filled(*events: Event) -> Backlog:
    backlog = Backlog()
    for event in events:
        backlog.add(event)
    return backlog


STORY: list[Event] = [out(1), out(2, "stderr"), out(3), Exited(4, 0, False), out(5, "stderr"), Closed(6)]


def test_a_reader_of_everything_gets_it_in_order() -> None:
    assert rest(filled(*STORY).reader()) == STORY


def test_a_reader_of_one_stream_gets_that_stream() -> None:
    assert rest(filled(*STORY).reader("stderr")) == [out(2, "stderr"), out(5, "stderr")]


def test_every_reader_gets_everything_once() -> None:
    backlog = filled(*STORY[:3])
    first, second = backlog.reader(), backlog.reader()
    assert rest(first) == STORY[:3]
    for event in STORY[3:]:
        backlog.add(event)
    assert rest(first) == STORY[3:]
    assert rest(second) == STORY
    assert rest(backlog.reader()) == STORY


def test_what_nobody_has_read_is_kept_and_fills_it_up() -> None:
    backlog = Backlog()
    events: list[Event] = []
    while not backlog.full:
        events.append(out(len(events) + 1, size=HALF))
        backlog.add(events[-1])
    assert sum(HALF for _ in events) > FULL_BYTES - HALF
    assert rest(backlog.reader()) == events


def test_it_stays_full_until_there_is_room_worth_the_while() -> None:
    backlog = Backlog()
    reader = backlog.reader()
    for seq in range(1, 10):
        backlog.add(out(seq, size=HALF))
    seen = 0
    while is_full(backlog):
        assert reader.next() is not None
        seen += 1
    assert (9 - seen) * HALF <= ROOM_BYTES
    assert 0 < seen < 9


def test_what_was_read_is_kept_for_others_up_to_a_limit() -> None:
    backlog = Backlog()
    first = backlog.reader()
    for seq in range(1, 101):
        backlog.add(out(seq, size=HALF))
        first.next()
        assert not backlog.full
    kept = rest(backlog.reader())
    assert kept[-1].seq == 100
    assert 0 < len(kept) * HALF <= KEPT_BYTES
    assert backlog.read_all() == (kept, (100 - len(kept)) * HALF)


def test_all_that_is_kept_can_be_read_at_once_and_counts_as_read() -> None:
    assert filled(*STORY).read_all() == (STORY, 0)
    backlog = Backlog()
    unread = [out(seq, size=HALF) for seq in range(1, 10)]
    for event in unread:
        backlog.add(event)
    assert is_full(backlog)
    assert backlog.read_all() == (unread, 0)
    assert not is_full(backlog)
    assert backlog.read_all()[1] > 0


def test_what_was_shown_to_somebody_when_it_came_does_not_fill_it_up() -> None:
    backlog = Backlog()
    for seq in range(1, 100):
        backlog.add(out(seq, size=HALF), read=True)
        assert not backlog.full
    assert rest(backlog.reader())[-1] == out(99, size=HALF)


def test_what_was_shown_to_somebody_is_kept_for_a_reader_that_has_not_seen_it() -> None:
    backlog = Backlog()
    reader = backlog.reader()
    for seq in range(1, 10):
        backlog.add(out(seq, size=HALF), read=True)
    assert backlog.full
    assert len(rest(reader)) == 9


def test_a_slow_reader_loses_nothing_to_a_fast_one() -> None:
    backlog = Backlog()
    fast, slow = backlog.reader(), backlog.reader()
    for seq in range(1, 9):
        backlog.add(out(seq, size=HALF))
    assert len(rest(fast)) == 8
    assert [event.seq for event in rest(slow)] == list(range(1, 9))


def test_a_reader_that_is_gone_holds_nothing_up() -> None:
    backlog = Backlog()
    gone, reader = backlog.reader(), backlog.reader()
    for seq in range(1, 10):
        backlog.add(out(seq, size=HALF))
    assert len(rest(reader)) == 9
    assert backlog.full
    del gone
    backlog.add(out(10, size=HALF))
    assert rest(reader) == [out(10, size=HALF)]
    assert not backlog.full


def test_one_stream_unread_does_not_keep_the_other() -> None:
    backlog = filled(out(1, "stderr"))
    reader = backlog.reader("stdout")
    for seq in range(2, 50):
        backlog.add(out(seq, size=HALF))
        reader.next()
        assert not backlog.full
    assert rest(backlog.reader("stderr")) == [out(1, "stderr")]


def test_many_tiny_events_fill_it_up_too() -> None:
    backlog = Backlog()
    for seq in range(FULL_BYTES // 256 + 1):
        backlog.add(out(seq, size=1))
    assert backlog.full


@pytest.mark.parametrize("size", [1, 7, 4096, 10_000])
def test_the_ends_hold_everything_that_fits(size: int) -> None:
    ends = Ends(100_000)
    data = bytes(range(256)) * 390
    for at in range(0, len(data), size):
        ends.add(data[at : at + size])
    assert ends.read() == (data, 0)


@every_row("size", [1, 7, 5000, 200_000])
@every_row("limit", [0, 1, 2, 1001, 10_000])
def test_the_ends_are_head_and_tail_of_what_does_not_fit(size: int, limit: int) -> None:
    ends = Ends(limit)
    data = bytes(range(251)) * 100
    for at in range(0, len(data), size):
        ends.add(data[at : at + size])
    tail = limit // 2
    kept = data[: limit - tail] + data[len(data) - tail :]
    assert ends.read() == (kept, len(data) - limit)
    assert ends.read() == (kept, len(data) - limit)
