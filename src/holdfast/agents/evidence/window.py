"""What is kept of a worker's evidence: bounded, without losing what decides. Pure module.

A terminal that is looked at twice a second would push a request of a minute ago out of any plain ring. So a
source that says the same again keeps its first and its latest items, and when there are too many, the
commonest kind gives way first.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

from holdfast.agents.evidence.evidence import (
    Denied,
    Evidence,
    Progress,
    Requested,
    Source,
    Used,
    Work,
    Working,
)

MAX_ITEMS: Final = 200  # classify looks at all of them, for every worker, twice a second

_KEPT: Final = 3  # of the same again: the first for its age, two more because a sign needs two looks to go
_COUNTED: Final = (Denied, Requested)  # each one counts, also when it is the same again

_Kind: TypeAlias = tuple[Source, type, Work | None]


class Window:
    """The evidence to classify, oldest first."""

    def __init__(self, items: Iterable[Evidence] = (), *, max_items: int = MAX_ITEMS) -> None:
        self.items: list[Evidence] = []
        self._max_items = max_items
        for item in items:
            self.add(item)

    def add(self, item: Evidence) -> bool:
        """Take it in; true if its source says something else than before."""
        if isinstance(item.claim, Used):  # a count: only the newest says anything
            others = (kept for kept in self.items if _kind(kept) != _kind(item))
            self.items = [*others, item][-self._max_items :]
            return False
        said = [index for index, kept in enumerate(self.items) if kept.source is item.source][-_KEPT:]
        news = not said or self.items[said[-1]].claim != item.claim
        again = len(said) == _KEPT and all(self.items[index].claim == item.claim for index in said)
        if again and not isinstance(item.claim, _COUNTED):
            del self.items[said[1]]
        self.items.append(item)
        if len(self.items) > self._max_items:
            self._give_way()
        return news

    def _give_way(self) -> None:
        counts = Counter(map(_kind, self.items))
        commonest = max(counts, key=lambda kind: counts[kind])
        del self.items[next(i for i, item in enumerate(self.items) if _kind(item) == commonest)]


def _kind(item: Evidence) -> _Kind:
    work = item.claim.work if isinstance(item.claim, Progress | Working) else None
    return (item.source, type(item.claim), work)
