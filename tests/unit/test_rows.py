"""A table of cases as one test: all rows are tried, all that fail are named."""

from enum import Enum

import pytest

from tests.support.rows import every_row, read

pytest_plugins = ["pytester"]

MODULE = """
import pytest
from tests.support.rows import every_row

@pytest.fixture
def ten():
    return 10

@every_row("n", [1, 2, 3, 4])
def test_even(n, ten):
    assert (n + ten) % 2 == 0

@every_row(("a", "b"), [(1, 1), pytest.param(1, 2, id="unlike")])
def test_alike(a, b):
    assert a == b

@every_row("a", ["x", "y"])
@every_row("b", [1, 2])
def test_pairs(a, b):
    assert (a, b) != ("y", 2)

@every_row("n", range(3))
def test_all_well(n):
    assert n < 3

@every_row("n", [1, 2])
def test_skipped(n):
    if n == 2:
        pytest.skip("not here")
"""


def test_every_row_that_fails_is_named_and_the_test_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist", "-rfs")
    said = result.stdout.str()
    for row in ("[1] test_even", "[3] test_even", "[unlike] test_alike", "[2-y] test_pairs"):
        path, name = row.split()[1], row.split()[0]
        assert f"SUBFAILED{name}" in said, said
        assert path in said
    assert "SUBFAILED[2] " not in said
    assert "not here" in said
    assert result.ret == pytest.ExitCode.TESTS_FAILED


class Colour(Enum):
    RED = 1


def test_a_row_is_called_by_what_is_in_it() -> None:
    assert [row.id for row in read(["a"], [1, "x", None, Colour.RED, int], None)] == [
        "1", "x", "None", "Colour.RED", "int",
    ]  # fmt: skip
    assert [row.id for row in read(["a", "b"], [([], 2), (3, 4)], None)] == ["a0-2", "3-4"]
    assert [row.id for row in read(["a"], [1, 2], lambda value: f"is {value}")] == ["is 1", "is 2"]
    assert [row.id for row in read(["a"], [1, 2], ["p", "q"])] == ["p", "q"]
    assert [row.id for row in read(["a"], [pytest.param(1, id="own")], str)] == ["own"]


def test_a_table_that_would_try_nothing_or_not_all_is_refused() -> None:
    with pytest.raises(ValueError, match="0 rows"):
        every_row("a", [])
    with pytest.raises(ValueError, match="zip"):
        every_row("a, b", [(1, 2), (1,)])
    with pytest.raises(ValueError, match="ids"):
        every_row("a", [1, 2], ids=["one"])
    with pytest.raises(ValueError, match="mark"):
        every_row("a", [pytest.param(1, marks=pytest.mark.xfail)])
