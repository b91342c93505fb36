"""How an attempt is judged."""

import json
from dataclasses import replace

import pytest

from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import UNWRITABLE, Attempt, Guarantee
from holdfast.doctor.escape.selfcheck import AttemptOutcome, AttemptResult, AttemptVerdict, parse_outcome
from tests.support.rows import every_row

ATTEMPT = Attempt("x", Guarantee.OUTSIDE, "try x", "pass", UNWRITABLE)


@every_row(
    ("outcome", "verdict"),
    [
        ("EROFS", AttemptVerdict.HELD),
        ("ENOENT", AttemptVerdict.BROKEN),
        ("done", AttemptVerdict.BROKEN),
        ("failed", AttemptVerdict.BROKEN),
        ("skipped", AttemptVerdict.SKIPPED),
    ],
)
def test_only_an_expected_refusal_holds(outcome: str, verdict: AttemptVerdict) -> None:
    assert AttemptResult(ATTEMPT, outcome).verdict is verdict


@pytest.mark.parametrize("outcome", ["EROFS", "skipped"])
def test_what_the_witnesses_saw_outweighs_what_the_command_said(outcome: str) -> None:
    result = AttemptResult(ATTEMPT, outcome, disturbances=("a file changed",))
    assert result.verdict is AttemptVerdict.BROKEN
    assert "a file changed" in result.describe()


def test_the_last_line_for_us_counts_whatever_else_was_printed() -> None:
    line = f"noise\n{inside.MARK}{json.dumps(['EPERM', 'no'])}\nmore noise\n"
    assert parse_outcome(AttemptOutcome(0, line)) == ("EPERM", "no")


@pytest.mark.parametrize(
    ("code", "outcome"), [(159, "SIGSYS"), (137, "SIGKILL"), (1, "failed"), (255, "failed")]
)
def test_a_command_that_said_nothing_is_judged_by_its_end(code: int, outcome: str) -> None:
    assert parse_outcome(AttemptOutcome(code, "Traceback"))[0] == outcome


def test_a_result_is_described_in_one_breath() -> None:
    text = AttemptResult(replace(ATTEMPT, expect=frozenset({"EPERM"})), "done").describe()
    assert text == "x: try x: done, expected EPERM"
