"""The client's side of ACP: what it says when, what it makes of what it hears, what it refuses."""

import json
from typing import Any

import pytest

from holdfast.agents.evidence.evidence import (
    Answered,
    AnswerOption,
    Claim,
    Drift,
    Failure,
    Progress,
    Ready,
    Result,
    TokenUsage,
    ToolFailed,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.worker.acp import MAX_ID, MAX_QUESTION, AcpEvents, AcpRequest, answer, choose, opening
from holdfast.errors import InvalidRequest, UsageError
from tests.support.rows import every_row

REQUEST = AcpRequest("/w", "do it")
OPTIONS: list[dict[str, str]] = [
    {"optionId": "always", "kind": "allow_always", "name": "Always"},
    {"optionId": "once", "kind": "allow_once", "name": "Once"},
    {"optionId": "no", "kind": "reject_once", "name": "No"},
]
WANTS = Wants(
    Want.DECISION,
    "rm x",
    (
        AnswerOption("always", "allow_always", "Always"),
        AnswerOption("once", "allow_once", "Once"),
        AnswerOption("no", "reject_once", "No"),
    ),
    "7",
)
INITIALIZED = {"id": "holdfast-initialize", "result": {"protocolVersion": 1}}
OPENED = {"id": "holdfast-session", "result": {"sessionId": "s1"}}


def asks(number: object = 7, title: str = "rm x", **call: object) -> dict[str, Any]:
    params = {"sessionId": "s1", "toolCall": {"toolCallId": "c", "title": title, **call}, "options": OPTIONS}
    return {"id": number, "method": "session/request_permission", "params": params}


def update(kind: str, **members: object) -> dict[str, Any]:
    return {"method": "session/update", "params": {"update": {"sessionUpdate": kind, **members}}}


def play(
    *events: dict[str, Any], request: AcpRequest | None = REQUEST
) -> tuple[list[Claim], list[dict[str, Any]], bool]:
    """What is made of these events, what is said to the agent, and whether that was all."""
    acp = AcpEvents(request)
    claims: list[Claim] = []
    said: list[dict[str, Any]] = []
    last = False
    for event in events:
        claims += [item.claim for item in acp.feed(json.dumps({"jsonrpc": "2.0", **event}), 1.0)]
        now = acp.said()
        said += [json.loads(line) for line in now.data.splitlines()]
        last = last or now.last
    return claims, said, last


def test_nothing_of_ours_is_offered_to_the_agent() -> None:
    first = json.loads(opening())
    assert first["params"]["protocolVersion"] == 1
    assert first["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }


def test_an_errand_is_three_requests() -> None:
    claims, said, last = play(INITIALIZED, OPENED)
    assert claims == [Ready(), Working(Work.THINKING)]
    assert [line["method"] for line in said] == ["session/new", "session/prompt"]
    assert said[0]["params"] == {"cwd": "/w", "mcpServers": []}
    assert said[1]["params"] == {"sessionId": "s1", "prompt": [{"type": "text", "text": "do it"}]}
    assert len({line["id"] for line in said} | {json.loads(opening())["id"]}) == 3
    assert not last


MODELS = {"currentModelId": "a", "availableModels": [{"modelId": "a"}, {"modelId": "m"}]}
CONFIG = [{"id": "model", "currentValue": "a", "options": [{"value": "a"}, {"value": "m"}]}]


@every_row(
    ("offered", "model", "method"),
    [
        ({"models": MODELS}, "m", "session/set_model"),
        ({"configOptions": CONFIG}, "m", "session/set_config_option"),
        ({"models": MODELS}, "a", "session/prompt"),
        ({"configOptions": CONFIG}, "a", "session/prompt"),
        ({}, None, "session/prompt"),
    ],
)
def test_a_model_is_chosen_as_the_agent_offers_it(
    offered: dict[str, Any], model: str | None, method: str
) -> None:
    opened = {"id": "holdfast-session", "result": {"sessionId": "s1", **offered}}
    request = AcpRequest("/w", "do it", model)
    assert [line["method"] for line in play(opened, request=request)[1]] == [method]
    chosen = {"id": "holdfast-model", "result": {}}
    assert play(opened, chosen, request=request)[1][-1]["method"] == "session/prompt"


def test_a_model_that_is_not_offered_ends_the_run_before_it_begins() -> None:
    (result,), said, last = play(OPENED, request=AcpRequest("/w", "do it", "m"))
    assert isinstance(result, Result)
    assert (result.ok, result.failure, said, last) == (False, Failure.MODEL, [], True)


def test_a_request_is_a_question_with_its_options() -> None:
    assert play(asks())[:2] == ([WANTS], [])
    (wants,), _, _ = play(asks("text-id", "Shell", rawInput={"command": "rm x"}))
    assert isinstance(wants, Wants)
    assert (wants.request, wants.question) == ('"text-id"', "Shell: rm x")
    (long,), _, _ = play(asks(title="x" * 9999))
    assert isinstance(long, Wants)
    assert len(long.question) == MAX_QUESTION


@every_row("number", [None, True, 1.5, [1], "x" * MAX_ID])
def test_a_request_that_cannot_be_answered_is_no_question(number: object) -> None:
    claims, said, _ = play(asks(number))
    assert [type(claim) for claim in claims] == [Drift]
    assert said == []


def test_a_request_without_options_is_refused() -> None:
    event = asks()
    event["params"]["options"] = [{"optionId": "", "kind": "allow_once"}, 7]
    claims, said, _ = play(event)
    assert [type(claim) for claim in claims] == [Drift]
    assert (said[0]["id"], said[0]["error"]["code"]) == (7, -32602)


def test_an_unattended_run_allows_a_single_call_and_nothing_for_ever() -> None:
    alone = AcpRequest("/w", "do it", unattended=True)
    claims, said, _ = play(asks(), request=alone)
    assert claims == [Working(Work.TOOL)]
    assert said == [json.loads(answer(WANTS, WANTS.options[1]))]
    event = asks()
    event["params"]["options"] = [OPTIONS[0], OPTIONS[2]]
    claims, said, _ = play(event, request=alone)
    assert [type(claim) for claim in claims] == [Wants]
    assert said == []


def test_an_answer_carries_the_id_as_it_came() -> None:
    outcome = {"outcome": {"outcome": "selected", "optionId": "once"}}
    assert json.loads(answer(WANTS, WANTS.options[1])) == {"jsonrpc": "2.0", "id": 7, "result": outcome}
    texts = Wants(Want.DECISION, options=WANTS.options, request='"text-id"')
    assert json.loads(answer(texts, WANTS.options[1]))["id"] == "text-id"


def test_only_what_is_offered_is_chosen_and_nothing_permanent_unless_named() -> None:
    assert choose(WANTS, None, deny=False).id == "once"
    assert choose(WANTS, None, deny=True).id == "no"
    assert choose(WANTS, "always", deny=False).id == "always"
    for option, deny in (("other", False), ("once", True), ("Once", False)):
        with pytest.raises(UsageError):
            choose(WANTS, option, deny=deny)
    permanent = Wants(
        Want.DECISION,
        options=(AnswerOption("always", "allow_always"), AnswerOption("never", "reject_always")),
    )
    for deny in (False, True):
        with pytest.raises(InvalidRequest):
            choose(permanent, None, deny=deny)


@every_row(
    ("event", "claims"),
    [
        (update("agent_message_chunk", content={"type": "text", "text": "x"}), [Progress(Work.STREAMING)]),
        (update("agentMessageChunk", content={"type": "text", "text": "x"}), [Progress(Work.STREAMING)]),
        (update("agent_message_chunk", content={"type": "image"}), [Progress(Work.STREAMING)]),
        (update("agent_message_chunk", content={"type": "text", "text": ""}), []),
        (update("agent_thought_chunk", content={}), [Progress(Work.THINKING)]),
        (update("tool_call", status="pending"), [Working(Work.TOOL)]),
        (update("tool_call_update", status="in_progress"), [Working(Work.TOOL)]),
        (update("tool_call_update", title="x"), []),
        (update("tool_call_update", status="completed"), [Progress(Work.TOOL)]),
        (
            update("tool_call_update", status="completed", title="t", rawOutput={"metadata": {"exit": 3}}),
            [Progress(Work.TOOL), ToolFailed("t", 3)],
        ),
        (
            update("tool_call_update", status="completed", title="t", rawOutput={"exitCode": 2}),
            [Progress(Work.TOOL), ToolFailed("t", 2)],
        ),
        (
            update("tool_call_update", status="failed", title="t", content=[{"content": {"text": "no"}}]),
            [ToolFailed("t: no")],
        ),
        (update("tool_call_update", status="odd"), [Drift("tool odd")]),
        (update("plan"), []),
        (update("available_commands_update"), []),
        (update("new_thing"), [Drift("update new_thing")]),
        (update(""), [Drift("update without a name")]),
        ({"method": "vendor/note"}, [Drift("event vendor/note")]),
        ({"id": 99, "result": {}}, [Drift("an answer to nothing we asked")]),
        ({"id": ["x"], "result": {}}, [Drift("an answer to nothing we asked")]),
        ({}, [Drift("event without a type")]),
    ],
)
def test_what_an_agent_tells_is_evidence(event: dict[str, Any], claims: list[Claim]) -> None:
    assert play(event) == (claims, [], False)


@pytest.mark.parametrize(
    "method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "vendor/ask"]
)
def test_what_is_not_offered_is_refused(method: str) -> None:
    claims, said, _ = play({"id": "a", "method": method, "params": {}})
    assert claims == [Drift(f"request {method}")]
    assert (said[0]["id"], said[0]["error"]["code"]) == ("a", -32601)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_tool_that_ended_had_its_answer_from_somebody(status: str) -> None:
    claims, _, _ = play(asks(), update("tool_call_update", toolCallId="c", status=status))
    assert claims[1] == Answered("7")


def test_a_turn_ends_with_what_it_cost() -> None:
    spent = update("usage_update", cost={"amount": 0.5, "currency": "USD"})
    usage = {"inputTokens": 9, "outputTokens": 3, "cachedReadTokens": 2}
    end = {"id": "holdfast-prompt", "result": {"stopReason": "end_turn", "usage": usage}}
    claims, _, last = play(spent, end)
    assert claims == [Result(True, usage=TokenUsage(9, 3, 2, 0.5))]
    assert last
    counted = {"quota": {"token_count": {"input_tokens": 18, "output_tokens": 6}}}
    (result,), _, _ = play({"id": "holdfast-prompt", "result": {"stopReason": "end_turn", "_meta": counted}})
    assert result == Result(True, usage=TokenUsage(18, 6))


@every_row(
    ("reason", "failure"),
    [
        ("max_tokens", Failure.CONTEXT),
        ("max_turn_requests", Failure.TIMEOUT),
        ("refusal", Failure.REFUSAL),
        ("cancelled", None),
        ("odd", None),
        ("", None),
    ],
)
def test_any_other_end_of_a_turn_is_no_success(reason: str, failure: Failure | None) -> None:
    claims, _, last = play({"id": "holdfast-prompt", "result": {"stopReason": reason}})
    result = claims[-1]
    assert isinstance(result, Result)
    assert (result.ok, result.failure, last) == (False, failure, True)
    assert (Drift(f"stop reason {reason}".strip()) in claims) is (reason in ("odd", ""))


@every_row(
    ("step", "error", "failure", "http"),
    [
        (
            "prompt",
            {"code": -32603, "message": "Internal error: Incorrect API key provided."},
            Failure.AUTH,
            None,
        ),
        ("prompt", {"code": 429, "message": "slow down"}, Failure.RATE_LIMIT, 429),
        (
            "prompt",
            {"code": -32603, "message": "Internal error", "data": {"details": "HTTP 404: no model"}},
            Failure.MODEL,
            404,
        ),
        ("session", {"code": -32000, "message": "Authentication required"}, Failure.AUTH, None),
        ("model", {"code": -32602, "message": "no"}, Failure.MODEL, None),
    ],
)
def test_an_error_is_the_end_with_its_cause(
    step: str, error: dict[str, Any], failure: Failure, http: int | None
) -> None:
    (result,), said, last = play({"id": f"holdfast-{step}", "error": error})
    assert isinstance(result, Result)
    assert (result.ok, result.failure, result.http, said, last) == (False, failure, http, [], True)


@every_row(
    ("events", "request", "failure"),
    [
        ([{"id": "holdfast-initialize", "result": {"protocolVersion": 2}}], REQUEST, Failure.CONFIGURATION),
        ([{"id": "holdfast-initialize", "result": None}], REQUEST, Failure.CONFIGURATION),
        ([INITIALIZED], None, Failure.LAUNCH),
        ([OPENED], None, Failure.LAUNCH),
        ([{"id": "holdfast-session", "result": {}}], REQUEST, Failure.LAUNCH),
    ],
)
def test_what_cannot_be_begun_is_given_up(
    events: list[dict[str, Any]], request: AcpRequest | None, failure: Failure
) -> None:
    (result,), said, last = play(*events, request=request)
    assert isinstance(result, Result)
    assert (result.ok, result.failure, said, last) == (False, failure, [], True)
