"""One policy for every run that ended without an answer: whether to retry, and when. Pure module.

A claim spends one of a task's `max_attempts`, whatever the result of the run, so no mixture of failures runs
a task more often than that. Only a person grants new attempts. A failed handoff gives its attempt back,
because the work was done.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.board.rules.transitions import Move

DEFAULT_MAX_ATTEMPTS: Final = 3
MOST_ATTEMPTS: Final = 100  # more than that is a typing error
FIRST_DELAY_MS: Final = 5_000
MAX_DELAY_MS: Final = 15 * 60_000  # a fault that lasts longer is not cured by waiting longer
QUOTA_DELAY_MS: Final = 5 * 60_000  # when the provider did not announce the reset
JITTER: Final = 0.25  # of the delay, on top: tasks that failed together do not come back together


class FailureKind(StrEnum):
    """Why a run ended without an answer."""

    QUOTA = "quota"
    AUTH = "auth"
    INFRA = "infra"
    HANDOFF = "handoff"
    TASK = "task"
    INTERNAL = "internal"  # a fault of Holdfast itself, whatever the worker did


_WORDS: Final = {
    FailureKind.QUOTA: "the quota of its provider is used up",
    FailureKind.INFRA: "its worker could not be run, or was lost",
    FailureKind.TASK: "its work did not succeed",
    FailureKind.INTERNAL: "Holdfast failed on it itself, and what is known of that is kept with the run",
}


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What becomes of the task. `wake_ms` goes with WAIT; `spent` is the number of attempts charged."""

    move: Move
    reason: str
    wake_ms: int | None = None
    spent: int = 1


def decide_retry(
    failure: FailureKind,
    *,
    attempts: int,
    max_attempts: int,
    now_ms: int,
    jitter: float = 0.0,
    resets_ms: int | None = None,
) -> RetryDecision:
    """Decide what follows a failed run.

    `attempts` includes the run that has just ended; `jitter` is a random number from 0 to 1.
    """
    if failure is FailureKind.HANDOFF:
        return RetryDecision(Move.MISS_HANDOFF, "the report of the work is missing", spent=0)
    if failure is FailureKind.AUTH:
        return RetryDecision(Move.BLOCK, "the worker is not allowed in: check its credentials")
    if attempts >= max_attempts:
        tried = f"{attempts} of {max_attempts} attempts"
        return RetryDecision(Move.FAIL, f"failed: {_WORDS[failure]} ({tried})")
    if failure is FailureKind.QUOTA:
        due = resets_ms if resets_ms is not None else now_ms + QUOTA_DELAY_MS
        spread = round(JITTER * jitter * FIRST_DELAY_MS)
        # At least the usual back-off: earlier runs may have failed repeatedly with a reset "in a second".
        return RetryDecision(Move.WAIT, "quota", wake_ms=max(due, now_ms + delay_ms(attempts, 0.0)) + spread)
    return RetryDecision(Move.WAIT, f"cool-down after {failure}", wake_ms=now_ms + delay_ms(attempts, jitter))


def delay_ms(attempts: int, jitter: float) -> int:
    """The back-off: doubles with every attempt up to a bound."""
    plain = min(FIRST_DELAY_MS << min(attempts - 1, 20), MAX_DELAY_MS)
    return plain + round(plain * JITTER * jitter)
