import pytest

from holdfast.board.rules.assign import TOLERANCE_MS, ClockReading, find_future, find_jump

LEASE_MS = 60_000
HOUR_MS = 3_600_000


def at(wall_ms: int, steady_ms: int) -> ClockReading:
    return ClockReading(wall_ms, steady_ms)


@pytest.mark.parametrize("passed_ms", [0, 1000, 48 * HOUR_MS])
def test_time_that_passes_on_both_clocks_is_no_jump(passed_ms: int) -> None:
    assert find_jump(900, at(1000 + passed_ms, 100 + passed_ms), lease_ms=LEASE_MS) == 0


@pytest.mark.parametrize("by_ms", [3 * HOUR_MS, -3 * HOUR_MS, TOLERANCE_MS + 1, -TOLERANCE_MS - 1])
def test_a_wall_clock_that_was_set_has_jumped_by_that(by_ms: int) -> None:
    assert find_jump(900, at(2000 + by_ms, 1100), lease_ms=LEASE_MS) == by_ms


def test_a_machine_that_slept_has_jumped_ahead() -> None:
    """The steady clock stood still meanwhile."""
    assert find_jump(900, at(1000 + HOUR_MS, 100), lease_ms=LEASE_MS) == HOUR_MS


def test_whoever_looks_for_the_first_time_knows_of_no_jump() -> None:
    assert find_jump(None, at(3 * HOUR_MS, 5), lease_ms=LEASE_MS) == 0


def test_many_small_steps_are_a_jump_in_the_end() -> None:
    """The offset is that of the last jump."""
    steps = [find_jump(0, at(100 * n, 0), lease_ms=LEASE_MS) for n in range(TOLERANCE_MS // 100 + 2)]
    assert steps == [0] * (len(steps) - 1) + [TOLERANCE_MS + 100]


def test_a_short_lease_tolerates_less() -> None:
    assert find_jump(0, at(600, 0), lease_ms=2000) == 600
    assert find_jump(0, at(600, 0), lease_ms=LEASE_MS) == 0


def test_what_is_dated_a_little_later_than_now_is_not_of_the_future() -> None:
    assert find_future(1000) == 1000 + TOLERANCE_MS
