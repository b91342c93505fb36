"""codex: what ends a turn and what does not."""

import json

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.codex import CodexEvents
from holdfast.agents.evidence.evidence import (
    Claim,
    Drift,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    TokenUsage,
    ToolFailed,
    Trouble,
    Work,
    Working,
)
from tests.support.rows import every_row

THINKING = Working(Work.THINKING)


def fed(*events: dict[str, object]) -> list[Claim]:
    parser = CodexEvents(CATALOG["codex"].retries)
    return [item.claim for event in events for item in parser.feed(json.dumps(event), 1.0)]


def item(kind: str, state: str = "completed", **more: object) -> dict[str, object]:
    return {"type": f"item.{state}", "item": {"type": kind, **more}}


@every_row(
    ("event", "claims"),
    [
        ({"type": "thread.started"}, [Ready()]),
        ({"type": "turn.started"}, [THINKING]),
        (item("command_execution", "started"), [Working(Work.TOOL)]),
        (item("agent_message", "started"), []),
        (item("command_execution", "updated"), [Progress(Work.TOOL)]),
        (item("todo_list", "updated"), [Progress(Work.THINKING)]),
        (item("agent_message"), [Progress(Work.STREAMING)]),
        (item("reasoning"), [Progress(Work.THINKING)]),
        (item("error", message="deprecated"), []),
        (item("hologram"), [Drift("item hologram")]),
        (
            item("command_execution", command="ls", exit_code=0, status="completed"),
            [Progress(Work.TOOL), THINKING],
        ),
        (
            item("command_execution", command="ls", exit_code=2, status="failed"),
            [Progress(Work.TOOL), ToolFailed("ls", 2), THINKING],
        ),
        (
            item(
                "command_execution",
                command="ls",
                exit_code=1,
                status="failed",
                aggregated_output="bwrap: No permissions to create new namespace, likely because the kernel",
            ),
            [Progress(Work.TOOL), ToolFailed("ls", 1), Trouble(Failure.SANDBOX), THINKING],
        ),
        (item("file_change", status="failed"), [Progress(Work.TOOL), ToolFailed("file_change"), THINKING]),
        ({"type": "error", "message": "Reconnecting... 2/5 (x)"}, [Retrying(2, 5, None)]),
        (
            {"type": "error", "message": "Reconnecting... waiting for network (Connection failed: x)"},
            [Retrying(1, None, Failure.NETWORK)],
        ),
        ({"type": "error", "message": "unexpected status 401 x"}, [Trouble(Failure.AUTH, 401)]),
        ({"type": "error", "message": "hm"}, []),
        ({"type": "turn.failed", "error": {"message": "hm"}}, [Result(False, None, "hm")]),
        ({"type": "turn.failed"}, [Result(False)]),
    ],
)
def test_an_event_means(event: dict[str, object], claims: list[Claim]) -> None:
    assert fed(event) == claims


def test_a_command_that_has_not_ended_with_the_turn_is_named() -> None:
    first = item("command_execution", "started", id="1", command="make")
    second = item("command_execution", "started", id="2", command="sleep 600")
    made = item("command_execution", id="1", command="make", exit_code=0, status="completed")
    *_, result = fed(first, second, made, {"type": "turn.completed"})
    assert isinstance(result, Result)
    assert result.unfinished == ("sleep 600",)
    *_, result = fed(first, made, {"type": "turn.completed"})
    assert isinstance(result, Result)
    assert result.unfinished == ()


def test_a_completed_turn_counts_and_names_what_was_declined() -> None:
    usage = {"input_tokens": 7, "cached_input_tokens": 3, "output_tokens": 2}
    declined = item("command_execution", command="rm x", exit_code=None, status="declined")
    claims = fed(declined, {"type": "turn.completed", "usage": usage})
    assert claims[1] == ToolFailed("rm x")
    assert claims[-1] == Result(True, usage=TokenUsage(7, 2, 3, turns=1), refused=("rm x",))
