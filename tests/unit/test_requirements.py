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
STATUSES: Final = {"tested", "differs", "unbuilt"}
SOURCES: Final = {"protocol D", "issue", "reference"}
CHECKLIST_LINES: Final = 152  # of the protocol's acceptance checklist; none may get lost
COMPARISONS: Final = ("tests/interop/test_same_answers.py", "tests/interop/test_client_suite.py")
UNBUILT: Final = {  # by the issue that builds it; 0: none does. One more here is a promise that nobody keeps
    0: {"windows-sandboxed-writes"},
    15: {"client-retries-discovery"},
}
PROMISED_FOLDERS: Final = ("tests/integration", "tests/interop", "tests/fault", "tests/agents")


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    group: str
    text: str
    source: str
    status: str
    tests: list[str] = []
    why: str = ""
    issue: int = 0
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


def never_runs(module: ast.Module, name: str) -> bool:
    """Whether a test is skipped or excused everywhere, is hidden by a namesake, or has nothing in it."""
    found = [
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    if not found:
        return False  # a state machine
    marks = [
        mark
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in (node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value])
    ]
    body = [node for node in found[-1].body if not _says_nothing(node)]
    return (
        len(found) > 1
        or any(_stops_always(mark) for mark in (*marks, *found[-1].decorator_list))
        or not body
        or ast.unparse(body[0]).startswith(("pytest.skip(", "pytest.xfail("))
    )


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _stops_always(mark: ast.expr) -> bool:
    """A mark that skips or excuses without a condition that can be false, or does so for every row."""
    if not isinstance(mark, ast.Call):
        return ast.unparse(mark) in ("pytest.mark.skip", "pytest.mark.xfail", "pytest.mark.skipif")
    match ast.unparse(mark.func):
        case "pytest.mark.skip":
            return True
        case "pytest.mark.skipif" | "pytest.mark.xfail":
            return not mark.args or isinstance(mark.args[0], ast.Constant)
        case "pytest.mark.parametrize" if len(mark.args) > 1 and isinstance(mark.args[1], ast.List):
            return bool(mark.args[1].elts) and all(map(_never_tried, mark.args[1].elts))
    return False


def _never_tried(row: ast.expr) -> bool:
    marks = [word.value for word in row.keywords if word.arg == "marks"] if isinstance(row, ast.Call) else []
    return any(_stops_always(mark) for mark in marks)


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
    assert bool(requirement.why) == (requirement.status != "tested"), (
        "what is not as promised, and only that, says why"
    )
    assert requirement.tests or requirement.status == "unbuilt", "who says so?"
    assert not requirement.issue or requirement.status == "unbuilt"


@every_row("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_the_tests_of_an_entry_exist(requirement: Requirement) -> None:
    assert len(requirement.tests) == len(set(requirement.tests))
    for test in requirement.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert re.fullmatch(r"tests/(\w+/)+test_\w+\.py", path), f"{test} is not collected"
        assert name in names_in(ROOT / path), test
        assert not never_runs(tree(ROOT / path), name), f"{test} never runs, or may fail"


def test_what_is_unbuilt_is_known_one_by_one() -> None:
    unbuilt: dict[int, set[str]] = {}
    for requirement in REQUIREMENTS:
        if requirement.status == "unbuilt":
            unbuilt.setdefault(requirement.issue, set()).add(requirement.id)
    assert unbuilt == UNBUILT


IDLE = {
    "skipped": "@pytest.mark.skip\ndef test_x():\n    assert f()",
    "skipped with a reason": "@pytest.mark.skip(reason='')\ndef test_x():\n    assert f()",
    "skipped if true": "@pytest.mark.skipif(True, reason='')\ndef test_x():\n    assert f()",
    "may fail": "@pytest.mark.xfail(strict=False)\nasync def test_x():\n    assert f()",
    "the whole module": "pytestmark = pytest.mark.skip(reason='')\ndef test_x():\n    assert f()",
    "the whole module, among others": "pytestmark = [pytest.mark.a, pytest.mark.xfail]\n"
    "def test_x():\n    assert f()",
    "skips itself": "def test_x():\n    'why'\n    pytest.skip('no')",
    "every row": "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.skip)])\n"
    "def test_x(a):\n    assert f()",
    "replaced by another": "def test_x():\n    assert f()\ndef test_x():\n    assert f()",
    "asserts nothing": "def test_x(): ...",
}
RUNNING = {
    "plain": "def test_x():\n    assert f()",
    "on one platform": "@pytest.mark.skipif(sys.platform != 'x', reason='')\ndef test_x():\n    assert f()",
    "excused on one": "@pytest.mark.xfail(sys.platform == 'x', reason='')\ndef test_x():\n    assert f()",
    "if something is missing": "def test_x():\n    if not g():\n        pytest.skip('no')\n    assert f()",
    "some rows": "@pytest.mark.parametrize('a', [1, pytest.param(2, marks=pytest.mark.skip)])\n"
    "def test_x(a):\n    assert f()",
    "beside one that is skipped": "@pytest.mark.skip\ndef test_y(): pass\ndef test_x():\n    assert f()",
}


@every_row("text", IDLE.values(), ids=IDLE)
def test_a_test_that_never_runs_shows_nothing(text: str) -> None:
    assert never_runs(ast.parse(text), "test_x")


@every_row("text", RUNNING.values(), ids=RUNNING)
def test_a_test_that_runs_somewhere_shows_something(text: str) -> None:
    assert not never_runs(ast.parse(text), "test_x")


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
