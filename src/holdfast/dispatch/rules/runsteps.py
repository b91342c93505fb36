"""The life of one run as a table: which step follows which. Pure module.

FIND      is there a worker under the run's name? Whoever comes after a crash finds what was started before
BEGIN     workspace, capability, prompt; then the worker is started
FOLLOW    until its leader ends, the board says that the run is over, or its budget is spent
KEEP      outbox read, changes, output and report kept, the board told how it ended
CHECK     the commands that must succeed before the work counts
TEAR_DOWN the script of its worker profile
FORGET    the mark that says somebody owes this run its end is removed

A driver that fails in any of them begins again at FIND, in this process or in the next.
"""

import enum
from collections.abc import Mapping
from typing import Final


class RunStep(enum.Enum):
    FIND = enum.auto()
    BEGIN = enum.auto()
    FOLLOW = enum.auto()
    KEEP = enum.auto()
    CHECK = enum.auto()
    TEAR_DOWN = enum.auto()
    FORGET = enum.auto()
    END = enum.auto()


class RunEvent(enum.Enum):
    FOUND = enum.auto()  # a worker, which may have ended
    MISSING = enum.auto()  # there never was one
    OVER = enum.auto()  # there never was one, and the run is over
    STARTED = enum.auto()
    REFUSED = enum.auto()  # it could not be started, and the board was told; or the run was over meanwhile
    UNDONE = enum.auto()  # its start on another machine came to nothing: it is to be begun again
    DONE = enum.auto()


TABLE: Final[Mapping[tuple[RunStep, RunEvent], RunStep]] = {
    (RunStep.FIND, RunEvent.FOUND): RunStep.FOLLOW,
    (RunStep.FIND, RunEvent.MISSING): RunStep.BEGIN,
    (RunStep.FIND, RunEvent.OVER): RunStep.CHECK,
    (RunStep.BEGIN, RunEvent.STARTED): RunStep.FOLLOW,
    (RunStep.BEGIN, RunEvent.REFUSED): RunStep.CHECK,
    (RunStep.FOLLOW, RunEvent.DONE): RunStep.KEEP,
    (RunStep.FOLLOW, RunEvent.UNDONE): RunStep.FIND,
    (RunStep.KEEP, RunEvent.DONE): RunStep.CHECK,
    (RunStep.CHECK, RunEvent.DONE): RunStep.TEAR_DOWN,
    (RunStep.TEAR_DOWN, RunEvent.DONE): RunStep.FORGET,
    (RunStep.FORGET, RunEvent.DONE): RunStep.END,
}

ANSWERED_S: Final = 5.0  # for a worker to end by itself once it has answered
# Outcomes that the worker itself brought about; any other end of a run is somebody else's.
ANSWERED: Final = frozenset({"completed", "blocked", "waiting", "review_requested"})


def after(step: RunStep, event: RunEvent) -> RunStep:
    """Raises AssertionError where a step cannot have ended so."""
    try:
        return TABLE[step, event]
    except KeyError:
        raise AssertionError(f"{step.name} cannot end with {event.name}") from None


def farewell_s(outcome: str | None) -> float:
    """How long a worker may go on by itself when its run is over, as the board has it."""
    return ANSWERED_S if outcome in ANSWERED else 0.0
