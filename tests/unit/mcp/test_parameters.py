"""The parameters of the board's tools: the verbs' arguments, as Hermes calls them."""

from typing import Any

import pytest

from holdfast.board.rules import verbs
from holdfast.board.rules.rows import MAX_RUNTIME_S, NewTask, WorkspaceKind
from holdfast.board.rules.verbs import Caller, Verb, named
from holdfast.errors import UsageError
from holdfast.mcp import parameters, toolbox
from holdfast.mcp.toolbox import Tool

CREATE = named("create", Caller.AGENT)


def said(verb: Verb, **given: Any) -> dict[str, object]:
    asked, ignored = toolbox.read(Tool("t", "A tool.", parameters.takes(verb)), given)
    assert not ignored
    return parameters.words(verb, asked)


def test_an_agent_asks_for_everything_that_a_task_can_have() -> None:
    words = said(
        CREATE,
        title="t",
        assignee="a",
        workspace_kind="dir",
        workspace_path="/srv/x",
        max_runtime_seconds="9",
        start_in_seconds=2,
        reviewer="ann",
        checks="make test",
        pool="gpu",
        max_attempts=1,
        max_tokens=5,
        max_cost=6,
        idempotency_key="k",
    )
    given = verbs.parse(CREATE, words)
    assert getattr(given, "key", None) == "k"
    assert verbs.settle(CREATE, given, 1000) == NewTask(
        title="t",
        assignee="a",
        workspace_kind=WorkspaceKind.DIR,
        workspace="/srv/x",
        max_runtime_s=9,
        wake_ms=3000,
        reviewer="ann",
        checks=("make test",),
        pool="gpu",
        max_attempts=1,
        max_tokens=5,
        max_cost=6,
    )


def test_what_is_left_out_or_zero_is_not_bounded() -> None:
    for zero in ({}, {"max_runtime_seconds": 0, "max_tokens": 0, "start_in_seconds": 0, "max_cost": 0}):
        given = verbs.parse(CREATE, said(CREATE, title="t", assignee="a", **zero))
        assert verbs.settle(CREATE, given, 1000) == NewTask(title="t", assignee="a")


def test_a_schema_has_the_bounds_of_the_table() -> None:
    known = toolbox.schema(parameters.takes(CREATE))["properties"]
    assert known["max_runtime_seconds"]["maximum"] == MAX_RUNTIME_S
    assert known["workspace_kind"]["enum"] == ["dir", "scratch", "worktree"]
    assert "worktree" in known["workspace_kind"]["description"]


def test_a_block_says_what_a_person_has_to_do() -> None:
    block = named("block", Caller.AGENT)
    assert said(block, task_id="t", reason="which?", kind="capability")["question"] == "[capability] which?"
    with pytest.raises(UsageError):
        said(block, task_id="t", reason="")


def test_an_end_is_told_in_a_summary_or_a_result() -> None:
    complete = named("complete", Caller.AGENT)
    assert said(complete, task_id="t", summary="long", result="short")["result"] == "long"
    assert said(complete, task_id="t")["result"] is None
