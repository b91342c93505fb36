"""The table of attempts: complete, unambiguous, and made of programs that parse."""

import ast
import builtins
import subprocess
from collections import Counter

import pytest

from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import CONTAINED, DONE, FAILED, LIMIT, SKIPPED, UNRESOLVED
from holdfast.doctor.escape.attempts import ATTEMPTS, ESCAPES, EVERYDAY, Attempt, Guarantee
from holdfast.doctor.escape.selfcheck import AttemptOutcome, parse_outcome
from tests.support.rows import every_row

every_attempt = every_row("attempt", ATTEMPTS, ids=lambda attempt: attempt.id)


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
    inside.scene.outside = inside.scene.workspace = "/"
    for script in filter(None, (attempt.script, attempt.after)):
        tree = ast.parse(script)
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        own = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        own |= {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        own |= {str(node.name) for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        words = inside.Words(vars(inside))
        assert [name for name in named - own - imported - set(dir(builtins)) if not words[name]] == []


def test_what_a_script_may_name_is_made_when_it_is_named() -> None:
    inside.scene.workspace = "/w"
    words = inside.Words()
    assert str(words["locked"]) == "/w/conf/locked"
    assert words["subprocess"] is subprocess
    with pytest.raises(KeyError):
        words["nothing_like_that"]


def test_what_an_attempt_says_comes_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    inside.main("raise Contained('caf\u00e9 \"\\n\" \\udcff')", {"outside": "/o"})
    assert parse_outcome(AttemptOutcome(0, capsys.readouterr().out)) == (CONTAINED, 'caf\u00e9 "\n" \udcff')
    inside.main("socket.getaddrinfo('', 'no-such-service')", {})
    assert parse_outcome(AttemptOutcome(0, capsys.readouterr().out))[0] == UNRESOLVED
