"""The table is the specification; these are the properties it must have."""

import itertools

import pytest

from holdfast.board.rules.transitions import (
    ENDS,
    TABLE,
    TIMED,
    WHO,
    Actor,
    Move,
    TaskStatus,
    apply,
    moves,
    pairs,
    settle,
)
from holdfast.errors import IllegalTransition
from tests.support.rows import every_row


@every_row(("status", "move"), sorted(set(itertools.product(TaskStatus, Move)) - set(TABLE)))
def test_a_move_that_is_not_in_the_table_is_refused_to_everybody(status: TaskStatus, move: Move) -> None:
    for actor in Actor:
        with pytest.raises(IllegalTransition):
            apply(status, move, actor)


@every_row(("status", "move"), sorted(TABLE))
def test_a_move_is_for_those_who_may_make_it(status: TaskStatus, move: Move) -> None:
    for actor in Actor:
        if actor in WHO[move] and (actor is not Actor.WORKER or status is TaskStatus.RUNNING):
            assert apply(status, move, actor) is TABLE[status, move]
            assert move in moves(status, actor)
        else:
            with pytest.raises(IllegalTransition):
                apply(status, move, actor)


def test_every_move_has_somebody_who_may_make_it() -> None:
    assert set(WHO) == set(Move) == {move for _, move in TABLE}
    assert all(WHO.values())


@every_row("status", sorted(set(TaskStatus) - {TaskStatus.CANCELLED, TaskStatus.ARCHIVED}))
def test_every_task_that_nobody_gave_up_can_still_get_done(status: TaskStatus) -> None:
    reached = {status}
    for _ in TaskStatus:
        reached |= {after for before, after in pairs() if before in reached}
    assert TaskStatus.DONE in reached


def test_what_is_done_cancelled_or_archived_is_never_worked_on_again() -> None:
    final = {TaskStatus.DONE, TaskStatus.CANCELLED, TaskStatus.ARCHIVED}
    assert {after for before, after in pairs() if before in final} == {TaskStatus.ARCHIVED}


def test_only_a_claim_starts_work() -> None:
    assert {move for (_, move), after in TABLE.items() if after is TaskStatus.RUNNING} == {Move.CLAIM}
    assert {status for status, move in TABLE if move is Move.CLAIM} == {TaskStatus.READY}


def test_only_a_person_moves_on_what_waits_for_a_person() -> None:
    waiting = {TaskStatus.WAITING_HUMAN, TaskStatus.HANDOFF_FAILED, TaskStatus.TRIAGE}
    for status in waiting:
        assert moves(status, Actor.WORKER) <= moves(TaskStatus.RUNNING, Actor.WORKER)
        leaving = {move for move in moves(status, Actor.SYSTEM) if TABLE[status, move] not in waiting}
        assert leaving == set()


def test_besides_a_person_only_the_checks_of_a_task_end_its_review() -> None:
    assert moves(TaskStatus.REVIEW, Actor.SYSTEM) == {Move.BLOCK, Move.CONFIRM, Move.REQUEST_CHANGES}
    assert {before for before, move in TABLE if move is Move.CONFIRM} == {TaskStatus.REVIEW}
    assert WHO[Move.CONFIRM] == {Actor.SYSTEM}


def test_only_the_clock_or_a_person_moves_on_what_waits_for_the_clock() -> None:
    for status in TIMED:
        assert moves(status, Actor.SYSTEM) - {Move.BLOCK} == {Move.WAKE}


@every_row("status", TaskStatus)
def test_free_tasks_are_ready_or_wait_for_their_parents(status: TaskStatus) -> None:
    if status in (TaskStatus.READY, TaskStatus.TODO):
        assert settle(status, 0) is TaskStatus.READY
        assert settle(status, 2) is TaskStatus.TODO
    else:
        assert settle(status, 0) is settle(status, 2) is status


def test_a_change_of_status_is_a_move_or_a_move_to_ready_that_has_to_wait() -> None:
    direct = {(before, after) for (before, _), after in TABLE.items()}
    assert direct <= pairs()
    assert {after for _, after in pairs() - direct} == {TaskStatus.TODO}
    assert all(before is not after for before, after in pairs())


def test_ends_are_left_only_by_a_person() -> None:
    assert all(not moves(status, Actor.SYSTEM) for status in ENDS)
