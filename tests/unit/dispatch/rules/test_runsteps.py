import itertools

import pytest

from holdfast.dispatch.rules.runsteps import ANSWERED, ANSWERED_S, TABLE, RunEvent, RunStep, after, farewell_s


def walk(*events: RunEvent) -> list[RunStep]:
    steps = [RunStep.FIND]
    for event in events:
        steps.append(after(steps[-1], event))
    return steps


def test_a_run_that_begins_here_goes_through_every_step() -> None:
    assert walk(RunEvent.MISSING, RunEvent.STARTED, *[RunEvent.DONE] * 5) == list(RunStep)


def test_a_worker_that_is_found_is_followed_and_not_started_again() -> None:
    assert RunStep.BEGIN not in walk(RunEvent.FOUND, *[RunEvent.DONE] * 5)


@pytest.mark.parametrize("events", [(RunEvent.OVER,), (RunEvent.MISSING, RunEvent.REFUSED)])
def test_without_a_worker_nothing_is_followed_or_kept_but_the_rest_is_done(
    events: tuple[RunEvent, ...],
) -> None:
    steps = walk(*events, *[RunEvent.DONE] * 3)
    assert not {RunStep.FOLLOW, RunStep.KEEP} & set(steps)
    assert steps[-4:] == [RunStep.CHECK, RunStep.TEAR_DOWN, RunStep.FORGET, RunStep.END]


def test_what_is_not_in_the_table_cannot_happen() -> None:
    for step, event in set(itertools.product(RunStep, RunEvent)) - set(TABLE):
        with pytest.raises(AssertionError, match=step.name):
            after(step, event)


def test_every_step_can_be_reached_and_only_the_last_ends() -> None:
    assert set(TABLE.values()) == set(RunStep)
    assert {step for step, _ in TABLE} == set(RunStep) - {RunStep.END}


def test_a_worker_that_answered_may_end_by_itself() -> None:
    assert {farewell_s(outcome) for outcome in ANSWERED} == {ANSWERED_S}
    assert [farewell_s(outcome) for outcome in ("cancelled", "lost", None)] == [0.0] * 3


def test_a_start_that_came_to_nothing_is_begun_again_and_not_kept_as_work() -> None:
    steps = walk(RunEvent.MISSING, RunEvent.STARTED, RunEvent.UNDONE, RunEvent.MISSING)
    assert steps[-2:] == [RunStep.FIND, RunStep.BEGIN]
    assert RunStep.KEEP not in steps
