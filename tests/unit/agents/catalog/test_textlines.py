"""Plain lines: work, attempts, errors."""

import re

from holdfast.agents.catalog.agent import RetrySign
from holdfast.agents.catalog.textlines import MAX_CONTINUED, Attempts, TextLines
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

SIGNS = (
    RetrySign(re.compile(r"^again (?P<attempt>\d+)/(?P<of>\d+) in (?P<in_s>\d+)s(?: \((?P<cause>.*)\))?")),
    RetrySign(re.compile(r"^later in (?P<in_ms>\d+)ms"), Failure.NETWORK),
    RetrySign(re.compile(r"^status (?P<http>\d+), again")),
)


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
