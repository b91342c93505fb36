"""A patch holds every difference, whatever the texts are, and is made in bounded steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.changes import manifest
from holdfast.agents.changes.manifest import patch_lines
from tests.support.linework import count_work

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n"]), max_size=40)


def applied(old: list[str], patch: list[str]) -> list[str]:
    """What `patch` says that came of `old`; an assertion where it does not fit."""
    made, at = [], 0
    for line in patch:
        if line.startswith("@@"):
            start, _, length = line.split()[1][1:].partition(",")
            begin = int(start) - (length != "0")
            made += old[at:begin]
            at = begin
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made += [line[1:]] if line[0] == " " else []
            at += 1
    return made + old[at:]


@given(LINES, LINES)
def test_a_patch_makes_one_text_of_the_other(old: list[str], new: list[str]) -> None:
    patch = list(patch_lines(old, new))
    assert applied(old, patch) == new
    assert bool(patch) == (old != new)


def test_a_small_change_is_a_small_patch() -> None:
    old = [f"{number}\n" for number in range(1000)]
    new = [*old[:500], "new\n", *old[501:]]
    assert list(patch_lines(old, new)) == [
        "@@ -498,7 +498,7 @@\n",
        *(f" {number}\n" for number in (497, 498, 499)),
        "-500\n",
        "+new\n",
        *(f" {number}\n" for number in (501, 502, 503)),
    ]


def test_every_second_line_of_a_long_text_takes_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    work = count_work(monkeypatch)
    for same in ("same\n", None):
        old = [same or f"{n}\n" if n % 2 else f"old {n}\n" for n in range(32_000)]
        new = [same or f"{n}\n" if n % 2 else f"new {n}\n" for n in range(32_000)]
        work.lines = 0
        patch = list(patch_lines(*(manifest.split_lines("".join(side)) for side in (old, new))))
        assert work.lines < 16 * len(old)
        assert applied(old, patch) == new
    assert work.pairs <= 2_000_000
