"""Events by number: reordering, duplicates, bounds, and what a page says about a gap."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from holdfast.client.events.ordering import (
    MAX_WAITING_BYTES,
    MAX_WAITING_EVENTS,
    Closed,
    Event,
    Exited,
    Lost,
    Ordering,
    Output,
    ReadPage,
    last_before,
    next_look_s,
)
from holdfast.server.executor import CLOSED_RETENTION_S
from holdfast.wire.processes import DenialReport, ProcessUsage
from tests.support.rows import every_row

USAGE = ProcessUsage(user_ms=1, system_ms=2, peak_rss_bytes=3)
DENIAL = DenialReport("filesystem", "/x", None, "write", None, None, 1.0, "EROFS")
STREAM: list[Event] = [
    Output(1, "stdout", b"a"),
    Output(2, "stderr", b"b"),
    Exited(3, 7, False),
    Output(4, "stdout", b"late"),
    Closed(5),
]
RUNNING = ReadPage((), 1, exited=False, exit_code=None, closed=False, failure=None, sandbox_denied=False)


def output(seq: int, size: int = 1) -> Output:
    return Output(seq, "stdout", b"x" * size)


def outputs(*seqs: int) -> tuple[Output, ...]:
    return tuple(output(seq) for seq in seqs)


def page(
    *seqs: int, next_seq: int, code: int | None = None, closed: bool = False, denied: bool = False
) -> ReadPage:
    """A read answer with output of these numbers; with a code, the process exited."""
    return ReadPage(outputs(*seqs), next_seq, code is not None, code, closed, None, denied)


def fed(*events: Event) -> Ordering:
    ordering = Ordering()
    for event in events:
        ordering.push(event)
    return ordering


def early(count: int) -> list[Event]:
    """So many events without bytes, all of them waiting for event 1."""
    return [output(seq, 0) for seq in range(2, 2 + count)]


def assert_over(ordering: Ordering) -> None:
    """Nothing that arrives matters any more."""
    before = (ordering.last_published, ordering.closed)
    assert ordering.push(output(ordering.last_published + 1)) == []
    assert ordering.push(output(ordering.last_published + 1000, MAX_WAITING_BYTES + 1)) == []
    assert ordering.catch_up(page(next_seq=99)) == []
    assert ordering.catch_up(replace(RUNNING, failure="gone")) == []
    assert (ordering.last_published, ordering.closed) == before


def test_events_in_order_are_published_as_they_come() -> None:
    ordering = Ordering()
    assert [ordering.push(event) for event in STREAM] == [[event] for event in STREAM]
    assert (ordering.last_published, ordering.closed) == (5, True)


@every_row("arrival", list(permutations(STREAM)))
def test_any_order_of_arrival_gives_the_same_stream(arrival: tuple[Event, ...]) -> None:
    ordering = Ordering()
    published: list[Event] = []
    for count, event in enumerate(arrival, 1):
        published += ordering.push(event)
        seen = {one.seq for one in arrival[:count]}
        assert ordering.last_published == next(n for n in range(6) if n + 1 not in seen)
    assert published == STREAM


@pytest.mark.parametrize(
    ("arrived", "missing"),
    [((), None), ((1,), None), ((3,), 1), ((3, 1), 2), ((3, 1, 2), None), ((1, 4, 2), 3)],
)
def test_what_is_missing_is_the_event_that_others_wait_for(
    arrived: tuple[int, ...], missing: int | None
) -> None:
    assert fed(*outputs(*arrived)).missing == missing


def test_a_page_fills_what_is_missing() -> None:
    ordering = fed(output(1), output(3))
    ordering.catch_up(page(2, next_seq=3))
    assert (ordering.missing, ordering.last_published) == (None, 3)


def test_a_duplicate_is_dropped_whether_its_first_was_published_or_waits() -> None:
    ordering = fed(STREAM[0], STREAM[2])
    assert ordering.push(STREAM[0]) == []
    assert ordering.push(STREAM[2]) == []
    assert ordering.push(STREAM[1]) == STREAM[1:3]
    assert ordering.push(STREAM[1]) == []


def test_the_close_counts_when_it_is_published_not_when_it_arrives() -> None:
    ordering = fed(Exited(1, 0, False), Closed(3))
    assert not ordering.closed
    assert ordering.push(output(2)) == [output(2), Closed(3)]
    assert ordering.closed


def test_after_the_close_everything_is_ignored() -> None:
    assert_over(fed(*STREAM))


def test_what_waits_beyond_the_close_is_not_published() -> None:
    ordering = fed(Exited(1, 0, False), output(4), Closed(3))
    assert ordering.push(output(2)) == [output(2), Closed(3)]
    assert ordering.last_published == 3
    assert_over(ordering)


def test_numbers_below_one_are_nobodys() -> None:
    ordering = Ordering()
    assert ordering.push(output(0)) == []
    assert ordering.push(output(-1)) == []
    assert ordering.push(output(1)) == [output(1)]


@pytest.mark.parametrize(
    ("waiting", "straw"),
    [
        pytest.param(early(MAX_WAITING_EVENTS), output(1000, 0), id="one event too many"),
        pytest.param(early(MAX_WAITING_EVENTS), Exited(1000, 0, False), id="also an exit counts"),
        pytest.param([output(2, MAX_WAITING_BYTES)], output(3), id="one byte too many"),
        pytest.param([], output(2, MAX_WAITING_BYTES + 1), id="one event too big"),
    ],
)
def test_too_much_out_of_order_loses_the_stream_once(waiting: list[Event], straw: Event) -> None:
    ordering = fed(*waiting)
    with pytest.raises(Lost):
        ordering.push(straw)
    assert_over(ordering)


def test_the_bounds_themselves_are_allowed_and_events_without_bytes_weigh_nothing() -> None:
    assert fed(output(2, MAX_WAITING_BYTES)).push(Exited(3, 0, False)) == []
    assert fed(*early(MAX_WAITING_EVENTS - 1)).push(output(1000, MAX_WAITING_BYTES)) == []


@pytest.mark.parametrize("size", [1, MAX_WAITING_BYTES + 1])
def test_the_event_that_closes_the_gap_is_accepted_at_both_limits_and_drains(size: int) -> None:
    last = MAX_WAITING_EVENTS + 1
    ordering = fed(*early(MAX_WAITING_EVENTS - 1))
    ordering.push(output(last, MAX_WAITING_BYTES))
    published = ordering.push(output(1, size))
    assert [event.seq for event in published] == list(range(1, last + 1))


def test_what_was_drained_no_longer_counts_against_the_bounds() -> None:
    ordering = fed(output(2, MAX_WAITING_BYTES))
    ordering.push(output(1))
    assert ordering.push(output(4, MAX_WAITING_BYTES)) == []
    ordering.push(output(3))
    for seq in range(6, 6 + MAX_WAITING_EVENTS):
        assert ordering.push(output(seq, 0)) == []


def test_a_duplicate_does_not_fill_the_buffer() -> None:
    ordering = fed(output(2, MAX_WAITING_BYTES))
    assert ordering.push(output(2, MAX_WAITING_BYTES)) == []


def test_a_second_exit_is_a_contradiction() -> None:
    ordering = fed(Exited(1, 0, False))
    with pytest.raises(Lost):
        ordering.push(Exited(2, 1, False))
    assert_over(ordering)


def test_a_close_without_an_exit_is_a_contradiction() -> None:
    ordering = fed(output(1))
    with pytest.raises(Lost):
        ordering.push(Closed(2))
    assert (ordering.last_published, ordering.closed) == (1, False)
    assert_over(ordering)


def test_a_page_without_news_changes_nothing() -> None:
    ordering = fed(*outputs(1, 2))
    assert ordering.catch_up(page(next_seq=3)) == []
    assert ordering.catch_up(page(next_seq=2)) == []
    assert ordering.push(output(3)) == [output(3)]


def test_a_page_gives_the_missed_output() -> None:
    ordering = fed(output(1))
    assert ordering.catch_up(page(2, 3, next_seq=4)) == [*outputs(2, 3)]
    assert ordering.last_published == 3


def test_output_of_a_page_that_was_published_before_is_not_repeated() -> None:
    assert fed(*outputs(1, 2)).catch_up(page(1, 2, 3, next_seq=4)) == [output(3)]


def test_a_page_and_what_waits_fill_each_others_gaps() -> None:
    ordering = fed(output(1), output(3), output(5), output(7))
    assert ordering.catch_up(page(2, 3, 4, next_seq=5)) == [*outputs(2, 3, 4, 5)]
    assert ordering.push(output(6)) == [*outputs(6, 7)]


def test_the_recorded_example_of_exit_and_close_in_a_page() -> None:
    ordering = fed(output(1))
    expected = [output(2), Exited(3, 7, False), Closed(4)]
    assert ordering.catch_up(page(2, next_seq=5, code=7, closed=True)) == expected
    assert ordering.closed


@pytest.mark.parametrize("hole", [2, 3, 4])
def test_the_one_number_nothing_explains_is_the_exit(hole: int) -> None:
    seqs = [seq for seq in (2, 3, 4) if seq != hole]
    ordering = fed(output(1))
    published = ordering.catch_up(replace(page(*seqs, next_seq=5, code=9, denied=True), usage=USAGE))
    assert published == [Exited(n, 9, True, USAGE) if n == hole else output(n) for n in (2, 3, 4)]
    assert ordering.push(Closed(5)) == [Closed(5)]


def test_dense_output_a_synthesised_exit_and_newer_live_events_recover_completely() -> None:
    ordering = fed(output(1), output(6), Closed(7))
    expected = [*outputs(2, 3), Exited(4, 0, False), *outputs(5, 6), Closed(7)]
    assert ordering.catch_up(page(2, 3, 5, next_seq=6, code=0)) == expected


def test_a_known_exit_is_not_synthesised_again() -> None:
    published = fed(Exited(1, 0, False))
    assert published.catch_up(page(2, next_seq=3, code=0)) == [output(2)]
    waiting = fed(output(1), Exited(3, 0, False))
    assert waiting.catch_up(page(2, next_seq=4, code=0)) == [output(2), Exited(3, 0, False)]


def test_an_exit_that_is_not_numbered_yet_comes_later() -> None:
    ordering = fed(output(1))
    assert ordering.catch_up(page(2, next_seq=3, code=0)) == [output(2)]
    assert ordering.push(Exited(3, 0, False)) == [Exited(3, 0, False)]


@every_row("said", [None, False, True])
@every_row("denied", [False, True])
def test_a_waiting_exit_learns_the_denial_of_the_page(said: bool | None, denied: bool) -> None:
    ordering = fed(Exited(2, 1, said, denial=DENIAL))
    published = ordering.catch_up(replace(page(1, next_seq=3, code=1, denied=denied), usage=USAGE))
    assert published == [output(1), Exited(2, 1, bool(said) or denied, USAGE, DENIAL)]


def test_a_waiting_exit_keeps_the_usage_it_came_with() -> None:
    ordering = fed(Exited(2, 1, False, usage=USAGE))
    told = replace(page(1, next_seq=3, code=1), usage=ProcessUsage(user_ms=9, system_ms=9, peak_rss_bytes=9))
    assert ordering.catch_up(told) == [output(1), Exited(2, 1, False, USAGE)]


def test_an_exit_beyond_the_page_is_as_the_server_sent_it() -> None:
    ordering = fed(Exited(3, 1, None))
    assert ordering.catch_up(page(1, next_seq=2, denied=True)) == [output(1)]
    assert ordering.push(output(2)) == [output(2), Exited(3, 1, None)]


def test_a_page_frees_the_room_of_what_it_made_obsolete() -> None:
    ordering = fed(output(2, MAX_WAITING_BYTES))
    assert len(ordering.catch_up(page(1, next_seq=3))) == 2
    assert ordering.push(output(4, MAX_WAITING_BYTES)) == []
    with pytest.raises(Lost):
        ordering.push(output(5))


def test_what_waits_beyond_a_page_still_counts() -> None:
    ordering = fed(output(4, MAX_WAITING_BYTES))
    assert ordering.catch_up(page(1, 2, next_seq=3)) == [*outputs(1, 2)]
    with pytest.raises(Lost):
        ordering.push(output(5))


def test_a_page_is_not_bound_by_the_room_for_early_events() -> None:
    ordering = fed(*early(MAX_WAITING_EVENTS))
    seqs = range(1, 2 * MAX_WAITING_EVENTS)
    assert len(ordering.catch_up(page(*seqs, next_seq=seqs.stop))) == len(seqs)


@every_row(
    "answer",
    [
        pytest.param(page(3, next_seq=4), id="output gone"),
        pytest.param(page(next_seq=3), id="only output is gone"),
        pytest.param(page(next_seq=2**63), id="very much is gone"),
        pytest.param(page(4, next_seq=6, code=0, closed=True), id="output gone beside the exit"),
        pytest.param(page(next_seq=4, code=0), id="two holes and one exit"),
        pytest.param(page(2, 9, next_seq=4), id="output beyond the page"),
        pytest.param(page(2, 3, next_seq=4, code=0, closed=True), id="output at the place of the close"),
        pytest.param(page(2, next_seq=4, closed=True), id="closed without an exit"),
        pytest.param(page(next_seq=3, code=0, closed=True), id="closed without room for an exit"),
        pytest.param(replace(page(next_seq=3, code=0), exit_code=None), id="exit without a code"),
        pytest.param(replace(page(2, next_seq=3), failure="gone"), id="failure"),
        pytest.param(replace(RUNNING, failure="gone"), id="failure without news"),
    ],
)
def test_a_page_that_leaves_a_hole_or_contradicts_itself_loses_the_stream(answer: ReadPage) -> None:
    ordering = fed(output(1))
    with pytest.raises(Lost):
        ordering.catch_up(answer)
    assert (ordering.last_published, ordering.closed) == (1, False)
    assert_over(ordering)


@every_row(
    ("waiting", "answer"),
    [
        pytest.param(output(3), page(1, next_seq=4, code=0, closed=True), id="output where the page closes"),
        pytest.param(Exited(3, 0, False), page(1, 2, next_seq=4, code=0, closed=True), id="exit there"),
        pytest.param(Exited(2, 0, False), page(1, 2, next_seq=3), id="exit where the page has output"),
        pytest.param(Closed(2), page(1, 2, next_seq=3), id="close where the page has output"),
        pytest.param(
            Exited(2, 0, False), page(1, next_seq=4, code=0), id="a hole although the exit is known"
        ),
        pytest.param(Exited(5, 0, False), page(1, next_seq=3, code=0), id="a hole and an exit behind it"),
    ],
)
def test_a_page_that_contradicts_what_waits_loses_the_stream(waiting: Event, answer: ReadPage) -> None:
    ordering = fed(waiting)
    with pytest.raises(Lost):
        ordering.catch_up(answer)
    assert ordering.last_published == 0
    assert_over(ordering)


def test_a_close_that_waits_and_the_close_of_the_page_are_one() -> None:
    ordering = fed(output(1), Closed(4))
    expected = [output(2), Exited(3, 0, False), Closed(4)]
    assert ordering.catch_up(page(2, next_seq=5, code=0, closed=True)) == expected


@every_row(
    ("outputs", "next_seq", "exited", "closed", "last"),
    [
        ((7, 8), 9, False, False, 6),
        ((), 9, False, False, 8),
        ((7, 9), 10, True, False, 6),  # the exit is 8
        ((7, 8), 9, True, False, 5),  # it was evicted with what was before: taken for 6
        ((7, 8), 10, True, False, 6),  # it is 9
        ((7, 8), 11, True, True, 6),  # it is 9, the close is 10
        ((), 6, True, True, 3),  # it is 4 or was before, the close is 5
        ((), 6, True, False, 4),
    ],
)
def test_an_adopted_process_goes_on_from_the_oldest_event_there_is(
    outputs: tuple[int, ...], next_seq: int, exited: bool, closed: bool, last: int
) -> None:
    found = tuple(Output(seq, "stdout", b"x") for seq in outputs)
    page = ReadPage(found, next_seq, exited, 3 if exited else None, closed, None, False)
    assert last_before(page) == last
    events = Ordering(last_published=last).catch_up(page)
    assert [e.seq for e in events if isinstance(e, Output)] == list(outputs)
    assert sum(isinstance(e, Exited) for e in events) == exited
    assert sum(isinstance(e, Closed) for e in events) == closed


def test_looks_at_a_quiet_process_grow_rare_and_come_while_the_server_still_has_its_end() -> None:
    waits = [next_look_s()]
    while next_look_s(waits[-1]) != waits[-1]:
        waits.append(next_look_s(waits[-1]))
    assert waits == [4.0, 8.0, 16.0]
    # The look before may have seen an event that came just before the one that was lost.
    assert max(waits) + min(waits) < CLOSED_RETENTION_S
