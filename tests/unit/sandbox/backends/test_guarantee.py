"""One row of the table of guarantees."""

import pytest

from holdfast.sandbox.backends.guarantee import (
    BACKENDS,
    GuaranteeLevel,
    GuaranteeRow,
    Holding,
    holds,
    no,
    partly,
    tried,
)

ROW = GuaranteeRow("x", "X", holds("a"), partly("b"), no("c"), tried("one  two"))


def test_a_row_says_how_far_it_holds_with_each_backend() -> None:
    assert [ROW.under(backend) for backend in BACKENDS] == [
        Holding(GuaranteeLevel.HOLDS, "a"),
        Holding(GuaranteeLevel.PARTLY, "b"),
        Holding(GuaranteeLevel.NOT, "c"),
    ]
    assert ROW.attempts == ("one", "two")


def test_no_backend_is_no_column() -> None:
    with pytest.raises(KeyError):
        ROW.under("none")
