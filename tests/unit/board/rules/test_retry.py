"""One budget for every kind of failure, and pauses that grow."""

import itertools

import pytest

from holdfast.board.rules.retry import (
    FIRST_DELAY_MS,
    MAX_DELAY_MS,
    FailureKind,
    RetryDecision,
    decide_retry,
    delay_ms,
)
from holdfast.board.rules.transitions import Move
from tests.support.rows import every_row

NOW = 1_000_000


def ask(
    failure: FailureKind, attempts: int = 1, *, resets_ms: int | None = None, jitter: float = 0.0
) -> RetryDecision:
    return decide_retry(
        failure, attempts=attempts, max_attempts=3, now_ms=NOW, jitter=jitter, resets_ms=resets_ms
    )


@every_row(
    "failures", [*itertools.product([FailureKind.QUOTA, FailureKind.INFRA, FailureKind.TASK], repeat=5)]
)
def test_no_mixture_of_failures_is_tried_more_often_than_allowed(failures: tuple[FailureKind, ...]) -> None:
    runs = 0
    for failure in failures:
        runs += 1
        if ask(failure, runs).move is not Move.WAIT:
            break
    assert runs == 3


@pytest.mark.parametrize("failure", [FailureKind.INFRA, FailureKind.TASK])
def test_pauses_double(failure: FailureKind) -> None:
    waits = [ask(failure, attempts).wake_ms for attempts in (1, 2)]
    assert waits == [NOW + FIRST_DELAY_MS, NOW + 2 * FIRST_DELAY_MS]


def test_a_pause_is_bounded_and_jitter_only_adds_to_it() -> None:
    assert delay_ms(500, 0.0) == MAX_DELAY_MS
    assert delay_ms(1, 0.0) < delay_ms(1, 0.5) < delay_ms(1, 1.0) <= 1.25 * delay_ms(1, 0.0)


def test_a_quota_is_waited_for_until_its_announced_reset() -> None:
    assert ask(FailureKind.QUOTA, resets_ms=NOW + 10**8).wake_ms == NOW + 10**8
    unannounced = ask(FailureKind.QUOTA).wake_ms
    assert unannounced is not None
    assert unannounced > NOW


def test_a_reset_in_a_moment_does_not_shorten_the_usual_pause() -> None:
    for attempts in (1, 2):
        for resets_ms in (NOW - 77, NOW + 77):
            found = ask(FailureKind.QUOTA, attempts, resets_ms=resets_ms)
            assert found.wake_ms == NOW + delay_ms(attempts, 0.0)


def test_a_missing_report_costs_nothing_and_is_not_run_again() -> None:
    assert ask(FailureKind.HANDOFF, 3) == RetryDecision(
        Move.MISS_HANDOFF, "the report of the work is missing", spent=0
    )


def test_refused_credentials_need_a_person() -> None:
    assert ask(FailureKind.AUTH).move is Move.BLOCK


@pytest.mark.parametrize("failure", [FailureKind.QUOTA, FailureKind.INFRA, FailureKind.TASK])
def test_the_last_attempt_fails_for_good(failure: FailureKind) -> None:
    found = ask(failure, 3)
    assert found.move is Move.FAIL
    assert found.wake_ms is None
