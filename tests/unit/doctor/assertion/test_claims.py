"""What a boot assertion makes of answers from inside and outside."""

import itertools
import json

import pytest

from holdfast.doctor.assertion import claims
from holdfast.doctor.assertion.claims import (
    EXPECTATIONS,
    BootClaim,
    ClaimAttempt,
    ClaimKind,
    ClaimVerdict,
    Judged,
    Role,
    Word,
)
from holdfast.errors import UsageError
from tests.support.rows import every_row

WORKS, READ_ONLY, FORBIDDEN, MISSING = (
    ClaimAttempt(True),
    ClaimAttempt(False, "EROFS"),
    ClaimAttempt(False, "EACCES"),
    ClaimAttempt(False, "ENOENT"),
)
REFUSED, CUT = ClaimAttempt(False, "ECONNREFUSED"), ClaimAttempt(False, "EPERM")


def got(claim: BootClaim, inside: ClaimAttempt | None, plain: ClaimAttempt) -> Word:
    return claims.judge(claim, "route", inside, plain, remedy="do it").got


WRITES, NO_WRITE = BootClaim(ClaimKind.WRITES, True, "/x"), BootClaim(ClaimKind.WRITES, False, "/x")
REACHES, NO_REACH = (
    BootClaim(ClaimKind.REACHES, True, "tcp://h:1"),
    BootClaim(ClaimKind.REACHES, False, "tcp://h:1"),
)


@every_row(
    ("claim", "inside", "plain", "word"),
    [
        (WRITES, WORKS, WORKS, Word.YES),
        (WRITES, READ_ONLY, WORKS, Word.NO),
        (WRITES, MISSING, MISSING, Word.NO),
        (WRITES, None, WORKS, Word.UNKNOWN),
        (NO_WRITE, WORKS, WORKS, Word.YES),
        (NO_WRITE, WORKS, FORBIDDEN, Word.YES),
        (NO_WRITE, READ_ONLY, WORKS, Word.NO),
        (NO_WRITE, FORBIDDEN, WORKS, Word.NO),
        (NO_WRITE, READ_ONLY, FORBIDDEN, Word.NO),
        (NO_WRITE, READ_ONLY, READ_ONLY, Word.UNKNOWN),
        (NO_WRITE, FORBIDDEN, FORBIDDEN, Word.UNKNOWN),
        (NO_WRITE, MISSING, MISSING, Word.UNKNOWN),
        (NO_WRITE, None, WORKS, Word.UNKNOWN),
        (REACHES, WORKS, WORKS, Word.YES),
        (REACHES, REFUSED, REFUSED, Word.NO),
        (NO_REACH, WORKS, WORKS, Word.YES),
        (NO_REACH, REFUSED, WORKS, Word.NO),
        (NO_REACH, CUT, REFUSED, Word.NO),
        (NO_REACH, REFUSED, REFUSED, Word.UNKNOWN),
        (NO_REACH, CUT, CUT, Word.UNKNOWN),
    ],
)
def test_a_failure_counts_as_denied_only_with_a_control(
    claim: BootClaim, inside: ClaimAttempt | None, plain: ClaimAttempt, word: Word
) -> None:
    assert got(claim, inside, plain) is word


def answer(code: int) -> ClaimAttempt:
    return ClaimAttempt(True, said=f"status {code}")


@every_row(
    ("statuses", "code", "word"),
    [
        ((), 200, Word.YES),
        ((), 204, Word.YES),
        ((), 302, Word.NO),
        ((), 404, Word.NO),
        ((), 500, Word.NO),
        (("401",), 401, Word.YES),
        (("401",), 200, Word.NO),
        (("2xx", "401"), 401, Word.YES),
        (("5xx",), 503, Word.YES),
        (("any",), 500, Word.YES),
    ],
)
def test_an_address_is_reached_when_it_answers_as_it_should(
    statuses: tuple[str, ...], code: int, word: Word
) -> None:
    [claim] = claims.parse_claims(network=["https://a.example/"], statuses=statuses)
    judged = claims.judge(claim, "route", answer(code), answer(code), remedy="do it")
    assert judged.got is word
    assert word is Word.YES or f"status {code}" in judged.evidence
    assert claims.answers_wrongly(claim, answer(code)) is (word is Word.NO)


def test_an_error_of_the_other_side_shows_that_it_is_not_denied() -> None:
    [claim] = claims.parse_claims(deny_network=["https://a.example/"])
    assert got(claim, answer(500), answer(500)) is Word.YES


def test_what_a_port_says_is_no_status() -> None:
    [claim] = claims.parse_claims(network=["tcp://a.example:1"])
    assert got(claim, answer(500), WORKS) is Word.YES


@every_row("status", ["", "20", "2x", "600", "OK", "2000"])
def test_what_is_no_status_is_not_demanded(status: str) -> None:
    with pytest.raises(UsageError, match="not an HTTP status"):
        claims.parse_claims(network=["https://a.example/"], statuses=[status])


@every_row("network", [[], ["tcp://a.example:1"]])
def test_a_status_needs_an_address_that_has_one(network: list[str]) -> None:
    with pytest.raises(UsageError, match="there is none"):
        claims.parse_claims(network=network, statuses=["200"])


def test_a_write_that_nobody_outside_can_see_has_not_happened() -> None:
    unseen = ClaimAttempt(True, lasting=False)
    assert got(WRITES, unseen, WORKS) is Word.NO
    assert got(NO_WRITE, unseen, WORKS) is Word.NO
    assert got(WRITES, ClaimAttempt(True, lasting=True), WORKS) is Word.YES
    assert got(WRITES, ClaimAttempt(True, lasting=None), WORKS) is Word.YES


def test_evidence_says_what_was_said_on_both_sides() -> None:
    shown = claims.judge(
        NO_WRITE,
        "r",
        ClaimAttempt(False, "EROFS", "no\nway"),
        ClaimAttempt(False, "EACCES", "away"),
        remedy="do it",
    )
    assert "no way" in shown.evidence
    assert "away" in shown.evidence
    assert shown.report()["remedy"] is None
    assert claims.judge(WRITES, "r", READ_ONLY, WORKS, remedy="do it").report()["remedy"] == "do it"


def word(name: str, wanted: Word = Word.YES) -> Judged:
    return Judged("c", "r", wanted, Word(name), "")


@every_row(
    ("found", "verdict", "code"),
    [
        ((), ClaimVerdict.UNKNOWN, 2),
        (("yes",), ClaimVerdict.PASS, 0),
        (("yes", "no"), ClaimVerdict.FAIL, 1),
        (("yes", "unknown"), ClaimVerdict.UNKNOWN, 2),
        (("unknown", "no"), ClaimVerdict.FAIL, 1),
    ],
)
def test_one_claim_decides_about_all(found: tuple[str, ...], verdict: ClaimVerdict, code: int) -> None:
    for order in itertools.permutations(found):
        assert claims.verdict(map(word, order)) is verdict
    assert claims.EXIT[verdict] == code
    assert claims.verdict([word("yes", Word.NO)]) is ClaimVerdict.FAIL


def test_every_mode_but_full_access_keeps_outside_and_configuration() -> None:
    for name, wanted in EXPECTATIONS.items():
        assert wanted[Role.OUTSIDE] is (name == "full-access")
        assert wanted.get(Role.CONFIG, True) is (name == "full-access")


def test_a_command_line_becomes_claims() -> None:
    found = claims.parse_claims(
        write=["/w"], deny_write=["/d"], network=["http://a/"], deny_network=["tcp://b:1"]
    )
    assert [(one.kind, one.wanted, one.subject) for one in found] == [
        (ClaimKind.WRITES, True, "/w"),
        (ClaimKind.WRITES, False, "/d"),
        (ClaimKind.REACHES, True, "http://a/"),
        (ClaimKind.REACHES, False, "tcp://b:1"),
    ]


@every_row(
    "url", ["", "a.example", "ftp://a.example/", "tcp://a.example", "http://", "tcp://h:99999", "http://[x/"]
)
def test_an_address_that_cannot_be_tried_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        claims.parse_claims(network=[url])


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        claims.parse_claims(deny_network=["https://me:hunter2@a.example/"])
    assert "hunter2" not in str(refused.value)


def test_a_query_may_be_a_secret_and_is_not_shown() -> None:
    [claim] = claims.parse_claims(network=["https://a.example/x?key=hunter2#hunter3"])
    assert claim.subject.endswith("hunter3")
    assert str(claim) == "reaches https://a.example/x"


def test_contradictions_and_floods_are_refused() -> None:
    with pytest.raises(UsageError):
        claims.parse_claims(write=["/x"], deny_write=["/x"])
    with pytest.raises(UsageError):
        claims.parse_claims(write=[f"/{n}" for n in range(claims.MAX_PATHS + 1)])
    with pytest.raises(UsageError):
        claims.parse_claims(network=[f"tcp://h:{n + 1}" for n in range(claims.MAX_URLS + 1)])


def line(**changed: object) -> str:
    tree = {"writes": [[True, "", ""]], "reaches": [], "facts": {"uid": 1}} | changed
    return f"noise\n\nmark {json.dumps(tree)}\nmore"


def test_the_answer_is_found_among_other_output() -> None:
    found = claims.parse(line(), "mark ", writes=1, reaches=0)
    assert found is not None
    assert found.writes == (WORKS,)
    assert found.facts == {"uid": 1}


@every_row(
    "output",
    [
        "",
        "sh: mark {}",
        "mark nonsense",
        "mark []",
        line(facts=None),
        line(writes=[[1]]),
        line(writes=[]),
        line(reaches=[[True, "", ""]]),
    ],
)
def test_half_an_answer_is_none(output: str) -> None:
    assert claims.parse(output, "mark ", writes=1, reaches=0) is None


def test_pauses_grow_and_end() -> None:
    pauses = list(claims.plan_pauses(60))
    assert pauses == sorted(pauses[:-1]) + pauses[-1:]
    assert sum(pauses) == 60
    assert list(claims.plan_pauses(0)) == []
    assert max(claims.plan_pauses(10_000)) == 10
