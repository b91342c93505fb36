"""Lines of a client, and what is to be done about each."""

import json
from typing import Any

from holdfast.mcp import dialogue
from holdfast.mcp.dialogue import VERSIONS, Call, Cancelled, Say, Server
from holdfast.mcp.toolbox import Parameters, Tool, ToolAnswer
from tests.support.rows import every_row


class Takes(Parameters, kw_only=True):
    title: str


SERVER = Server("1.2", "Do it.", [Tool("t", "A tool.", Takes, looks=True)])


def hear(**members: Any) -> dialogue.Heard:
    return dialogue.hear(json.dumps({"jsonrpc": "2.0", **members}).encode(), SERVER)


def said(**members: Any) -> dict[str, Any]:
    heard = hear(**members)
    assert isinstance(heard, Say)
    assert heard.line.endswith(b"\n")
    assert b"\n" not in heard.line[:-1]
    answer: dict[str, Any] = json.loads(heard.line)
    assert answer.pop("jsonrpc") == "2.0"
    return answer


@every_row("asked", VERSIONS)
def test_the_version_that_a_client_asks_for_is_spoken(asked: str) -> None:
    answer = said(id=1, method="initialize", params={"protocolVersion": asked})["result"]
    assert (answer["protocolVersion"], answer["instructions"]) == (asked, "Do it.")
    assert answer["serverInfo"] == {"name": "holdfast", "version": "1.2"}
    assert answer["capabilities"]["tools"] == {"listChanged": False}


@every_row("asked", ["2026-07-28", "1999-01-01", 7, None], ids=repr)
def test_a_version_that_is_not_known_is_answered_with_the_newest_that_is(asked: object) -> None:
    answer = said(id=1, method="initialize", params={"protocolVersion": asked})
    assert answer["result"]["protocolVersion"] == VERSIONS[-1]


def test_tools_are_listed_with_schema_and_hints() -> None:
    [tool] = said(id="a", method="tools/list")["result"]["tools"]
    assert (tool["name"], tool["description"]) == ("t", "A tool.")
    assert tool["inputSchema"]["required"] == ["title"]
    assert tool["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def test_a_call_is_told_with_its_arguments_or_without_any() -> None:
    params = {"name": "t", "arguments": {"title": "x", "much": 1.5}, "_meta": {"progressToken": 1}}
    assert hear(id=7, method="tools/call", params=params) == Call(7, "t", {"title": "x", "much": 1.5})
    assert hear(id="s", method="tools/call", params={"name": "t"}) == Call("s", "t", {})


def test_an_answer_has_words_and_beside_them_the_members() -> None:
    line = dialogue.answer(7, ToolAnswer("It runs.", b'{"id":"w1"}'))
    result = {
        "content": [{"type": "text", "text": "It runs."}],
        "isError": False,
        "structuredContent": {"id": "w1"},
    }
    assert json.loads(line) == {"jsonrpc": "2.0", "id": 7, "result": result}
    plain = json.loads(dialogue.answer("x", ToolAnswer("no", failed=True)))["result"]
    assert plain == {"content": [{"type": "text", "text": "no"}], "isError": True}


@every_row(
    ("line", "code", "id"),
    [
        (b"{", -32700, None),
        (b'{"id":1,"method":"\xff"}', -32700, None),
        (b"[]", -32600, None),
        (b'{"id":null,"method":"ping"}', -32600, None),
        (b'{"id":1.5,"method":"ping"}', -32600, None),
        (b'{"id":1,"method":"ping","params":[]}', -32600, None),
        (b'{"id":1,"method":"resources/list"}', -32601, 1),
        (b'{"id":1,"method":"server/discover"}', -32601, 1),
        (b'{"id":1,"method":"tools/call","params":{"name":3}}', -32602, 1),
        (b'{"id":1,"method":"tools/call","params":{"name":"t","arguments":[1]}}', -32602, 1),
    ],
    ids=str,
)
def test_what_is_no_request_of_ours_is_answered_with_its_error(
    line: bytes, code: int, id: int | None
) -> None:
    heard = dialogue.hear(line, SERVER)
    assert isinstance(heard, Say)
    answer = json.loads(heard.line)
    assert (answer["error"]["code"], answer["id"]) == (code, id)


def test_what_is_too_deep_is_no_json_and_harms_nobody() -> None:
    deep = b'{"id":1,"method":"ping","params":{"a":' + b"[" * 100_000
    heard = dialogue.hear(deep, SERVER)
    assert isinstance(heard, Say)
    assert json.loads(heard.line)["error"]["code"] == -32700


def test_a_notification_is_never_answered() -> None:
    assert hear(method="notifications/initialized") is None
    assert hear(method="tools/list") is None
    assert hear(method="notifications/cancelled", params={"requestId": 7}) == Cancelled(7)
    assert hear(method="notifications/cancelled", params={"requestId": [7]}) is None
    assert hear(method="notifications/cancelled") is None
    assert hear(id=3, result={}) is None
    assert said(id=4, method="ping") == {"id": 4, "result": {}}
