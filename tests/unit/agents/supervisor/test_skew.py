"""Which daemon is used, replaced, or only told about."""

import pytest

from holdfast.agents.supervisor.skew import Origin, SkewAction, advice, decide, difference

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
    assert words in (difference(MINE, theirs, there=there) or "")


def test_the_same_code_is_none() -> None:
    assert difference(MINE, Origin("1.0", "/srv/a", "aa"), there=True) is None


@pytest.mark.parametrize(
    ("differs", "workers", "dispatcher", "step"),
    [
        (None, 0, False, SkewAction.USE),
        (None, 3, True, SkewAction.USE),
        ("other", 0, False, SkewAction.REPLACE),
        ("other", 1, False, SkewAction.TELL),
        ("other", 0, True, SkewAction.TELL),
        ("other", 1, True, SkewAction.TELL),
    ],
)
def test_a_daemon_is_replaced_only_where_that_loses_nothing(
    differs: str | None, workers: int, dispatcher: bool, step: SkewAction
) -> None:
    assert decide(differs, workers=workers, dispatcher=dispatcher) is step


def test_whoever_keeps_an_old_daemon_hears_what_to_type() -> None:
    told = advice("supervisor", "it is older", workers=2, dispatcher=False)
    assert "it is older" in told
    assert "2 workers run" in told
    assert told.endswith("holdfast down --workers")
    assert advice("supervisor", "x", workers=0, dispatcher=True).endswith("holdfast down, then holdfast up")
