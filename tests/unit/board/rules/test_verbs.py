"""The table of verbs: who may say what, and what the store makes of it."""

import inspect

import msgspec
import pytest

from holdfast.board.rules import verbs
from holdfast.board.rules.rows import MAX_TITLE, Edit, NewTask, WorkspaceKind
from holdfast.board.rules.transitions import WHO, Actor, Move
from holdfast.board.rules.verbs import ROWS, BoardCaller, Verb, find_verb, verbs_of
from holdfast.board.store import Store
from holdfast.errors import MethodNotFound, UsageError
from tests.support.rows import every_row

CREATE = find_verb("create", BoardCaller.PERSON)
EXAMPLES = {"title": "t", "summary": "s", "question": "q", "body": "b", "parent": "t_1", "child": "t_2"}
EXAMPLES |= {"answer": "yes"}


def example(verb: Verb) -> dict[str, object]:
    needed = [field.name for field in msgspec.structs.fields(verbs.form(verb)) if field.required]
    return {name: EXAMPLES.get(name, "x") if name != "data" else b"x" for name in needed}


def test_every_caller_has_each_verb_once() -> None:
    for caller in BoardCaller:
        rows = [verb.name for verb in ROWS if caller in verb.callers]
        assert len(rows) == len(set(rows))


def test_every_move_of_a_person_can_be_made() -> None:
    moves = {verb.name for verb in ROWS if verb.method == "move"}
    assert moves == {move for move in Move if Actor.PERSON in WHO[move]}


@every_row("verb", ROWS, ids=lambda verb: f"{verb.name}-{verb.method}")
def test_the_store_takes_every_word(verb: Verb) -> None:
    given = verbs.parse(verb, example(verb))
    words = verb.words(verbs.settle(verb, given, 0))
    method = inspect.signature(getattr(Store, verb.method))
    if BoardCaller.WORKER in verb.callers:
        first = ["ref"] if verb.anew else ["ref", "envelope"]
        more = {}
    else:
        first = ["on"] if verb.target else []
        more = {"who": "ann"} | ({"key": "k"} if verb.keyed else {})
    method.bind("self", *first, **words, **more)


@every_row("verb", ROWS, ids=lambda verb: f"{verb.name}-{verb.method}")
def test_every_field_has_words_and_texts_a_bound(verb: Verb) -> None:
    _, components = msgspec.json.schema_components([verbs.form(verb)])
    assert verb.about.endswith(".")
    for name, said in components[verbs.form(verb).__name__]["properties"].items():
        kinds = said.get("anyOf", [said])
        assert name == "data" or any("description" in kind for kind in [said, *kinds]), name
        assert all("maxLength" in kind or "enum" in kind for kind in kinds if kind.get("type") == "string"), (
            name
        )


def test_an_edit_changes_what_can_be_asked_for() -> None:
    stays = {"assignee", "parents", "triage", "wake_ms"}  # has a verb of its own, or is a move
    assert set(Edit.__struct_fields__) == set(NewTask.__struct_fields__) - stays


def test_a_new_task_has_everything_that_was_asked_for() -> None:
    given = verbs.parse(
        CREATE,
        b'{"title": "t", "body": "b", "assignee": "a", "priority": 2, "parents": ["p"], "key": "k",'
        b' "workspace_kind": "dir", "workspace": "/srv/x", "max_attempts": 1, "max_runtime_s": 9,'
        b' "in_s": 2.5, "reviewer": "ann", "checks": ["make"], "pool": "g", "max_tokens": 5, "max_cost": 6}',
    )
    assert verbs.settle(CREATE, given, 1000) == NewTask(
        title="t",
        body="b",
        assignee="a",
        priority=2,
        parents=("p",),
        wake_ms=3500,
        workspace_kind=WorkspaceKind.DIR,
        workspace="/srv/x",
        max_attempts=1,
        max_runtime_s=9,
        reviewer="ann",
        checks=("make",),
        pool="g",
        max_tokens=5,
        max_cost=6,
    )


def test_a_worker_does_not_say_where_a_task_is_worked_on_or_what_it_may_use() -> None:
    theirs, ours = verbs.form(find_verb("create", BoardCaller.WORKER)), verbs.form(CREATE)
    kept = set(ours.__struct_fields__) - set(theirs.__struct_fields__)
    assert kept >= {"workspace", "workspace_kind", "checks", "reviewer", "pool", "max_tokens", "max_cost"}


def test_a_time_is_on_the_clock_of_the_store() -> None:
    verb = find_verb("schedule", BoardCaller.PERSON)
    assert verbs.settle(verb, verbs.parse(verb, {"in_s": 5}), 1000) == verbs.Schedule(wake_ms=6000)
    with pytest.raises(UsageError):
        verbs.parse(verb, {"in_s": 0})


def test_a_workspace_does_not_depend_on_where_the_server_was_started() -> None:
    given = verbs.parse(CREATE, {"title": "t", "workspace_kind": "dir", "workspace": "x"})
    with pytest.raises(UsageError):
        verbs.settle(CREATE, given, 0)


@every_row("data", [b"{", b"[]", b'{"reason": 1}', b'{"other": "x"}', b"\xff", b"[" * 100_000])
def test_what_is_no_form_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        verbs.parse(find_verb("cancel", BoardCaller.PERSON), data)


@every_row(
    ("kind", "words"),
    [
        (verbs.Say, {"body": " "}),
        (verbs.Say, {"body": "\0"}),
        (verbs.LinkArgs, {"parent": "", "child": "t"}),
        (verbs.LinkArgs, {"parent": "x" * (MAX_TITLE + 1), "child": "t"}),
        (verbs.BlockArgs, {"question": "q", "options": ("x" * (MAX_TITLE + 1),)}),
        (verbs.BlockArgs, {"question": "q", "options": ("x",) * (verbs.MAX_OPTIONS + 1)}),
        (verbs.AttachFromRun, {"name": "a", "data": b"x" * (verbs.MAX_DATA + 1)}),
    ],
)
def test_bounds_hold_for_values_as_for_json(kind: type[verbs.Args], words: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        kind(**words)


def test_who_has_no_such_verb_is_told_which_there_are() -> None:
    for caller, name in (
        (BoardCaller.WORKER, "cancel"),
        (BoardCaller.AGENT, "edit"),
        (BoardCaller.PERSON, "heartbeat"),
    ):
        with pytest.raises(MethodNotFound) as caught:
            find_verb(name, caller)
        assert set(verbs_of(caller)) == set((caught.value.remedy or "").removeprefix("one of ").split(", "))
