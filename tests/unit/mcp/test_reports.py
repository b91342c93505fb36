"""A worker's tools as verbs: what is sent, what is the same call again, and what comes back."""

from typing import Any

import pytest

from holdfast.errors import ConnectionLost, UsageError
from holdfast.handoff import envelope
from holdfast.handoff.envelope import ID, Grant
from holdfast.mcp.reports import REPORTS, letter, told
from tests.support.rows import every_row

GRANT = Grant(board="b", task="t_1", run="r_1", generation=1, token="x", socket="", outbox="/o", command=[])
CALLS: dict[str, dict[str, Any]] = {
    "kanban_show": {},
    "kanban_complete": {"summary": "did it", "metadata": {"n": 1}},
    "kanban_block": {"reason": "which?", "kind": "needs_input"},
    "kanban_heartbeat": {"note": "half"},
    "kanban_comment": {"task_id": "t_1", "body": "hm"},
    "kanban_create": {"title": "next", "assignee": "coder", "parents": "t_9"},
    "kanban_link": {"parent_id": "t_2", "child_id": "t_3"},
}


def test_the_tools_of_a_worker_are_those_that_prompts_know() -> None:
    assert {report.tool.name for report in REPORTS} == set(CALLS)


@every_row("name", CALLS)
def test_a_call_is_arguments_that_the_verb_takes(name: str) -> None:
    sent = letter(name, CALLS[name], GRANT)
    envelope.read_args(sent.verb, sent.args)
    assert sent.ignored == []


def test_a_completion_keeps_all_that_was_said() -> None:
    sent = letter(
        "kanban_complete",
        {
            "summary": "did it",
            "result": "short",
            "metadata": {"n": 1},
            "created_cards": "t_2",
            "artifacts": ["/w/a.pdf"],
        },
        GRANT,
    )
    assert sent.args == {
        "summary": "did it",
        "metadata": {"n": 1, "result": "short", "created_cards": ("t_2",), "artifacts": ("/w/a.pdf",)},
    }


def test_a_result_alone_is_the_summary() -> None:
    assert letter("kanban_complete", {"result": "short"}, GRANT).args == {"summary": "short", "metadata": {}}


@pytest.mark.parametrize("given", [{}, {"summary": " ", "result": ""}, {"metadata": {"n": 1}}], ids=str)
def test_a_completion_without_words_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        letter("kanban_complete", given, GRANT)


def test_the_kind_of_a_block_is_kept_with_its_question() -> None:
    assert letter("kanban_block", {"reason": "which?", "kind": "capability"}, GRANT).args["question"] == (
        "[capability] which?"
    )
    assert letter("kanban_block", {"reason": "which?"}, GRANT).args["question"] == "which?"
    with pytest.raises(UsageError):
        letter("kanban_block", {"reason": "which?", "kind": "whim"}, GRANT)


@pytest.mark.parametrize("given", [{"triage": True}, {"initial_status": "blocked"}], ids=str)
def test_a_task_that_is_to_wait_for_a_person_does(given: dict[str, Any]) -> None:
    assert letter("kanban_create", {"title": "x", "assignee": "a", **given}, GRANT).args["triage"] is True


def test_what_the_board_has_not_is_told_back() -> None:
    sent = letter(
        "kanban_create",
        {"title": "x", "assignee": "a", "tenant": "t", "goal_mode": True, "skills": "s"},
        GRANT,
    )
    assert sent.ignored == ["goal_mode", "skills", "tenant"]


@pytest.mark.parametrize("name", ["kanban_complete", "kanban_block", "kanban_link"])
def test_the_same_words_again_are_the_same_envelope(name: str) -> None:
    first, again = (letter(name, {**CALLS[name], "board": board}, GRANT) for board in ("", "b"))
    assert first.id is not None
    assert ID.fullmatch(first.id)
    assert first.id == again.id


def test_other_words_are_another_envelope() -> None:
    ids = {letter("kanban_complete", {"summary": text}, GRANT).id for text in ("a", "b")}
    ids |= {letter("kanban_block", {"reason": text}, GRANT).id for text in ("a", "b")}
    assert len(ids) == 4


@pytest.mark.parametrize("name", ["kanban_show", "kanban_heartbeat", "kanban_comment", "kanban_create"])
def test_what_may_be_meant_twice_is_new_each_time(name: str) -> None:
    assert letter(name, CALLS[name], GRANT).id is None


def test_a_key_makes_one_task_of_two_calls() -> None:
    calls = [{**CALLS["kanban_create"], "idempotency_key": key} for key in ("k", "k", "other")]
    first, again, other = (letter("kanban_create", call, GRANT).id for call in calls)
    assert first == again
    assert first not in (None, other)


@pytest.mark.parametrize("name", ["kanban_show", "kanban_complete", "kanban_heartbeat", "kanban_comment"])
def test_a_worker_speaks_for_its_own_task_only(name: str) -> None:
    assert letter(name, {**CALLS[name], "task_id": "t_1", "board": "b"}, GRANT).verb
    for other in ({"task_id": "t_2"}, {"board": "other"}):
        with pytest.raises(UsageError):
            letter(name, {**CALLS[name], **other}, GRANT)


@pytest.mark.parametrize("name", ["kanban_list", "kanban_unblock", "worker_run", "x" * 500])
def test_a_worker_has_no_tool_of_a_supervisor(name: str) -> None:
    with pytest.raises(UsageError):
        letter(name, {}, GRANT)


TASK = {"id": "t_7", "status": "done", "title": "T", "body": "B"}
ABOUT = {"task_id": "t_1", "run_id": "r_1"}


@every_row(
    ("name", "result", "answer"),
    [
        ("kanban_complete", {"task": TASK}, {**ABOUT, "status": "done"}),
        ("kanban_block", {"task": TASK}, {**ABOUT, "status": "done"}),
        ("kanban_heartbeat", {"run": {}}, ABOUT),
        ("kanban_comment", {"comment": {"number": 4}}, {**ABOUT, "comment_id": 4}),
        ("kanban_create", {"task": TASK}, {"run_id": "r_1", "task_id": "t_7", "status": "done"}),
        ("kanban_link", {"task": TASK}, ABOUT),
        (
            "kanban_show",
            {"detail": {"task": TASK, "runs": []}},
            {**ABOUT, "task": TASK, "runs": [], "worker_context": "T\n\nB"},
        ),
        ("kanban_complete", {"accepted": "outbox"}, {**ABOUT, "accepted": "outbox"}),
    ],
)
def test_the_answer_has_the_members_that_prompts_know(
    name: str, result: dict[str, Any], answer: dict[str, Any]
) -> None:
    assert told(name, result, GRANT) == answer


def test_a_question_that_nobody_answered_is_no_answer() -> None:
    with pytest.raises(ConnectionLost):
        told("kanban_show", {"accepted": "outbox"}, GRANT)
