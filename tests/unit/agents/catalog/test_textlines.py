"""Plain lines: work, attempts, errors."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from holdfast.agents.catalog.agent import RetrySign
from holdfast.agents.catalog.textlines import (
    MAX_AHEAD,
    MAX_CONTINUED,
    MAX_LOOKED,
    Attempts,
    TextLines,
    announced,
    due,
)
from holdfast.agents.evidence.evidence import (
    Evidence,
    Failure,
    Progress,
    Ready,
    Retrying,
    Source,
    Trouble,
    Work,
)
from tests.support.rows import every_row

SIGNS = (
    RetrySign(re.compile(r"^again (?P<attempt>\d+)/(?P<of>\d+) in (?P<in_s>\d+)s(?: \((?P<cause>.*)\))?")),
    RetrySign(re.compile(r"^later in (?P<in_ms>\d+)ms"), Failure.NETWORK),
    RetrySign(re.compile(r"^status (?P<http>\d+), again")),
)
SAID = datetime(2026, 11, 16, 11, 19, 27, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


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
    end = due(announced(line), said=said, zones=zones)
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
    assert due("", said=SAID, zones=zones) is None
    assert due("soon", said=SAID, zones=zones) is None
