"""How an attempt is judged."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import UNWRITABLE, Attempt, Guarantee
from holdfast.doctor.escape.attempts import ATTEMPTS
from holdfast.doctor.escape.selfcheck import (
    TOGETHER,
    AttemptOutcome,
    AttemptResult,
    AttemptVerdict,
    group_attempts,
    judge_together,
    parse_outcome,
)
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


def test_every_attempt_is_in_one_group_of_those_that_have_the_same_sandbox() -> None:
    groups = group_attempts(ATTEMPTS)
    assert sorted(one.id for group in groups for one in group) == sorted(one.id for one in ATTEMPTS)
    assert groups[0][0].limits is not None  # what takes longest is begun first
    shared = [group for group in groups if len(group) > 1]
    assert max(map(len, shared)) <= TOGETHER
    for group in shared:
        assert len({(one.online, one.hides) for one in group}) == 1
        assert [one.id for one in group if one.tty or one.after or one.limits] == []
        assert [one.id for one in group if one.guarantee in (Guarantee.DESCRIPTORS, Guarantee.USABLE)] == []


GROUP = [replace(ATTEMPT, id=name) for name in "abcd"]


def told(*outcomes: tuple[int, str]) -> str:
    return "".join(f"noise\n{inside.MARK}{(number, outcome, '')!a}\n" for number, outcome in outcomes)


@every_row(
    ("output", "disturbed", "held", "unknown"),
    [
        (told((0, "EROFS"), (1, "EPERM"), (2, "EPERM"), (3, "EROFS")), False, "abcd", ""),
        (told((0, "EROFS"), (1, "EPERM")), False, "ab", ""),  # the others follow
        (told((0, "EROFS"), (1, "done"), (2, "skipped"), (3, "EROFS")), False, "ad", "bc"),
        (told((0, "EROFS"), (2, "EROFS")), False, "ac", "b"),  # one ended without a word
        (told((0, "EROFS"), (1, "EPERM"), (2, "EPERM"), (3, "EROFS")), True, "", "abcd"),
        ("Traceback", False, "", "a"),
    ],
)
def test_together_they_are_only_ever_found_to_hold(
    output: str, disturbed: bool, held: str, unknown: str
) -> None:
    judged = judge_together(GROUP, output, disturbed=disturbed)
    assert "".join(id_ for id_, result in judged.items() if result is not None) == held
    assert "".join(id_ for id_, result in judged.items() if result is None) == unknown
    assert list(judged) == [one.id for one in GROUP[: len(judged)]]


def made_together(folder: Path, *scripts: str) -> dict[str, AttemptResult | None]:
    """Without a sandbox: what the one process says that makes them all."""
    for name in ("workspace", "tmp"):
        (folder / name).mkdir()
    prepared = {name: str(folder / name) for name in ("workspace", "tmp")}
    program = f"{Path(inside.__file__).read_text('utf-8')}\nmain_together({scripts!r}, {prepared!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=folder / "workspace",
        capture_output=True,
        text=True,
        check=True,
    )
    anything = frozenset({"EROFS", "SIGKILL", "done"})
    group = [replace(ATTEMPT, id=str(at), expect=anything) for at, _ in enumerate(scripts)]
    return judge_together(group, done.stdout, disturbed=False)


def test_each_is_made_in_a_process_of_its_own_and_its_end_is_told(tmp_path: Path) -> None:
    judged = made_together(
        tmp_path,
        "global seen; seen = 1",
        "seen",
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        "raise OSError(30, '')",
    )
    outcomes = {id_: result and result.outcome for id_, result in judged.items()}
    assert outcomes == {"0": "done", "1": None, "2": "SIGKILL", "3": None, "4": "EROFS"}


@pytest.mark.parametrize("trace", ["create('f')", "os.chmod('.', 0o700)", "create(scene.tmp + '/f')"])
def test_none_is_made_where_another_has_left_something(tmp_path: Path, trace: str) -> None:
    assert list(made_together(tmp_path, "pass", trace, "pass")) == ["0", "1"]
