"""requirements.toml and the tests agree: every promise has its tests, every integration test a promise.

`python -m tests.unit.test_requirements` prints how many there are of which kind.
"""

import ast
import functools
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tests.support.rows import every_row

ROOT: Final = Path(__file__).resolve().parents[2]
STATUSES: Final = {"tested", "client", "sandbox", "windows", "differs"}
SOURCES: Final = {"protocol D", "issue", "reference"}
CHECKLIST_LINES: Final = 152  # of the protocol's acceptance checklist; none may get lost
COMPARISONS: Final = ("tests/interop/test_same_answers.py", "tests/interop/test_client_suite.py")
PROMISED_FOLDERS: Final = ("tests/integration", "tests/interop", "tests/fault", "tests/agents")


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    group: str
    text: str
    source: str
    status: str
    tests: list[str] = []
    why: str = ""
    case: str = ""


def load() -> list[Requirement]:
    tree = tomllib.loads((ROOT / "tests" / "requirements.toml").read_text("utf-8"))
    return msgspec.convert(tree["requirement"], list[Requirement])


REQUIREMENTS: Final = load()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Test functions of a module, and the state machines it names Test…; nothing is imported."""
    names = set()
    for node in tree(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                names.add(name)
    return frozenset(names)


def recorded_differences() -> list[str]:
    """The keys of DIFFERENCES in every comparison with the reference."""
    found: list[str] = []
    for module in COMPARISONS:
        [value] = [
            node.value
            for node in tree(ROOT / module).body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            if node.target.id == "DIFFERENCES"
        ]
        assert isinstance(value, ast.Dict)
        found += [ast.literal_eval(key) for key in value.keys if key is not None]
    return found


@every_row("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_an_entry_is_complete(requirement: Requirement) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", requirement.id)
    assert requirement.group
    assert requirement.text
    assert requirement.source in SOURCES
    assert requirement.status in STATUSES
    assert bool(requirement.why) == (requirement.status == "differs"), "a difference, and only that, says why"
    if requirement.status in ("tested", "differs"):
        assert requirement.tests, "who says so?"


@every_row("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_the_tests_of_an_entry_exist(requirement: Requirement) -> None:
    assert len(requirement.tests) == len(set(requirement.tests))
    for test in requirement.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name in names_in(ROOT / path), test


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(r.id for r in REQUIREMENTS).items() if count > 1] == []


def test_no_line_of_the_checklist_is_missing() -> None:
    assert sum(requirement.source == "protocol D" for requirement in REQUIREMENTS) == CHECKLIST_LINES


def test_every_module_of_integration_tests_keeps_a_promise() -> None:
    referenced = {test.partition("::")[0] for requirement in REQUIREMENTS for test in requirement.tests}
    modules = {
        path.relative_to(ROOT).as_posix()
        for folder in PROMISED_FOLDERS
        for path in (ROOT / folder).rglob("test_*.py")
    }
    assert modules - referenced == set(), "add what they promise to tests/requirements.toml"


def test_every_difference_from_the_reference_is_recorded_and_the_other_way_round() -> None:
    cases = [requirement.case for requirement in REQUIREMENTS if requirement.case]
    assert sorted(cases) == sorted(recorded_differences())
    assert all(requirement.status == "differs" for requirement in REQUIREMENTS if requirement.case)


def summary() -> str:
    """How many promises of each source are in which state."""
    counts = Counter((requirement.source, requirement.status) for requirement in REQUIREMENTS)
    lines = [f"{source:12}{status:10}{count:4}" for (source, status), count in sorted(counts.items())]
    return "\n".join([*lines, f"{'all':22}{len(REQUIREMENTS):4}"])


def test_the_summary_counts_every_entry() -> None:
    *lines, total = summary().splitlines()
    assert sum(int(line.split()[-1]) for line in lines) == int(total.split()[-1]) == len(REQUIREMENTS)


if __name__ == "__main__":
    sys.stdout.write(f"{summary()}\n")
