"""Bodies of requests as words for the store."""

import inspect

import pytest

from holdfast.board.rules.rows import NewTask, WorkspaceKind
from holdfast.board.rules.transitions import WHO, Actor, Move
from holdfast.board.store import Store
from holdfast.errors import UsageError
from holdfast.web import verbs
from tests.support.rows import every_row


def test_every_move_of_a_person_can_be_made() -> None:
    assert set(verbs.MOVES) == {move for move in Move if Actor.PERSON in WHO[move]}


@every_row("kind", verbs.MOVES.values())
def test_the_store_knows_every_word(kind: type[verbs.Moving]) -> None:
    known = inspect.signature(Store.move).parameters
    body = {verbs.Block: b'{"question": "q"}', verbs.Schedule: b'{"in_s": 5}'}.get(kind, b"{}")
    assert set(verbs.words(verbs.read(body, kind), 1000)) <= set(known)


def test_a_time_is_on_the_clock_of_the_store() -> None:
    assert verbs.words(verbs.Schedule(in_s=5), 1000) == {"wake_ms": 6000, "reason": ""}
    with pytest.raises(UsageError):
        verbs.words(verbs.Schedule(in_s=0), 1000)


@every_row("body", [b"{", b"[]", b'{"reason": 1}', b'{"other": "x"}', b"\xff"])
def test_a_body_that_is_wrong_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError):
        verbs.read(body, verbs.Because)


def test_no_body_is_an_empty_one() -> None:
    assert verbs.read(b"", verbs.Because) == verbs.Because(reason="")


def test_a_new_task_has_everything_that_was_asked_for() -> None:
    asked = verbs.read(
        b'{"title": "t", "body": "b", "assignee": "a", "priority": 2, "parents": ["p"], "key": "k",'
        b' "workspace_kind": "dir", "workspace": "/srv/x", "max_attempts": 1, "max_runtime_s": 9}',
        verbs.Create,
    )
    assert asked.key == "k"
    assert asked.task() == NewTask(
        title="t",
        body="b",
        assignee="a",
        priority=2,
        parents=("p",),
        workspace_kind=WorkspaceKind.DIR,
        workspace="/srv/x",
        max_attempts=1,
        max_runtime_s=9,
    )


def test_a_workspace_does_not_depend_on_where_the_server_was_started() -> None:
    with pytest.raises(UsageError):
        verbs.Create(title="t", workspace_kind=WorkspaceKind.DIR, workspace="x").task()
