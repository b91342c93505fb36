from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.agents.catalog.output import WINDOW
from holdfast.agents.evidence.evidence import WorkerState
from holdfast.dispatch.rules.liveness import (
    FEW,
    LOOP_CALLS,
    LOOP_S,
    NOTHING_S,
    STILL_S,
    CallCounts,
    LivenessLimits,
    LivenessSample,
    LivenessWatch,
    span,
)
from tests.support.rows import every_row

LIMITS = LivenessLimits()
BUSY = CallCounts(fresh=1, in_a_row=1, last="make", recent=1, different=1)
AT_REST = LivenessSample(
    at=0.0, state=WorkerState.RUNNING, state_s=0.0, calls=BUSY, files=(3, 100), note="begun"
)
LOOPING = replace(BUSY, in_a_row=LOOP_CALLS, last="npm test")
CIRCLING = replace(BUSY, recent=WINDOW, different=FEW)


def after(seconds: float, look: LivenessSample, *, first: LivenessSample = AT_REST) -> str:
    """What is said about a worker that looks like this so much later than at first."""
    watch = LivenessWatch(LIMITS)
    assert watch.look(first) == ""
    return watch.look(replace(look, at=seconds))


@every_row(
    ("look", "seconds", "words"),
    [
        (
            replace(AT_REST, calls=LOOPING),
            LOOP_S,
            "the same call 12 times in a row (npm test), nothing changed",
        ),
        (replace(AT_REST, calls=CIRCLING), LOOP_S, "3 different calls among the last 30, nothing changed"),
        (AT_REST, NOTHING_S, "it is running, but nothing changed for 30 min"),
        (replace(AT_REST, files=None), NOTHING_S, "nothing new for 30 min"),
        (replace(AT_REST, calls=None), NOTHING_S, "nothing changed"),
        (
            replace(AT_REST, state=WorkerState.WAITING, state_s=STILL_S, about="yes?"),
            1,
            "waiting for 5 min: yes?",
        ),
        (replace(AT_REST, state=WorkerState.BLOCKED, state_s=STILL_S), 1, "blocked for 5 min"),
        (replace(AT_REST, state=WorkerState.STALLED, state_s=STILL_S), 1, "stalled for 5 min"),
    ],
)
def test_a_worker_looks_stuck_with_a_reason_in_words(
    look: LivenessSample, seconds: float, words: str
) -> None:
    assert words in after(seconds, look)


@every_row(
    ("look", "seconds"),
    [
        (replace(AT_REST, calls=LOOPING), LOOP_S - 1),
        (replace(AT_REST, calls=replace(LOOPING, in_a_row=LOOP_CALLS - 1)), LOOP_S),
        (replace(AT_REST, calls=replace(CIRCLING, different=FEW + 1)), LOOP_S),
        (replace(AT_REST, calls=replace(CIRCLING, recent=WINDOW - 1)), LOOP_S),
        (AT_REST, NOTHING_S - 1),
        (replace(AT_REST, state=WorkerState.WAITING, state_s=STILL_S - 1), 1),
        (replace(AT_REST, state=WorkerState.COMPLETED, state_s=STILL_S), NOTHING_S),
        (replace(AT_REST, files=(4, 100)), NOTHING_S),
        (replace(AT_REST, files=(3, 101), calls=LOOPING), NOTHING_S),
        (replace(AT_REST, note="half way", calls=LOOPING), NOTHING_S),
        (replace(AT_REST, calls=replace(LOOPING, fresh=2)), NOTHING_S),
        (replace(AT_REST, state=WorkerState.WAITING, state_s=STILL_S, calls=LOOPING, asks=True), NOTHING_S),
    ],
)
def test_a_worker_that_gets_on_does_not_look_stuck(look: LivenessSample, seconds: float) -> None:
    assert after(seconds, look) == ""


def test_how_long_a_worker_takes_to_start_does_not_count() -> None:
    watch = LivenessWatch(LIMITS)
    for seconds in (0.0, NOTHING_S, NOTHING_S * 2):
        assert watch.look(replace(AT_REST, at=seconds, state=WorkerState.STARTING)) == ""
    assert watch.look(replace(AT_REST, at=NOTHING_S * 3)) == ""
    assert watch.look(replace(AT_REST, at=NOTHING_S * 4)) != ""


def test_how_long_a_person_takes_to_decide_about_a_host_does_not_count() -> None:
    watch = LivenessWatch(LIMITS)
    for seconds in (0.0, NOTHING_S - 1):
        assert watch.look(replace(AT_REST, at=seconds)) == ""
    for seconds in (NOTHING_S + 1, NOTHING_S * 2):
        assert watch.look(replace(AT_REST, at=seconds, asks=True)) == ""
    assert watch.look(replace(AT_REST, at=NOTHING_S * 2 + 1)) == ""
    assert watch.look(replace(AT_REST, at=NOTHING_S * 3)) == ""
    assert watch.look(replace(AT_REST, at=NOTHING_S * 3 + 1)) != ""


def test_of_a_worker_of_which_nothing_can_be_seen_nothing_is_said() -> None:
    blind = replace(AT_REST, calls=None, files=None)
    assert after(NOTHING_S * 10, blind, first=blind) == ""


@pytest.mark.parametrize(
    "moved",
    [
        lambda look: replace(look, files=(4, 100)),
        lambda look: replace(look, note="at last"),
        lambda look: replace(look, calls=replace(BUSY, fresh=2)),
    ],
    ids=["files", "note", "call"],
)
def test_it_moves_again_with_any_sign_of_progress(moved: Callable[[LivenessSample], LivenessSample]) -> None:
    watch = LivenessWatch(LIMITS)
    watch.look(AT_REST)
    stuck = replace(AT_REST, at=NOTHING_S)
    assert watch.look(stuck)
    assert watch.look(replace(moved(stuck), at=NOTHING_S + 1)) == ""


def test_a_reason_keeps_its_words_until_there_is_another_one() -> None:
    watch = LivenessWatch(LIMITS)
    watch.look(AT_REST)
    said = watch.look(replace(AT_REST, at=NOTHING_S))
    assert watch.look(replace(AT_REST, at=NOTHING_S * 2)) == said
    loop = watch.look(replace(AT_REST, at=NOTHING_S * 2 + 1, calls=LOOPING))
    assert "in a row" in loop


def test_what_was_said_before_a_restart_stands_until_something_moves() -> None:
    watch = LivenessWatch(LIMITS, stuck="the same call 12 times")
    assert watch.look(AT_REST) == "the same call 12 times"
    assert watch.look(replace(AT_REST, at=NOTHING_S - 1)) == "the same call 12 times"
    assert watch.look(replace(AT_REST, at=NOTHING_S - 1, files=(9, 9))) == ""
    silent = LivenessWatch(LIMITS, stuck="waiting for 5 min")
    blind = replace(AT_REST, calls=None, files=None)
    assert silent.look(blind) == "waiting for 5 min"
    assert silent.look(replace(blind, at=NOTHING_S)) == ""


@pytest.mark.parametrize(("seconds", "words"), [(45, "45 s"), (600, "10 min"), (7200, "2 h")])
def test_a_time_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert span(seconds) == words
