"""What it takes to compare texts line by line, counted: a machine that is busy changes nothing of it."""

from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Any

import pytest

from holdfast.agents.changes import manifest


@dataclass
class LineWork:
    """`pairs` of lines between anchors may be compared each with each; `lines` are compared one by one."""

    pairs: int = 0
    lines: int = 0


def count_work(monkeypatch: pytest.MonkeyPatch) -> LineWork:
    """What manifests take to be compared from here on."""
    work, split = LineWork(), manifest.split_lines

    class CountedLine(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            work.lines += 1
            return str.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            work.lines += 1
            return str.__ne__(self, other)

    class CountedMatcher(SequenceMatcher[str]):
        def find_longest_match(
            self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
        ) -> Match:
            rows = (len(self.a) if ahi is None else ahi) - alo  # type: ignore[attr-defined]
            columns = (len(self.b) if bhi is None else bhi) - blo  # type: ignore[attr-defined]
            work.pairs += rows * columns
            return super().find_longest_match(alo, ahi, blo, bhi)

    def split_counted(text: str) -> list[Any]:
        return [CountedLine(line) for line in split(text)]

    monkeypatch.setattr(manifest, "SequenceMatcher", CountedMatcher)
    monkeypatch.setattr(manifest, "split_lines", split_counted)
    return work
