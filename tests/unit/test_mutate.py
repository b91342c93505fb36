"""The promises that are broken on purpose: the table fits the code, and its record is what was seen."""

from pathlib import Path

import pytest

from tests.support.rows import every_row
from tests.unit.test_requirements import REQUIREMENTS
from tools.mutate import MUTATIONS, Mutation, Outcome, changed, failures, named_tests, page

ROOT = Path(__file__).resolve().parents[2]
ONE = Mutation("a", "it lies", "src/x.py", "return a | b", "return b")


@every_row("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.requirement}: {mutation.breaks}")
def test_a_mutation_breaks_a_promise_that_is_tested_and_fits_the_code(mutation: Mutation) -> None:
    [promise] = [promise for promise in REQUIREMENTS if promise.id == mutation.requirement]
    assert promise.status == "tested"
    source = (ROOT / mutation.file).read_text("utf-8")
    broken = changed(source, mutation)
    assert broken != source
    compile(broken, mutation.file, "exec")


def test_at_least_ten_promises_are_broken() -> None:
    assert len({mutation.requirement for mutation in MUTATIONS}) >= 10


@pytest.mark.parametrize("source", ["", "return a | b\nreturn a | b"])
def test_what_is_not_there_exactly_once_is_not_changed(source: str) -> None:
    with pytest.raises(ValueError, match="times in"):
        changed(source, ONE)


def test_the_tests_of_a_promise_are_those_it_names() -> None:
    assert named_tests('[[requirement]]\nid = "a"\ntests = ["t"]\n[[requirement]]\nid = "b"') == {
        "a": ["t"],
        "b": [],
    }


def test_failures_are_named_without_their_parameters_and_once() -> None:
    said = (
        "E  FAILED\n"
        "FAILED tests/a.py::test_x[one or two] - AssertionError\n"
        "FAILED tests/a.py::test_x[2]\n"
        "ERROR tests/b.py\n"
        "FAILED tests/a.py::test_a - contains 1 failed subtest\n"
    )
    assert failures(said) == ("tests/a.py::test_a", "tests/a.py::test_x")


def test_the_record_says_what_was_changed_and_who_noticed() -> None:
    told = page(
        [Outcome(ONE, 2, ("tests/t.py::test_t",)), Outcome(ONE, 2, (), "**no test noticed**")],
        date="today",
        head="abc",
    )
    assert "on today from `abc`" in told
    first, second = [line for line in told.splitlines() if line.startswith("| `a`")]
    assert "`return a \\| b` → `return b`" in first
    assert "`tests/t.py::test_t`" in first
    assert "**no test noticed**" in second
