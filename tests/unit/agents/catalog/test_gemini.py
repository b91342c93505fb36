"""gemini: an error that nothing follows spoils the result."""

import json

import pytest

from holdfast.agents.catalog.gemini import GeminiEvents
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    TokenUsage,
    ToolFailed,
    Trouble,
    Work,
    Working,
)
from tests.support.rows import every_row

CUT: dict[str, object] = {
    "type": "error",
    "severity": "error",
    "message": "Model stream ended without a finish reason.",
}
STATS = {"input_tokens": 5, "output_tokens": 2, "cached": 1}
GOOD: dict[str, object] = {"type": "result", "status": "success", "stats": STATS}
TEXT: dict[str, object] = {"type": "message", "role": "assistant", "content": "x"}
CALL: dict[str, object] = {"type": "tool_use", "tool_name": "t"}


def fed(*events: dict[str, object]) -> list[Claim]:
    parser = GeminiEvents()
    return [item.claim for event in events for item in parser.feed(json.dumps(event), 1.0)]


@every_row(
    ("event", "claims"),
    [
        ({"type": "init"}, [Ready()]),
        ({"type": "message", "role": "user"}, [Working(Work.THINKING)]),
        (TEXT, [Progress(Work.STREAMING)]),
        (CALL, [Progress(Work.STREAMING), Working(Work.TOOL)]),
        ({"type": "tool_result", "status": "success"}, [Progress(Work.TOOL), Working(Work.THINKING)]),
        (
            {"type": "tool_result", "status": "error", "error": {"message": "no"}},
            [Progress(Work.TOOL), ToolFailed("no"), Working(Work.THINKING)],
        ),
        (
            {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"},
            [Trouble(Failure.LIMIT)],
        ),
        ({"type": "error", "severity": "warning", "message": "a word of warning"}, []),
        (GOOD, [Result(True, usage=TokenUsage(5, 2, 1))]),
        (
            {"type": "result", "status": "error", "error": {"message": "[API Error: 401 x]"}},
            [Result(False, Failure.AUTH, "[API Error: 401 x]", 401, TokenUsage())],
        ),
        (
            {"type": "result", "status": "error", "error": {"type": "FatalTurnLimitedError"}},
            [Result(False, None, "FatalTurnLimitedError", None, TokenUsage())],
        ),
    ],
)
def test_an_event_means(event: dict[str, object], claims: list[Claim]) -> None:
    assert fed(event) == claims


def test_success_right_after_an_error_is_none() -> None:
    bad = Result(False, Failure.PROVIDER, str(CUT["message"]), usage=TokenUsage(5, 2, 1))
    assert fed(CUT, GOOD) == [Trouble(Failure.PROVIDER), bad]


@pytest.mark.parametrize("later", [TEXT, CALL, {**CUT, "severity": "warning"}])
def test_an_error_that_was_overcome_is_forgotten(later: dict[str, object]) -> None:
    last = fed(CUT, later, GOOD)[-1]
    assert isinstance(last, Result)
    assert last.ok


def test_a_refused_tool_is_named_in_the_result() -> None:
    refused: dict[str, object] = {
        "type": "tool_result",
        "status": "error",
        "output": "Tool call denied by policy.",
    }
    last = fed(refused, GOOD)[-1]
    assert isinstance(last, Result)
    assert last.refused == ("Tool call denied by policy.",)


def test_a_command_that_it_does_not_wait_for_is_unfinished_in_the_result() -> None:
    left = "Command moved to background (PID: 35). Output hidden. Press Ctrl+B to view."
    last = fed(CALL, {"type": "tool_result", "status": "success", "output": left}, GOOD)[-1]
    assert isinstance(last, Result)
    assert (last.ok, len(last.unfinished)) == (True, 1)
