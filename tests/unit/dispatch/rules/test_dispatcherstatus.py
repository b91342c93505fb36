"""What a dispatcher says of itself is what happened."""

import msgspec

from holdfast.dispatch.rules.dispatcherstatus import (
    MAX_ERROR,
    MAX_STARTS,
    SAME_S,
    DispatcherReport,
    DispatcherStatus,
    is_news,
    quantile,
)
from tests.support.rows import every_row


@every_row(
    ("values", "share", "found"),
    [
        ([], 0.5, None),
        ([3.0], 0.5, 3.0),
        ([3.0], 0.95, 3.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([2.0, 1.0, 3.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.95, 95.0),
    ],
)
def test_a_quantile_is_one_of_the_values(values: list[float], share: float, found: float | None) -> None:
    assert quantile(values, share) == found


def test_a_new_one_has_done_nothing_yet() -> None:
    told = DispatcherStatus("h", 7, ["b"], 100.0).report(101.0, runs=[], profiles=["x"])
    assert (told.host, told.pid, told.boards, told.since, told.at) == ("h", 7, ["b"], 100.0, 101.0)
    assert (told.round_at, told.error_at, told.start_p50_s, told.start_p95_s) == (None, None, None, None)
    assert (told.claims, told.leases_renewed, told.starts, told.reloads) == (0, 0, 0, 0)


def test_everything_is_counted() -> None:
    status = DispatcherStatus("h", 7, ["b"], 100.0)
    status.so_far.round_at = 101.0
    status.so_far.claims += 1
    status.so_far.leases_renewed += 2
    for took_s in (0.25, 0.5, 0.75):
        status.count_start(took_s)
    status.note_error("x" * 1000, 102.0)
    told = status.report(103.0, runs=["r_2", "r_1"], profiles=["y", "x"])
    assert (told.round_at, told.claims, told.leases_renewed, told.starts) == (101.0, 1, 2, 3)
    assert (told.start_p50_s, told.start_p95_s) == (0.5, 0.75)
    assert (len(told.error), told.error_at) == (MAX_ERROR, 102.0)
    assert (told.runs, told.profiles) == (["r_1", "r_2"], ["x", "y"])


def test_only_the_newest_starts_say_how_long_one_takes() -> None:
    status = DispatcherStatus("h", 7, ["b"], 100.0)
    for took_s in [9.0] * 5 + [1.0] * MAX_STARTS:
        status.count_start(took_s)
    told = status.report(101.0, runs=[], profiles=[])
    assert (told.starts, told.start_p95_s) == (MAX_STARTS + 5, 1.0)


def test_a_file_that_is_wrong_is_told_of_until_one_is_right() -> None:
    status = DispatcherStatus("h", 7, ["b"], 100.0)
    status.note_reload("no agent `x`")
    told = status.report(101.0, runs=[], profiles=[])
    assert (told.reloads, told.reload_error) == (0, "no agent `x`")
    status.note_reload()
    told = status.report(101.0, runs=[], profiles=[])
    assert (told.reloads, told.reload_error) == (1, "")


def test_a_report_that_says_nothing_new_is_not_written_again_for_a_while() -> None:
    first = DispatcherReport(host="h", pid=1, boards=["b"], since=0.0, at=100.0, round_at=99.0)
    later = msgspec.structs.replace(first, at=102.0, round_at=101.0)
    assert is_news(None, first)
    assert not is_news(first, later)
    assert is_news(msgspec.structs.replace(first, round_at=None), later)  # the first look at the board
    assert is_news(first, msgspec.structs.replace(later, claims=1))
    assert is_news(first, msgspec.structs.replace(first, at=100.0 + SAME_S))
    assert is_news(first, msgspec.structs.replace(first, at=50.0))  # the clock was set back
