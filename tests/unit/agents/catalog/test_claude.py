"""claude and qwen: `is_error` decides, attempts are told, requests can be answered."""

import json

from holdfast.agents.catalog.claude import ClaudeEvents
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
    Want,
    Wants,
    Work,
    Working,
)
from tests.support.rows import every_row

THINKING = Working(Work.THINKING)


def fed(*events: dict[str, object]) -> list[Claim]:
    parser = ClaudeEvents()
    return [item.claim for event in events for item in parser.feed(json.dumps(event), 1.0)]


def system(subtype: str, **more: object) -> dict[str, object]:
    return {"type": "system", "subtype": subtype, **more}


def said(*blocks: dict[str, object], model: str = "m", by: str = "assistant") -> dict[str, object]:
    return {"type": by, "message": {"model": model, "content": list(blocks)}}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


@every_row(
    ("event", "claims"),
    [
        (system("init"), [Ready(), THINKING]),
        (system("status"), []),
        (system("permission_denied", tool_name="Bash"), []),
        (system("hologram"), [Drift("system hologram")]),
        (
            system("api_retry", attempt=2, max_retries=10, retry_delay_ms=500, error_status=401, error="x"),
            [Retrying(2, 10, Failure.AUTH, 401, 1.5)],
        ),
        (
            system("api_retry", attempt=1, error_status=None, error="rate_limit"),
            [Retrying(1, None, Failure.RATE_LIMIT)],
        ),
        (system("retry", data={"reason": "retry"}), [Retrying(1, None, None)]),
        (
            system("retry", data={"attempt": 3, "maxRetries": 7, "delayMs": 1000, "message": "status 429"}),
            [Retrying(3, 7, Failure.RATE_LIMIT, 429, 2.0)],
        ),
        (said(text("hi")), [Progress(Work.STREAMING)]),
        (said({"type": "thinking"}), [Progress(Work.THINKING)]),
        (said({"type": "tool_use"}), [Progress(Work.STREAMING), Working(Work.TOOL)]),
        (said({"type": "web_search_tool_result"}), [Progress(Work.TOOL)]),
        (said({"type": "hologram"}), [Drift("block hologram")]),
        (said(text("API Error: 401 x"), model="<synthetic>"), [Trouble(Failure.AUTH, 401)]),
        (said(text("hm"), model="<synthetic>"), []),
        (said(text("[API Error: 401 x]")), [Trouble(Failure.AUTH, 401)]),
        (said(text("I saw [API Error: 401 x] there")), [Progress(Work.STREAMING)]),
        (said({"type": "tool_result", "content": "ok"}, by="user"), [Progress(Work.TOOL), THINKING]),
        (
            said({"type": "tool_result", "content": [text("no")], "is_error": True}, by="user"),
            [Progress(Work.TOOL), ToolFailed("no"), THINKING],
        ),
        (said(text("go on"), by="user"), []),
        ({"type": "stream_event", "event": {"type": "goal_state"}}, []),
        ({"type": "stream_event", "event": {"type": "content_block_delta"}}, [Progress(Work.STREAMING)]),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}, []),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}}, [Trouble(Failure.QUOTA)]),
        (
            {"type": "control_request", "request": {"subtype": "hologram"}},
            [Drift("control_request hologram")],
        ),
        ({"type": "control_response"}, []),
        ({"type": "control_cancel_request"}, [THINKING]),
        ({"type": "keep_alive"}, []),
        ({"type": "tool_progress"}, [Progress(Work.TOOL)]),
        ({"type": "tool_use_summary"}, []),
    ],
)
def test_an_event_means(event: dict[str, object], claims: list[Claim]) -> None:
    assert fed(event) == claims


def test_a_request_can_be_answered_by_its_id() -> None:
    request = {"subtype": "can_use_tool", "tool_name": "Bash"}
    (claim,) = fed({"type": "control_request", "request_id": "r1", "request": request})
    assert isinstance(claim, Wants)
    assert (claim.want, claim.question, claim.request) == (Want.DECISION, "Bash", "r1")
    assert [option.kind for option in claim.options] == ["allow_once", "reject_once"]


@every_row(
    ("fields", "ok", "failure"),
    [
        ({"subtype": "success", "is_error": False}, True, None),
        ({"subtype": "success"}, True, None),
        (
            {"subtype": "success", "is_error": True, "api_error_status": 401, "result": "x"},
            False,
            Failure.AUTH,
        ),
        ({"subtype": "success", "is_error": True, "result": "Prompt is too long"}, False, Failure.CONTEXT),
        (
            {"subtype": "success", "is_error": False, "terminal_reason": "prompt_too_long"},
            False,
            Failure.CONTEXT,
        ),
        ({"subtype": "success", "is_error": False, "stop_reason": "refusal"}, False, Failure.REFUSAL),
        ({"subtype": "error_max_turns", "is_error": True}, False, Failure.TIMEOUT),
        ({"subtype": "error_during_execution", "errors": ["status 500", 3]}, False, Failure.PROVIDER),
        ({"is_error": True, "error": {"message": "[API Error: 404 model x]"}}, False, Failure.MODEL),
        ({"is_error": True, "api_error": "billing_error", "result": "x"}, False, Failure.QUOTA),
        ({"is_error": True, "result": "hm"}, False, None),
    ],
)
def test_a_result_is_judged_by_its_error(
    fields: dict[str, object], ok: bool, failure: Failure | None
) -> None:
    (claim,) = fed({"type": "result", **fields})
    assert isinstance(claim, Result)
    assert (claim.ok, claim.failure) == (ok, failure)


def test_all_input_counts_and_so_does_what_was_denied() -> None:
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 4,
        "output_tokens": 8,
    }
    result = {"type": "result", "is_error": False, "usage": usage, "total_cost_usd": 0.5}
    assert fed(result) == [Result(True, usage=TokenUsage(7, 8, 4, 0.5))]
    denied = {**result, "permission_denials": [{"tool_name": "Write"}]}
    assert fed(denied) == [Result(True, usage=TokenUsage(7, 8, 4, 0.5), refused=("Write",))]
    assert fed(system("permission_denied", tool_name="Bash"), result)[-1] == Result(
        True, usage=TokenUsage(7, 8, 4, 0.5), refused=("Bash",)
    )


def test_the_input_of_qwen_already_includes_what_was_cached() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 8, "total_tokens": 13}
    assert fed({"type": "result", "is_error": False, "usage": usage}) == [
        Result(True, usage=TokenUsage(5, 8, 4))
    ]


def test_each_answer_of_the_model_is_counted_once_however_many_events_tell_it() -> None:
    def said(name: str, *, output: int) -> dict[str, object]:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": output}
        return {"type": "assistant", "message": {"id": name, "content": [], "usage": usage}}

    claims = fed(said("m1", output=1), said("m1", output=1), said("m1", output=3), said("m2", output=2))
    assert claims == [
        Used(TokenUsage(15, 1, 5, turns=1)),
        Used(TokenUsage(15, 3, 5, turns=1)),
        Used(TokenUsage(30, 5, 10, turns=2)),
    ]
    assert fed({"type": "assistant", "message": {"id": "m1", "content": [], "usage": {}}}) == []


def test_the_turns_of_a_result_are_counted() -> None:
    (claim,) = fed({"type": "result", "is_error": False, "num_turns": 3})
    assert claim == Result(True, usage=TokenUsage(turns=3))


def test_a_command_that_qwen_does_not_wait_for_is_unfinished_in_the_result() -> None:
    given = {"command": "tail -f x", "is_background": True}
    call = {"type": "tool_use", "id": "1", "name": "run_shell_command", "input": given}
    said: dict[str, object] = {"type": "assistant", "message": {"id": "m", "content": [call]}}
    last = fed(said, {"type": "result", "subtype": "success", "is_error": False})[-1]
    assert isinstance(last, Result)
    assert len(last.unfinished) == 1
