"""A model that asks for one command."""

import json
from typing import Any

import pytest

from holdfast.doctor.assertion.routes import CALL, MAX_TURNS, StubProvider


def turn(stub: StubProvider, *tools: str, **more: object) -> dict[str, Any]:
    """The item of one turn."""
    request = {"input": [], "tools": [{"type": "function", "name": name} for name in tools], **more}
    events = stub.answer(json.dumps(request).encode()).decode().split("\n\n")
    item: dict[str, Any] = json.loads(events[1].partition("data: ")[2])["item"]
    return item


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec_command", {"cmd": "true", "yield_time_ms": 30_000}),
        ("shell_command", {"command": "true", "timeout_ms": 30_000}),
        ("shell", {"command": ["sh", "-c", "true"], "timeout_ms": 30_000}),
    ],
)
def test_the_command_goes_to_the_shell_that_is_offered(tool: str, arguments: dict[str, object]) -> None:
    item = turn(StubProvider("true"), "web_search", tool)
    assert (item["type"], item["name"], item["call_id"]) == ("function_call", tool, CALL)
    assert json.loads(item["arguments"]) == arguments


@pytest.mark.parametrize(
    "output",
    ["said", [{"type": "text", "text": "sa"}, {"text": "id"}], {"content": "said", "success": True}],
)
def test_its_output_is_kept_and_then_it_is_done(output: object) -> None:
    stub = StubProvider("true")
    turn(stub, "shell")
    assert stub.output is None
    told = [{"type": "function_call_output", "call_id": CALL, "output": output}]
    assert turn(stub, "shell", input=told)["type"] == "message"
    assert stub.output == "said"


def test_the_output_of_another_call_is_not_ours() -> None:
    stub = StubProvider("true")
    told = [{"type": "function_call_output", "call_id": "other", "output": "said"}]
    assert turn(stub, "shell", input=told)["type"] == "function_call"


def test_without_a_shell_it_is_done_at_once_and_says_what_there_was() -> None:
    stub = StubProvider("true")
    assert turn(stub, "web_search")["type"] == "message"
    assert stub.offered == ("web_search",)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff"])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        StubProvider("true").answer(body)


def test_whoever_asks_for_ever_is_refused() -> None:
    stub = StubProvider("true")
    for _ in range(MAX_TURNS):
        turn(stub)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        turn(stub)


def test_a_token_is_known_by_nobody_else() -> None:
    stub = StubProvider("true")
    assert stub.knows(f"Bearer {stub.token}")
    assert not stub.knows(f"Bearer {StubProvider('true').token}")
    assert not stub.knows("")
