import itertools

import pytest

from holdfast.dispatch.rules.runsteps import ANSWERED, ANSWERED_S, TABLE, Event, Step, after, farewell_s


def walk(*events: Event) -> list[Step]:
    steps = [Step.FIND]
    for event in events:
        steps.append(after(steps[-1], event))
    return steps


def test_a_run_that_begins_here_goes_through_every_step() -> None:
    assert walk(Event.MISSING, Event.STARTED, *[Event.DONE] * 5) == list(Step)


def test_a_worker_that_is_found_is_followed_and_not_started_again() -> None:
    assert Step.BEGIN not in walk(Event.FOUND, *[Event.DONE] * 5)


@pytest.mark.parametrize("events", [(Event.OVER,), (Event.MISSING, Event.REFUSED)])
def test_without_a_worker_nothing_is_followed_or_kept_but_the_rest_is_done(events: tuple[Event, ...]) -> None:
    steps = walk(*events, *[Event.DONE] * 3)
    assert not {Step.FOLLOW, Step.KEEP} & set(steps)
    assert steps[-4:] == [Step.CHECK, Step.TEAR_DOWN, Step.FORGET, Step.END]


def test_what_is_not_in_the_table_cannot_happen() -> None:
    for step, event in set(itertools.product(Step, Event)) - set(TABLE):
        with pytest.raises(AssertionError, match=step.name):
            after(step, event)


def test_every_step_but_the_first_can_be_reached_and_only_the_last_ends() -> None:
    assert set(TABLE.values()) == set(Step) - {Step.FIND}
    assert {step for step, _ in TABLE} == set(Step) - {Step.END}


def test_a_worker_that_answered_may_end_by_itself() -> None:
    assert {farewell_s(outcome) for outcome in ANSWERED} == {ANSWERED_S}
    assert [farewell_s(outcome) for outcome in ("cancelled", "lost", None)] == [0.0] * 3
