"""Which daemon is used, replaced, or only told about."""

import pytest

from holdfast.agents.supervisor.daemons import (
    Origin,
    describe_difference,
    explain_keeping,
)

MINE = Origin("1.0", "/srv/a", "aa")


@pytest.mark.parametrize(
    ("theirs", "there", "words"),
    [
        (None, False, "older one"),
        (MINE, False, "/srv/a, which is gone"),
        (Origin("0.9", "/srv/a", "aa"), True, "version 0.9"),
        (Origin("1.0", "/srv/b", "aa"), True, "installed in /srv/b"),
        (Origin("1.0", "/srv/a", "bb"), True, "have changed since"),
    ],
)
def test_another_version_place_or_build_is_a_difference(
    theirs: Origin | None, there: bool, words: str
) -> None:
    assert words in (describe_difference(MINE, theirs, there=there) or "")


def test_the_same_code_is_none() -> None:
    assert describe_difference(MINE, Origin("1.0", "/srv/a", "aa"), there=True) is None


@pytest.mark.parametrize(
    ("workers", "dispatcher", "replaced"),
    [(0, False, True), (1, False, False), (0, True, False), (1, True, False)],
)
def test_a_daemon_is_replaced_only_where_that_loses_nothing(
    workers: int, dispatcher: bool, replaced: bool
) -> None:
    assert (explain_keeping("other", workers=workers, dispatcher=dispatcher) is None) is replaced


def test_whoever_keeps_an_old_daemon_hears_what_to_type() -> None:
    told = explain_keeping("it is older", workers=2, dispatcher=False)
    assert told is not None
    assert "it is older" in told
    assert "2 workers run" in told
    assert told.endswith("holdfast down --workers")
    assert "1 worker runs" in str(explain_keeping("x", workers=1, dispatcher=False))
    told = explain_keeping("x", workers=0, dispatcher=True)
    assert told is not None
    assert told.endswith("holdfast down, then holdfast up")
