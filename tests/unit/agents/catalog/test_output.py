"""What every event stream must survive: nonsense, floods, news."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest

from holdfast.agents.catalog import output
from holdfast.agents.catalog.agent import ErrorSign, RetrySign
from holdfast.agents.catalog.catalog import CATALOG, parser_of
from holdfast.agents.catalog.codex import CodexEvents
from holdfast.agents.catalog.output import (
    MAX_AHEAD,
    MAX_CONTINUED,
    MAX_KINDS,
    MAX_LOOKED,
    MAX_WHAT,
    OTHER,
    WINDOW,
    Attempts,
    Handler,
    JsonEvents,
    TextLines,
    ToolCalls,
    at_path,
    count_at,
    find_announcement,
    find_last_words,
    int_at,
    list_at,
    number_at,
    resolve_announcement,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    Drift,
    Evidence,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    Source,
    Trouble,
    Work,
)
from holdfast.agents.worker.acp import AcpEvents
from tests.support.rows import every_row

SIGNS = (
    RetrySign(re.compile(r"^again (?P<attempt>\d+)/(?P<of>\d+) in (?P<in_s>\d+)s(?: \((?P<cause>.*)\))?")),
    RetrySign(re.compile(r"^later in (?P<in_ms>\d+)ms"), Failure.NETWORK),
    RetrySign(re.compile(r"^status (?P<http>\d+), again")),
)
SAID = datetime(2026, 11, 16, 11, 19, 27, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))
RECORDED = Path(__file__).parents[1] / "recorded"


def test_the_first_line_is_readiness_and_every_line_is_work() -> None:
    parser = TextLines()
    assert parser.feed("", 1.0) == []
    assert parser.feed("hello\n", 1.0) == [
        Evidence(Source.TEXT, 1.0, Ready(), "hello"),
        Evidence(Source.TEXT, 1.0, Progress(Work.STREAMING), "hello"),
    ]
    assert [item.claim for item in parser.feed("more", 2.0)] == [Progress(Work.STREAMING)]


def test_notices_are_neither() -> None:
    parser = TextLines(progress=False)
    assert parser.feed("hello", 1.0) == []
    assert [item.claim for item in parser.feed("Error: rate limit", 1.0)] == [Trouble(Failure.RATE_LIMIT)]


def test_a_wrapped_error_is_not_followed_by_work_until_a_line_is_empty() -> None:
    parser = TextLines()
    parser.feed("begin", 0.0)
    assert [item.claim for item in parser.feed("Error: rate limit of", 0.0)] == [Trouble(Failure.RATE_LIMIT)]
    assert parser.feed("your plan", 0.0) == []
    assert parser.feed("", 0.0) == []
    assert parser.feed("an answer", 0.0) != []


def test_not_every_line_after_an_error_belongs_to_it() -> None:
    parser = TextLines()
    parser.feed("Error: rate limit", 0.0)
    told = [bool(parser.feed("line", 0.0)) for _ in range(MAX_CONTINUED + 1)]
    assert told == [False] * MAX_CONTINUED + [True]


def test_an_attempt_without_a_cause_has_that_of_the_error_above_it() -> None:
    parser = TextLines(SIGNS, progress=False)
    parser.feed("Error: 429 slow", 0.0)
    (told,) = parser.feed("again 1/2 in 3s", 0.0)
    assert told.claim == Retrying(1, 2, Failure.RATE_LIMIT, 429, 3.0)
    parser.feed("", 0.0)
    (told,) = parser.feed("again 2/2 in 3s", 0.0)
    assert told.claim == Retrying(2, 2, None, None, 3.0)


def test_an_attempt_says_what_it_knows() -> None:
    attempts = Attempts(SIGNS)
    assert attempts.read("again 2/5 in 3s (status 401 x)", 10.0) == Retrying(2, 5, Failure.AUTH, 401, 13.0)
    assert attempts.read("again 3/5 in 3s", 10.0) == Retrying(3, 5, None, None, 13.0)
    assert attempts.read("status 500, again", 10.0) == Retrying(4, None, Failure.PROVIDER, 500)
    assert attempts.read("nothing", 10.0) is None


def test_unnumbered_attempts_are_counted_until_work_goes_on() -> None:
    parser = TextLines(SIGNS)
    parser.feed("begin", 0.0)
    counted = [parser.feed(line, 1.0)[-1].claim for line in ["later in 500ms", "later in 500ms"]]
    assert counted == [Retrying(n, None, Failure.NETWORK, None, 1.5) for n in (1, 2)]
    parser.feed("", 2.0)
    parser.feed("an answer", 2.0)
    assert parser.feed("later in 500ms", 1.0)[-1].claim == Retrying(1, None, Failure.NETWORK, None, 1.5)


def zones(name: str) -> tzinfo | None:
    return {"": UTC, "UTC": UTC, "Europe/Kyiv": EAST}.get(name)


def left(line: str, said: datetime = SAID) -> timedelta | None:
    """How long the limit lasts that a line reports."""
    end = resolve_announcement(find_announcement(line), said=said, zones=zones)
    return None if end is None else end - said


def hours(hours: float = 0, minutes: float = 0, seconds: float = 0) -> timedelta:
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


@every_row(
    ("line", "span"),
    [
        # codex 0.166.0; the minute that it names is not over before its end
        ("purchase more credits or try again at 12:49 PM.", hours(1, 30, 33)),
        ("visit the page or try again at Nov 18th, 2026 6:52 PM.", hours(55, 33, 33)),
        ("You've hit your usage limit. Try again at 9:00 AM.", hours(21, 41, 33)),
        # opencode 1.18.33: headers in its event, and JSON inside JSON
        ('{"responseHeaders": {"date": "x", "retry-after": "120", "server": "y"}}', hours(0, 2)),
        (r'{"body": "{\"error\": {\"resets_in_seconds\": 5400}}"}', hours(1.5)),
        ('{"retry-after-ms": "1500", "retry-after": "99"}', hours(0, 0, 1.5)),
        ("retry-after: Mon, 16 Nov 2026 12:19:27 GMT", hours(1)),
        # claude
        ('{"rate_limit_info": {"status": "rejected", "resetsAt": 1794831567}}', hours(1)),
        ('{"resets_at":1794831567000}', hours(1)),
        ("Claude AI usage limit reached|1794831567", hours(1)),
        ("You've hit your limit \u00b7 resets 3pm (Europe/Kyiv)", hours(1, 41, 33)),
        ("limit reached, resets Nov 17 at 5am (UTC)", hours(17, 41, 33)),
        # gemini, and providers' own words
        ("Your quota will reset after 2h13m5s.", hours(2, 13, 5)),
        ("Please retry in 17.5s.", hours(0, 0, 17.5)),
        ("Please try again in 350ms.", hours(0, 0, 0.35)),
        ("or try again in 3 days 4 hours 5 minutes.", hours(76, 5)),
        ("Rate limit reached. Try again in 1 hour and 2 minutes", hours(1, 2)),
        ("try again after 2026-11-16T12:19:27Z", hours(1)),
    ],
)
def test_what_clis_and_providers_announce(line: str, span: timedelta) -> None:
    assert left(line) == span


@every_row(
    "line",
    [
        "Rate limit reached for 'mock-model'.",
        "exceeded retry limit, last status: 429 Too Many Requests",
        "try again later",
        "resets at noon",
        "resets 3pm (Nowhere/Atall)",
        "try again at 31:99 PM",
        "try again in 3000 days",
        "try again on Feb 31 at 5am",
        '{"resetsAt": 1000000000}',
        "try again at Nov 16th, 2025 6:52 PM.",
        " " * MAX_LOOKED + "try again in 5s",
    ],
)
def test_what_announces_nothing(line: str) -> None:
    assert left(line) is None


def test_a_day_without_a_year_is_the_next_one() -> None:
    eve = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    assert left("resets Jan 1 at 0:30", eve) == hours(1, 1)
    assert left("resets Dec 31 at 23:59", eve) == hours(0, 30)


def test_nobody_waits_longer_than_the_longest_limit() -> None:
    assert left(f"retry-after: {MAX_AHEAD.total_seconds():.0f}") == MAX_AHEAD
    assert left(f"retry-after: {MAX_AHEAD.total_seconds() + 1:.0f}") is None


def test_words_of_nobody_mean_nothing() -> None:
    assert resolve_announcement("", said=SAID, zones=zones) is None
    assert resolve_announcement("soon", said=SAID, zones=zones) is None


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
    monkeypatch.setattr(output, "MAX_LINE", 20)
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


def made(*whole: str) -> ToolCalls:
    calls = ToolCalls()
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


def test_an_error_in_words_of_its_own_is_known() -> None:
    signs = (ErrorSign(re.compile(r'^\{"status":"error","message":"(?P<cause>[^\n]{1,300})')),)
    parser = TextLines(errors=signs, progress=False)
    [seen] = parser.feed('{"status":"error","message":"401 Incorrect API key provided."}', 1.0)
    assert seen.claim == Trouble(Failure.AUTH, 401)
    assert parser.feed('he said {"status":"error","message":"401"}', 2.0) == []
    named = TextLines(errors=(ErrorSign(re.compile("out of reach"), Failure.NETWORK),), progress=False)
    [seen] = named.feed("it is out of reach", 1.0)
    assert seen.claim == Trouble(Failure.NETWORK, None)


def test_last_words_are_those_of_an_error_and_else_the_last() -> None:
    assert find_last_words(["", "Error: no", "    at x.js:1", ""]) == "Error: no"
    assert find_last_words(["bye", " "]) == "bye"
    assert find_last_words([]) == ""
