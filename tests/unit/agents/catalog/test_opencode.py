"""opencode: there is no last event, only a last step."""

import json

import pytest

from holdfast.agents.catalog.opencode import OpencodeEvents
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
    Used,
    Work,
    Working,
)
from tests.support.rows import every_row

START: dict[str, object] = {"type": "step_start", "part": {}}


def fed(*events: dict[str, object]) -> list[Claim]:
    parser = OpencodeEvents()
    return [item.claim for event in events for item in parser.feed(json.dumps(event), 1.0)]


def finish(reason: str, **more: object) -> dict[str, object]:
    return {"type": "step_finish", "part": {"reason": reason, **more}}


def tool(status: str, **state: object) -> dict[str, object]:
    return {"type": "tool_use", "part": {"tool": "bash", "state": {"status": status, **state}}}


def test_only_the_first_step_is_readiness() -> None:
    thinking = Working(Work.THINKING)
    assert fed(START, START) == [Ready(), thinking, thinking]


@every_row(
    ("event", "claims"),
    [
        ({"type": "text"}, [Progress(Work.STREAMING)]),
        ({"type": "reasoning"}, [Progress(Work.THINKING)]),
        (tool("completed"), [Progress(Work.TOOL)]),
        (tool("completed", metadata={"exit": 0}), [Progress(Work.TOOL)]),
        (tool("completed", metadata={"exit": 2}), [Progress(Work.TOOL), ToolFailed("bash", 2)]),
        (tool("error", error="no"), [Progress(Work.TOOL), ToolFailed("bash: no")]),
        (finish("tool-calls"), [Working(Work.THINKING)]),
        (finish("surprise"), [Drift("step_finish surprise")]),
        (
            {"type": "error", "error": {"name": "APIError", "data": {"message": "slow", "statusCode": 429}}},
            [Result(False, Failure.RATE_LIMIT, "slow", 429)],
        ),
        ({"type": "error", "error": {"name": "UnknownError"}}, [Result(False, None, "UnknownError")]),
    ],
)
def test_an_event_means(event: dict[str, object], claims: list[Claim]) -> None:
    assert fed(event) == claims


@pytest.mark.parametrize(
    ("reason", "failure"),
    [
        ("length", Failure.CONTEXT),
        ("content-filter", Failure.REFUSAL),
    ],
)
def test_a_step_that_did_not_stop_by_itself_failed(reason: str, failure: Failure) -> None:
    (claim,) = fed(finish(reason))
    assert isinstance(claim, Result)
    assert (claim.ok, claim.failure) == (False, failure)


def test_a_step_whose_stream_died_is_tried_again_for_ever() -> None:
    tried = [Retrying(n, None, Failure.PROVIDER) for n in (1, 2)]
    cut = Trouble(Failure.PROVIDER)
    assert fed(finish("unknown"), finish("other")) == [cut, tried[0], cut, tried[1]]


def test_a_refused_tool_ends_the_run_unless_another_step_follows() -> None:
    rejected = tool("error", error="The user rejected permission to use this tool")
    ended = fed(rejected, finish("tool-calls"))
    assert isinstance(ended[-1], Result)
    assert (ended[-1].failure, ended[-1].refused) == (Failure.PERMISSION, ("bash",))
    assert fed(rejected, START, finish("tool-calls"))[-1] == Working(Work.THINKING)


def test_steps_are_added_up_and_refusals_named() -> None:
    tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 5, "write": 1}}
    rejected = tool("error", error="The user rejected permission to use this tool")
    claims = fed(
        finish("tool-calls", tokens=tokens, cost=0.25), rejected, finish("stop", tokens=tokens, cost=0.5)
    )
    assert claims[0] == Used(TokenUsage(16, 3, 5, 0.25, 1))
    assert claims[-1] == Result(True, usage=TokenUsage(32, 6, 10, 0.75, 2), refused=("bash",))
