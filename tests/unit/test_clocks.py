"""Tests count what is done, or wait for an event with a bound: none judges by how long something took."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.rows import every_row

TESTS: Final = Path(__file__).resolve().parents[1]
CLOCKS: Final = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "time_ns"}
)


def _is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Attribute(value=ast.Name(id="time"), attr=name) | ast.Name(id=name):
            return name in CLOCKS or (name == "time" and isinstance(node.func, ast.Attribute))
    return False


def _takes_a_span(node: ast.AST) -> bool:
    """Whether something is subtracted from what a clock says, or that from something."""
    return any(
        isinstance(one, ast.BinOp)
        and isinstance(one.op, ast.Sub)
        and any(_is_clock(side) for side in ast.walk(one))
        for one in ast.walk(node)
    )


def _judged_by_time(source: str) -> Iterator[int]:
    """The lines of assertions about a span of time, also one that has a name."""
    if not re.search(rf"\b(?:{'|'.join(CLOCKS)}|time\.time)\(", source):
        return  # most of them, and this is quicker than to read them as a tree
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        spans = {
            target.id
            for one in ast.walk(function)
            if isinstance(one, ast.Assign) and _takes_a_span(one.value)
            for target in one.targets
            if isinstance(target, ast.Name)
        }
        for one in ast.walk(function):
            if isinstance(one, ast.Assert) and (
                _takes_a_span(one.test)
                or any(isinstance(name, ast.Name) and name.id in spans for name in ast.walk(one.test))
            ):
                yield one.lineno


def test_no_test_asserts_how_long_something_took() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if "__pycache__" not in path.parts
        for line in _judged_by_time(path.read_text("utf-8"))
    }
    assert found == set(), "count what is done, or wait for the event"


@every_row(
    ("source", "refused"),
    [
        ("def f():\n    assert time.monotonic() - begun < 2", True),
        ("def f():\n    assert patient(2) > time.perf_counter() - begun", True),
        ("async def f():\n    took = time.monotonic() - begun\n    assert took < 2", True),
        ("def f():\n    assert (time.thread_time() - begun) / 100 < 0.001", True),
        ("def f():\n    assert END - time.time() > 2", True),
        ("def f():\n    deadline = time.monotonic() + 5\n    assert seen", False),
        ("def f():\n    record(time.monotonic() - begun)", False),
        ("def f():\n    assert clock.monotonic() - begun == 2", False),
    ],
)
def test_what_is_refused(source: str, refused: bool) -> None:
    assert bool(list(_judged_by_time(source))) is refused
