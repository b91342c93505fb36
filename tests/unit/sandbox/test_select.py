"""Needs in, enforcement out; without a backend every need is refused."""

import itertools

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.select import NONE, Enforcement, Need, select

COMBINATIONS = [
    frozenset(needs) for count in range(1, len(Need) + 1) for needs in itertools.combinations(Need, count)
]


def test_no_need_is_met_by_no_backend_with_nothing_missing() -> None:
    assert select(frozenset()) == NONE == Enforcement("none", missing=(), weakened=(), remedies=())


@pytest.mark.parametrize("needs", COMBINATIONS, ids=lambda needs: "+".join(sorted(needs)))
def test_a_need_that_nobody_meets_is_never_dropped(needs: frozenset[Need]) -> None:
    with pytest.raises(
        SandboxUnavailable, match=r"^sandbox intent cannot be enforced on this executor"
    ) as caught:
        select(needs)
    assert all(need in str(caught.value) for need in needs)
    assert caught.value.remedy
