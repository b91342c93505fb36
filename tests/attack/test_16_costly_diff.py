"""No text that a worker can write takes long to compare."""

import difflib
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from holdfast.agents.changes import manifest
from holdfast.agents.changes.changes import MAX_TEXT
from holdfast.agents.changes.manifest import Manifest, ManifestEntry
from tests.support.linework import count_work

MOST_PAIRS: Final = 2_000_000  # of lines that are compared each with each; of some texts there are 4e9
PER_LINE: Final = 16


def _every_second(side: int) -> str:
    return "".join("same\n" if n % 2 else f"{side}{n}\n" for n in range(MAX_TEXT // 10))


def _numbered(side: int) -> str:
    return "".join(f"{n}\n" if n % 2 else f"{side}{n}\n" for n in range(MAX_TEXT // 10))


def _two_letters(side: int) -> str:
    chosen = random.Random(side)  # noqa: S311 - the same each time
    return "".join(chosen.choice("ab") + "\n" for _ in range(MAX_TEXT // 2))


def _shuffled(side: int) -> str:
    lines = [f"{n}\n" for n in range(MAX_TEXT // 8)]
    random.Random(side).shuffle(lines)  # noqa: S311 - likewise
    return "".join(lines)


def _blocks(side: int) -> str:
    """Many places between anchors, each as large as is compared line by line."""
    chosen = random.Random(side)  # noqa: S311 - the same each time
    return "".join(
        f"anchor {block}\n" + "".join(chosen.choice("abc") + "\n" for _ in range(95)) for block in range(600)
    )


TEXTS: Final[Mapping[str, Callable[[int], str]]] = {
    "every second line": _every_second,
    "numbered": _numbered,
    "two letters": _two_letters,
    "shuffled": _shuffled,
    "blocks": _blocks,
    "one line": lambda side: str(side) * MAX_TEXT,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_takes_few_comparisons(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = count_work(monkeypatch)
    old, new = (TEXTS[kind](side)[:MAX_TEXT] for side in (1, 2))
    sides = [Manifest({"a": ManifestEntry("file", len(text), 0, 0o644, text)}) for text in (old, new)]
    seen = manifest.compare(sides[0], sides[1])
    assert work.pairs <= MOST_PAIRS
    assert work.lines <= PER_LINE * (old.count("\n") + new.count("\n") + 2)
    assert seen.count == 1
    assert seen.diff.startswith("diff --git a/a b/a\n")


class _CountedLookups(dict[str, list[int]]):
    made = 0

    def get(self, *given: Any) -> Any:
        self.made += 1
        return super().get(*given)


def test_the_control_takes_its_time() -> None:
    """A sixteenth of such a text: what `difflib` does grows with the square of its lines."""
    made = []
    for part in (32, 16):
        old, new = (_numbered(side)[: MAX_TEXT // part].splitlines(keepends=True) for side in (1, 2))
        matcher: Any = difflib.SequenceMatcher(None, old, new)
        matcher.b2j = counted = _CountedLookups(matcher.b2j)
        matcher.get_opcodes()
        made.append(counted.made)
    assert made[1] > 2.5 * made[0], made


def test_all_texts_of_a_run_together_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another door: not one long text but many."""
    work = count_work(monkeypatch)
    old, new = (_blocks(side)[:MAX_TEXT] for side in (1, 2))
    before, after = (
        Manifest({f"f{n}": ManifestEntry("file", len(text), 0, 0o644, f"{n}\n{text}") for n in range(32)})
        for text in (old, new)
    )
    assert manifest.compare(before, after).count == 32
    assert work.pairs <= 4 * MOST_PAIRS
