"""The table of attempts: complete, unambiguous, and made of programs that parse."""

import ast
import builtins
from collections import Counter

import pytest

from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import CONTAINED, DONE, FAILED, LIMIT, SKIPPED, UNRESOLVED
from holdfast.doctor.escape.attempts import ATTEMPTS, ESCAPES, EVERYDAY, Attempt, Guarantee
from tests.support.rows import every_row

every_attempt = pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.id)


def test_there_are_enough_attempts_of_both_kinds() -> None:
    assert len(ESCAPES) >= 60
    assert len(EVERYDAY) >= 20
    assert len(ATTEMPTS) == len(ESCAPES) + len(EVERYDAY)


def test_no_two_attempts_have_the_same_id_or_do_the_same() -> None:
    assert [id_ for id_, count in Counter(one.id for one in ATTEMPTS).items() if count > 1] == []
    scripts = Counter((one.script, one.after, one.online, one.limits) for one in ATTEMPTS)
    assert [script for script, count in scripts.items() if count > 1] == []


@every_row("guarantee", Guarantee)
def test_every_guarantee_is_tried(guarantee: Guarantee) -> None:
    assert [one for one in ATTEMPTS if one.guarantee is guarantee]


def test_an_escape_never_expects_to_succeed_and_ordinary_work_always_does() -> None:
    assert [one.id for one in ESCAPES if DONE in one.expect or one.guarantee is Guarantee.USABLE] == []
    assert [one.id for one in EVERYDAY if one.expect != {DONE} or one.guarantee is not Guarantee.USABLE] == []


def test_a_broken_attempt_is_never_what_is_expected() -> None:
    assert [one.id for one in ATTEMPTS if one.expect & {FAILED, SKIPPED} or not one.expect] == []


@every_attempt
def test_an_outcome_that_is_expected_can_be_told(attempt: Attempt) -> None:
    words = {DONE, CONTAINED, UNRESOLVED} | ({LIMIT} if attempt.limits else set())
    assert [word for word in attempt.expect - words if not (word.isupper() and word[0] in "ES")] == []


@every_attempt
def test_a_script_parses_and_uses_only_words_that_exist(attempt: Attempt) -> None:
    for script in filter(None, (attempt.script, attempt.after)):
        tree = ast.parse(script)
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        own = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert called <= set(vars(inside)) | own | imported | set(dir(builtins))
