"""The record of one process: numbering, retention, and the rules of a read."""

from itertools import product

import pytest

from holdfast.server.processes.eventlog import MAX_BYTES, MAX_CHUNKS, Chunk, EventLog, EventPage
from tests.support.rows import every_row


def log_of(*sizes: int, max_bytes: int = MAX_BYTES, max_chunks: int = MAX_CHUNKS) -> EventLog:
    """Output of these sizes, numbered from 1."""
    made = EventLog(max_bytes=max_bytes, max_chunks=max_chunks)
    for size in sizes:
        made.output("stdout", b"x" * size)
    return made


def seqs(page: EventPage) -> list[int]:
    return [chunk.seq for chunk in page.chunks]


def test_one_counter_numbers_everything_from_one() -> None:
    log = EventLog()
    assert [log.output("stdout", b"a"), log.output("stderr", b"b"), log.exit(3), log.close()] == [1, 2, 3, 4]


def test_a_read_shows_the_output_as_it_came() -> None:
    log = EventLog()
    log.output("stdout", b"a")
    log.output("stderr", b"bc")
    expected = [Chunk(1, "stdout", b"a"), Chunk(2, "stderr", b"bc")]
    assert log.read(0, None) == EventPage(
        expected, 3, exited=False, exit_code=None, closed=False, denied=False
    )


@pytest.mark.parametrize(("code", "denied"), [(0, False), (1, True), (137, False), (-1, False)])
def test_exit_and_close_show_in_every_later_read(code: int, denied: bool) -> None:
    log = log_of(1)
    log.exit(code, denied=denied)
    assert log.read(1, None) == EventPage([], 3, exited=True, exit_code=code, closed=False, denied=denied)
    log.close()
    assert log.read(1, None) == EventPage([], 4, exited=True, exit_code=code, closed=True, denied=denied)


def test_output_may_follow_the_exit() -> None:
    log = EventLog()
    log.exit(0)
    assert log.output("stdout", b"late") == 2
    assert seqs(log.read(1, None)) == [2]


def test_nothing_follows_the_close() -> None:
    log = log_of(1)
    log.exit(0)
    log.close()
    with pytest.raises(AssertionError):
        log.output("stdout", b"x")
    with pytest.raises(AssertionError):
        log.exit(1)
    with pytest.raises(AssertionError):
        log.close()
    assert log.read(0, None) == EventPage([Chunk(1, "stdout", b"x")], 4, True, 0, True, False)


def test_a_process_exits_once_and_closes_only_after_that() -> None:
    log = EventLog()
    with pytest.raises(AssertionError):
        log.close()
    log.exit(0)
    with pytest.raises(AssertionError):
        log.exit(1)
    assert (log.exit_code, log.exited, log.closed) == (0, True, False)


@every_row("after", range(5))
def test_only_output_after_the_cursor_is_returned(after: int) -> None:
    assert seqs(log_of(1, 1, 1).read(after, None)) == list(range(after + 1, 4))


@every_row(
    ("max_bytes", "expected"),
    [
        (None, [1, 2, 3]),
        (0, [1]),  # the first always
        (1, [1]),
        (4, [1]),  # stop after the budget is reached
        (5, [1]),  # stop before what would exceed it
        (6, [1, 2]),
        (7, [1, 2]),
        (8, [1, 2, 3]),
        (100, [1, 2, 3]),
    ],
)
def test_the_byte_budget_is_soft_and_chunks_stay_whole(max_bytes: int | None, expected: list[int]) -> None:
    page = log_of(4, 2, 2).read(0, max_bytes)
    assert seqs(page) == expected
    assert [len(chunk.data) for chunk in page.chunks] == [4, 2, 2][: len(expected)]


def test_an_empty_chunk_after_a_spent_budget_waits_for_the_next_read() -> None:
    assert seqs(log_of(2, 0, 2).read(0, 2)) == [1]
    assert seqs(log_of(1, 0, 2).read(0, 2)) == [1, 2]


@every_row(
    ("after", "max_bytes", "next_seq"),
    [
        (0, None, 5),  # no budget: the next unassigned number, exit and close included
        (2, None, 5),
        (9, None, 5),
        (0, 1, 2),  # budget and output: after the last returned
        (1, 100, 3),
        (2, 1, 5),  # budget and no output: the next unassigned number
        (9, 0, 5),
    ],
)
def test_the_next_number_covers_what_was_returned(after: int, max_bytes: int | None, next_seq: int) -> None:
    log = log_of(1, 1)
    log.exit(0)
    log.close()
    assert log.read(after, max_bytes).next_seq == next_seq


def test_following_the_next_number_sees_everything_once() -> None:
    log = log_of(3, 1, 2, 5, 1)
    log.exit(0)
    seen, after = [], 0
    while (page := log.read(after, 3)).chunks:
        seen += seqs(page)
        after = page.next_seq - 1
    assert seen == [1, 2, 3, 4, 5]
    assert after == 5
    assert page.next_seq == 7


def test_an_untouched_log_makes_its_reader_wait() -> None:
    log = EventLog()
    assert not log.ready(0)
    assert log.read(0, None) == EventPage([], 1, exited=False, exit_code=None, closed=False, denied=False)


@pytest.mark.parametrize(("after", "ready"), [(0, True), (1, True), (2, False), (3, False)])
def test_output_after_the_cursor_need_not_be_waited_for(after: int, ready: bool) -> None:
    assert log_of(1, 1).ready(after) is ready


@pytest.mark.parametrize(("after", "ready"), [(0, True), (1, True), (2, False), (3, False)])
def test_an_exit_wakes_only_the_reader_who_has_not_consumed_it(after: int, ready: bool) -> None:
    log = log_of(1)
    log.exit(0)
    assert log.ready(after) is ready


@pytest.mark.parametrize(("after", "ready"), [(1, True), (2, True), (3, False)])
def test_late_output_wakes_the_reader_of_the_exit(after: int, ready: bool) -> None:
    log = log_of(1)
    log.exit(0)
    log.output("stdout", b"late")
    assert log.ready(after) is ready


@pytest.mark.parametrize("after", [0, 3, 4, 100])
def test_nobody_waits_for_a_closed_process(after: int) -> None:
    log = log_of(1)
    log.exit(0)
    log.close()
    assert log.ready(after)


@every_row(("after", "max_bytes", "ended"), [*product(range(6), [None, 0, 2], [0, 1, 2])])
def test_ready_is_the_return_condition_of_a_read(after: int, max_bytes: int | None, ended: int) -> None:
    log = log_of(1, 1)
    if ended > 0:
        log.exit(0)
    if ended > 1:
        log.close()
    page = log.read(after, max_bytes)
    condition = bool(page.chunks) or page.closed or (page.exited and after < page.next_seq - 1)
    assert log.ready(after) is condition


def test_the_oldest_chunks_go_first_and_whole_when_bytes_run_out() -> None:
    log = log_of(3, 3, 3, max_bytes=6)
    assert seqs(log.read(0, None)) == [2, 3]
    log.output("stdout", b"x")
    assert seqs(log.read(0, None)) == [3, 4]


def test_the_oldest_chunks_go_first_when_their_number_runs_out() -> None:
    log = log_of(0, 0, 0, 0, max_chunks=2)
    assert seqs(log.read(0, None)) == [3, 4]


def test_what_is_larger_than_the_window_is_numbered_but_not_kept() -> None:
    log = log_of(2, 7, max_bytes=6)
    assert log.read(0, None) == EventPage([], 3, exited=False, exit_code=None, closed=False, denied=False)
    assert not log.ready(0)
    log.output("stdout", b"xy")
    assert seqs(log.read(0, 0)) == [3]


def test_a_reader_behind_the_window_sees_the_gap() -> None:
    page = log_of(3, 3, 3, max_bytes=3).read(1, 1)
    assert seqs(page) == [3]
    assert page.next_seq == 4


def test_output_is_kept_after_the_end() -> None:
    log = log_of(3, 3, max_bytes=6)
    log.exit(0)
    log.close()
    assert seqs(log.read(0, None)) == [1, 2]


def test_the_window_is_that_of_the_protocol() -> None:
    assert (MAX_BYTES, MAX_CHUNKS) == (1_048_576, 50_000)
    many = log_of(*[1] * (MAX_CHUNKS + 1))
    assert (seqs(many.read(0, 0)), len(many.read(0, None).chunks)) == ([2], MAX_CHUNKS)
    large = log_of(*[8192] * (MAX_BYTES // 8192 + 1))
    assert (seqs(large.read(0, 0)), len(large.read(0, None).chunks)) == ([2], MAX_BYTES // 8192)
