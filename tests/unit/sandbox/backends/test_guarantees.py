"""The table of guarantees: complete, honest about gaps, and tied to the attempts that show it."""

from collections import Counter

import pytest

from holdfast.doctor.escape.attempts import ATTEMPTS, ESCAPES
from holdfast.sandbox.backends.guarantees import (
    BACKENDS,
    GUARANTEES,
    GuaranteeLevel,
    GuaranteeRow,
    Holding,
    holds,
    no,
    partly,
    tried,
)
from holdfast.sandbox.plan.select import Backend

every_row = pytest.mark.parametrize("row", GUARANTEES, ids=lambda row: row.id)


def test_every_attempt_that_is_named_exists() -> None:
    named = {id_ for row in GUARANTEES for id_ in row.attempts}
    assert sorted(named - {attempt.id for attempt in ATTEMPTS}) == []


def test_every_escape_belongs_to_one_guarantee() -> None:
    named = Counter(id_ for row in GUARANTEES for id_ in row.attempts)
    assert [attempt.id for attempt in ESCAPES if named[attempt.id] != 1] == []


def test_only_these_guarantees_are_not_shown_by_attempts() -> None:
    silent = {row.id for row in GUARANTEES if not row.attempts}
    assert silent == {
        *("protected-missing", "denied-later", "ends-together", "second-layer"),
        "replaced",  # by somebody outside, which no attempt can be
        "network-names",  # by attack 30, which has servers of its own
    }


def test_no_two_rows_have_the_same_id() -> None:
    assert len({row.id for row in GUARANTEES}) == len(GUARANTEES)


@every_row
def test_every_verdict_has_a_sentence(row: GuaranteeRow) -> None:
    for backend in BACKENDS:
        why = row.under(backend).why
        assert why[0].isupper() or why.startswith(("/", "macOS"))
        assert why.endswith(".")


def test_every_backend_that_can_be_chosen_has_a_column() -> None:
    assert {backend.value for backend in Backend} - {"none"} <= set(BACKENDS)


def test_the_strongest_backend_is_never_weaker_than_one_that_is_tried_after_it() -> None:
    strength = {GuaranteeLevel.HOLDS: 2, GuaranteeLevel.PARTLY: 1, GuaranteeLevel.NOT: 0}
    for row in GUARANTEES:
        first, *others = (strength[row.under(name).verdict] for name in ("namespaces", "bwrap", "landlock"))
        assert first >= max(others), row.id


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
