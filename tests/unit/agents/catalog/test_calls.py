import json
from pathlib import Path

from holdfast.agents.catalog.calls import MAX_WHAT, WINDOW, Calls
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.codex import CodexEvents
from holdfast.agents.catalog.jsonevents import JsonEvents
from holdfast.agents.catalog.parsers import parser_of
from holdfast.agents.worker.acp import AcpEvents
from tests.support.rows import every_row

RECORDED = Path(__file__).parents[1] / "recorded"


def made(*whole: str) -> Calls:
    calls = Calls()
    for each in whole:
        calls.add(each, each)
    return calls


def test_the_same_call_again_is_counted_and_another_one_begins_anew() -> None:
    calls = made("make", "make", "make")
    assert (calls.count, calls.in_a_row, calls.fresh, calls.different) == (3, 3, 1, 1)
    calls.add("edit", "edit")
    assert (calls.count, calls.in_a_row, calls.fresh, calls.last) == (4, 1, 2, "edit")
    calls.add("make", "make")
    assert (calls.in_a_row, calls.fresh, calls.different, calls.recent) == (1, 2, 2, 5)


def test_what_was_done_long_ago_is_new_again() -> None:
    calls = made("first", *(str(number) for number in range(WINDOW)), "first")
    assert (calls.fresh, calls.recent, calls.different) == (WINDOW + 2, WINDOW, WINDOW)


@every_row("agent", ["codex", "claude", "opencode", "gemini", "qwen"])
def test_every_cli_tells_which_tool_it_calls(agent: str) -> None:
    parser = parser_of(CATALOG[agent])
    assert isinstance(parser, JsonEvents)
    for text in (RECORDED / agent / "tool.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(text)
        if entry.get("from") == "stdout":
            parser.feed(entry["line"], 0.0)
    assert parser.calls.count >= 1
    assert parser.calls.fresh == parser.calls.different == parser.calls.count
    assert "mock-shell-ran" in parser.calls.last


def item(kind: str, **members: object) -> str:
    return json.dumps({"type": "item.completed", "item": {"type": kind, **members}})


def test_the_same_command_is_the_same_call_whatever_came_of_it() -> None:
    parser = CodexEvents()
    for number in range(3):
        parser.feed(
            item("command_execution", id=f"item_{number}", command="make", aggregated_output=str(number)), 0.0
        )
    assert (parser.calls.count, parser.calls.in_a_row) == (3, 3)
    parser.feed(item("file_change", id="item_3", changes=[{"path": "a"}]), 0.0)
    parser.feed(item("file_change", id="item_4", changes=[{"path": "b"}]), 0.0)
    assert (parser.calls.fresh, parser.calls.in_a_row) == (3, 1)


def test_another_step_of_a_plan_is_something_new() -> None:
    parser = CodexEvents()
    for done in (False, False, True):
        parser.feed(item("todo_list", items=[{"text": "look", "completed": done}]), 0.0)
    assert (parser.calls.count, parser.calls.fresh) == (3, 2)
    leader = AcpEvents(None)
    for status in ("pending", "completed"):
        params = {"update": {"sessionUpdate": "plan", "entries": [{"content": "look", "status": status}]}}
        leader.feed(json.dumps({"method": "session/update", "params": params}), 0.0)
    call = {"update": {"sessionUpdate": "tool_call", "title": "sh", "rawInput": {"command": "ls"}}}
    leader.feed(json.dumps({"method": "session/update", "params": call}), 0.0)
    assert (leader.calls.fresh, leader.calls.last) == (3, 'sh {"command":"ls"}')


def test_a_long_call_is_shown_short_and_without_secrets_but_is_told_apart() -> None:
    parser = CodexEvents(secrets=["hunter2hunter2"])
    for end in ("a", "b"):
        parser.feed(item("command_execution", command=f"echo hunter2hunter2 {'x' * 5000}{end}"), 0.0)
    assert (parser.calls.fresh, len(parser.calls.last)) == (2, MAX_WHAT)
    assert "hunter2" not in parser.calls.last
