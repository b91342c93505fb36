"""What every event stream must survive: nonsense, floods, news."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.agents.catalog import jsonevents
from holdfast.agents.catalog.catalog import CATALOG, parser_of
from holdfast.agents.catalog.codex import CodexEvents
from holdfast.agents.catalog.jsonevents import (
    MAX_KINDS,
    MAX_WHAT,
    OTHER,
    WINDOW,
    Calls,
    Handler,
    JsonEvents,
    at_path,
    count_at,
    int_at,
    list_at,
    number_at,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    Drift,
    Failure,
    Progress,
    Ready,
    Result,
    Source,
    Trouble,
    Work,
)
from holdfast.agents.worker.acp import AcpEvents
from tests.support.rows import every_row

RECORDED = Path(__file__).parents[1] / "recorded"


class Stream(JsonEvents):
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "hello": lambda event, at: [Ready()],
            "tool": lambda event, at: [Progress(Work.TOOL)],
            "strange": lambda event, at: self.drift("inside"),
        }


def test_an_event_is_protocol_evidence_and_shows_its_line_without_keys() -> None:
    (item,) = Stream(secrets=["secret-word"]).feed('{"type":"hello","key":"secret-word"}', 2.0)
    assert (item.source, item.at, item.claim) == (Source.PROTOCOL, 2.0, Ready())
    assert "hello" in item.seen
    assert "secret-word" not in item.seen


@every_row("line", ["nonsense", "{", "\ud800", "[1]", '"x"', "[" * 100_000])
def test_what_is_no_event_is_counted_and_never_stops_the_reading(line: str) -> None:
    stream = Stream()
    assert [item.claim for item in stream.feed(line, 0.0)] == [Drift("not JSON")]
    assert stream.feed('{"type":"hello"}', 0.0) != []


def test_an_error_line_between_events_is_read_as_text() -> None:
    claims = [item.claim for item in Stream().feed("Error: rate limit", 0.0)]
    assert claims == [Trouble(Failure.RATE_LIMIT), Drift("not JSON")]


def test_an_empty_line_is_nothing() -> None:
    assert Stream().feed("  ", 0.0) == []


def test_a_line_beyond_the_bound_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonevents, "MAX_LINE", 20)
    assert [item.claim for item in Stream().feed('{"type":"hello","more":1}', 0.0)] == [
        Drift("line too long")
    ]


def test_unknown_events_are_told_once_then_at_every_power_of_ten() -> None:
    stream = Stream()
    told = [item.claim for _ in range(100) for item in stream.feed('{"type":"new"}', 0.0)]
    assert told == [Drift("event new", 1), Drift("event new", 10), Drift("event new", 100)]
    assert stream.unknown == {"event new": 100}


def test_a_handler_may_meet_something_unknown_inside() -> None:
    assert [item.claim for item in Stream().feed('{"type":"strange"}', 0.0)] == [Drift("inside")]
    assert [item.claim for item in Stream().feed("{}", 0.0)] == [Drift("event without a type")]


def test_names_made_up_by_the_worker_are_bounded_in_number_and_length() -> None:
    stream = Stream()
    for number in range(MAX_KINDS + 5):
        stream.feed(f'{{"type":"{number}{"x" * 500}"}}', 0.0)
    assert len(stream.unknown) == MAX_KINDS + 1
    assert stream.unknown[OTHER] == 5
    assert max(map(len, stream.unknown)) < 100


def test_a_tool_ends_a_row_of_attempts() -> None:
    stream = Stream()
    assert [stream.attempts.another(), stream.attempts.another()] == [1, 2]
    stream.feed('{"type":"hello"}', 0.0)
    assert stream.attempts.another() == 3
    stream.feed('{"type":"tool"}', 0.0)
    assert stream.attempts.another() == 1


def test_a_failure_that_is_known_outranks_the_text() -> None:
    stream = Stream()
    assert stream.failed("rate limit") == Result(False, Failure.RATE_LIMIT, "rate limit")
    assert stream.failed("rate limit", failure=Failure.QUOTA).failure is Failure.QUOTA
    assert stream.failed("", http=401) == Result(False, Failure.AUTH, "", 401)
    assert stream.failed("status 500").http == 500
    assert stream.failed("nobody knows") == Result(False, None, "nobody knows")


def test_values_are_taken_only_as_what_they_are() -> None:
    value: object = {"a": {"n": 3, "f": 2.5, "s": "x", "l": [1], "t": True, "huge": 1e300}}
    assert at_path(value, "a", "s") == "x"
    assert at_path(value, "a", "s", "deeper") is None
    assert (text_at(value, "a", "s"), text_at(value, "a", "n"), text_at(value, "b")) == ("x", "", "")
    assert (int_at(value, "a", "n"), int_at(value, "a", "f"), int_at(value, "a", "t")) == (3, 2, None)
    assert (int_at(value, "a", "huge"), count_at(value, "a", "s"), count_at(value, "a", "n")) == (None, 0, 3)
    assert (number_at(value, "a", "f"), number_at(value, "a", "t")) == (2.5, None)
    assert (list_at(value, "a", "l"), list_at(value, "a", "s")) == ([1], [])


def test_a_stream_without_handlers_is_a_mistake() -> None:
    with pytest.raises(NotImplementedError):
        JsonEvents().feed("{}", 0.0)


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
