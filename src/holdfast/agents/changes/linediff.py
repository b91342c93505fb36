"""The lines that differ between two texts, as a patch, in time that grows with their length. Pure module.

Lines that occur once on both sides, in the order of both, hold the texts together; what lies between two of
them is compared line by line where that is little, and replaced as a whole where it is not. So nobody can
write a text that takes long to compare, and whatever differs is in the patch.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Final

MAX_PAIRS: Final = 10_000  # pairs of lines between two anchors that are compared: a millisecond or so
MAX_ALL_PAIRS: Final = 400_000  # of one text
AROUND: Final = 3  # unchanged lines that are shown

Hunk = list[tuple[str, int, int, int, int]]


def patch_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The hunks of a unified diff, without its head."""
    for hunk in _hunks(old, new):
        (_, from_old, _, from_new, _), (_, _, to_old, _, to_new) = hunk[0], hunk[-1]
        yield f"@@ -{_range(from_old, to_old)} +{_range(from_new, to_new)} @@\n"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


class _Matched(SequenceMatcher[str]):
    """With blocks that we found ourselves."""

    def __init__(self, blocks: list[Match]) -> None:
        super().__init__(None, (), ())
        self._blocks = blocks

    def get_matching_blocks(self) -> list[Match]:
        return self._blocks


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterable[Hunk]:
    return _Matched([*_match(old, new), Match(len(old), len(new), 0)]).get_grouped_opcodes(AROUND)


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def _match(old: Sequence[str], new: Sequence[str]) -> list[Match]:
    """Runs of equal lines, in the order of both."""
    found: list[Match] = []
    left = MAX_ALL_PAIRS
    i = j = 0
    for anchor in (*_anchors(old, new), (len(old), len(new))):
        if anchor[0] < i or anchor[1] < j:  # a run before it took it along
            continue
        head = _count_equal(old, new, i, j, min(anchor[0] - i, anchor[1] - j))
        _add(found, i, j, head)
        i, j = i + head, j + head
        end_old, end_new = anchor
        while end_old > i and end_new > j and old[end_old - 1] == new[end_new - 1]:
            end_old, end_new = end_old - 1, end_new - 1
        pairs = (end_old - i) * (end_new - j)
        if 0 < pairs <= min(MAX_PAIRS, left):
            left -= pairs
            between = SequenceMatcher(None, old[i:end_old], new[j:end_new], autojunk=False)
            for block in between.get_matching_blocks()[:-1]:
                _add(found, i + block.a, j + block.b, block.size)
        more = _count_equal(old, new, *anchor, min(len(old) - anchor[0], len(new) - anchor[1]))
        _add(found, end_old, end_new, anchor[0] - end_old + more)
        i, j = anchor[0] + more, anchor[1] + more
    return found


def _count_equal(old: Sequence[str], new: Sequence[str], i: int, j: int, most: int) -> int:
    return next((at for at in range(most) if old[i + at] != new[j + at]), most)


def _add(found: list[Match], i: int, j: int, size: int) -> None:
    if not size:
        return
    if found and (found[-1].a + found[-1].size, found[-1].b + found[-1].size) == (i, j):
        found[-1] = Match(found[-1].a, found[-1].b, found[-1].size + size)
    else:
        found.append(Match(i, j, size))


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that occur once in each: the longest row of them that rises on both sides."""
    once_old, once_new = Counter(old), Counter(new)
    place = {line: number for number, line in enumerate(new) if once_new[line] == 1}
    pairs = [
        (number, place[line]) for number, line in enumerate(old) if once_old[line] == 1 and line in place
    ]
    ends: list[int] = []  # of the best row of each length: the place in `new` ...
    last: list[int] = []  # ... and the pair that it is of
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect.bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [number]
    row = []
    at = last[-1] if last else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]
