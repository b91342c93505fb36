"""Orders evidence: the last report of each source, and which reports are still valid. Pure module.

*Reports* state a condition (working, idle, wants, obstructed, a result) and stand until something voids them.
*Edges* state that something happened and have no duration. We go through the sources, strongest first. A
report is void if anything from a stronger source, or an edge from its own source, is newer. So a weaker
source counts only if it is newer than all stronger ones, and a decayed report still voids older reports of
weaker sources.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from holdfast.agents.evidence.evidence import (
    Answered,
    Denied,
    Evidence,
    Idle,
    Obstructed,
    Progress,
    Ready,
    Requested,
    Result,
    Retrying,
    Source,
    ToolFailed,
    Unread,
    Used,
    Want,
    Wants,
    Work,
    Working,
)

FILE_S: Final = 120.0  # a file not written for so long may be stale: its program forgot it
# A program that polls for input is elsewhere at some looks. A program that went on is elsewhere at the next
# look, too, and the looks at a program that stands still are two seconds apart.
GLANCE_S: Final = 2.5
SEEN_S: Final = 1.0  # a command that was seen for so long is more than a helper
SCREEN_LOOKS: Final = 2  # if the screen changed so often and the sign did not come back, the sign is gone

_REPORTS: Final = (Working, Idle, Wants, Unread, Obstructed, Result)
_EDGES: Final = (Progress, Retrying, ToolFailed, Answered, Requested)
_PROGRESSING: Final = (Ready, Working, Progress, Retrying, ToolFailed, Answered, Requested, Result)

LIFE_ONLY: Final = frozenset({Source.STABILITY, Source.CLOCK})  # a changing screen shows life, not work
# `Idle` and `Unread` from these mean that what they saw is gone, not that the worker waits.
WITHDRAWING: Final = frozenset({Source.DENIAL, Source.SYSCALL, Source.TTY, Source.SOCKET, Source.CHILDREN})
# Reports by a program about itself, and by its screen, stand until a new command below the worker begins.
_UNTIL_A_COMMAND: Final = frozenset({Source.ESCAPE, Source.TITLE, Source.SCREEN})

_OUTVOTED: Final = frozenset({Source.ESCAPE, Source.TITLE})

_ORDER: Final = tuple(sorted(Source))
# A busy socket or a command in the background does not contradict a question at the bottom of the screen.
_ORDER_ASKING: Final = tuple(
    sorted(Source, key=lambda source: Source.TITLE + 0.5 if source is Source.SCREEN else source)
)


_START_UP: Final = (Want.TRUST, Want.LOGIN)
MAX_ITEMS: Final = 200  # classify looks at all of them, for every worker, twice a second

_KEPT: Final = 3  # repeats that are kept: the first for its age, two more because a sign goes after two looks
_COUNTED: Final = (Denied, Requested)  # every item counts, also a repeat

_Kind: TypeAlias = tuple[Source, type, Work | None]


def began(items: Iterable[Evidence]) -> bool:
    """Return whether the worker has taken part.

    A dialog before the first prompt, or a changing screen, does not count.
    """
    return any(map(_takes_part, items))


def _takes_part(item: Evidence) -> bool:
    claim = item.claim
    if isinstance(claim, Wants):
        return claim.want not in _START_UP
    if isinstance(claim, Idle):
        return item.source not in LIFE_ONLY and item.source not in WITHDRAWING
    return isinstance(claim, _PROGRESSING) and item.source not in LIFE_ONLY


def _looks_away(item: Evidence) -> bool:
    """Return whether the item says that the kernel no longer shows what the worker waits for."""
    return item.source is Source.SYSCALL and isinstance(item.claim, Idle | Unread)


def _went_on(item: Evidence) -> bool:
    """Return whether the item shows that the worker was answered, or worked."""
    if isinstance(item.claim, Answered):
        return True
    return isinstance(item.claim, _PROGRESSING) and item.source not in LIFE_ONLY


class Digest:
    """An index of the evidence at one moment. Indexes count from the oldest item; -1 means none.

    live         the valid reports, strongest first
    reports      the last report of each source
    edges        the last edge of each source
    output       the last result of work: text, a tool, a turn's result
    received     the last thing from outside: output, bytes, an error that leads to a retry
    advance      the last time the worker advanced, even if only with another request
    progress_at  when anything last showed that work goes on
    """

    __slots__ = (
        "_kinds",
        "advance",
        "began",
        "edges",
        "items",
        "live",
        "now",
        "output",
        "progress_at",
        "received",
        "reports",
    )

    def __init__(self, items: Sequence[Evidence], now: float, started_at: float) -> None:
        self.items = items
        self.now = now
        kinds: dict[type, list[int]] = {}
        for index, item in enumerate(items):
            kind = type(item.claim)
            if kind in kinds:
                kinds[kind].append(index)
            else:
                kinds[kind] = [index]
        self._kinds = kinds
        self.reports = self._newest_by_source(_REPORTS)
        if (waited := self._find_glanced_away()) >= 0:
            self.reports[Source.SYSCALL] = waited
        self.edges = self._newest_by_source(_EDGES)
        self.began = began(items)
        self.progress_at = max(
            [started_at, *(items[kinds[kind][-1]].at for kind in _PROGRESSING if kind in kinds)]
        )
        self.output = self._newest_output()
        self.received = max(self.output, self.newest(Retrying), self._newest_progress(tuple(Work)))
        self.advance = max(
            self.output, self.newest(Answered), self.newest(Requested), self._newest_progress(tuple(Work))
        )
        self.live = list(self._list_standing())

    def of(self, kind: type) -> list[int]:
        """Return the indexes of claims of this kind, oldest first."""
        return self._kinds.get(kind, [])

    def newest(self, kind: type) -> int:
        found = self._kinds.get(kind)
        return found[-1] if found else -1

    @property
    def advanced_at(self) -> float:
        """When the worker last advanced; minus infinity if it never did."""
        return self.items[self.advance].at if self.advance >= 0 else float("-inf")

    def age(self, index: int) -> float:
        return self.now - self.items[index].at

    def since(self, index: int) -> float:
        """Return since when its source has made this report without interruption."""
        source, claim, at = self.items[index].source, self.items[index].claim, self.items[index].at
        for item in reversed(self.items[:index]):
            if source is Source.SYSCALL and _went_on(item):
                break
            if item.source is source and isinstance(item.claim, _REPORTS):
                if item.claim == claim:
                    at = item.at
                elif not _looks_away(item) or at - item.at > GLANCE_S:
                    break
        return at

    def _find_glanced_away(self) -> int:
        """Return where the kernel showed what it waits for, if only very recent looks did not; else -1."""
        denied_at = None
        for index in reversed(range(len(self.items))):
            item = self.items[index]
            if _went_on(item):
                return -1
            if item.source is not Source.SYSCALL or not isinstance(item.claim, _REPORTS):
                continue
            if _looks_away(item):
                denied_at = item.at
            else:
                waited = isinstance(item.claim, Wants) and denied_at is not None
                return index if waited and self.now - (denied_at or 0.0) <= GLANCE_S else -1
        return -1

    def voice(self) -> Evidence | None:
        """Return the strongest valid report."""
        return self.items[self.live[0]] if self.live else None

    def unread(self) -> Evidence | None:
        """Return the proof that no process reads its terminal, if any; then no screen shows that it waits."""
        item = self.items[self.reports[Source.SYSCALL]] if Source.SYSCALL in self.reports else None
        return item if item is not None and isinstance(item.claim, Unread) else None

    def command_runs(self) -> bool:
        found = self.reports.get(Source.CHILDREN)
        return found is not None and isinstance(self.items[found].claim, Working)

    def tool_runs(self, voice: Evidence) -> bool:
        """Return whether a command runs below it, or its screen says so: some CLIs run commands elsewhere.

        Its own events outrank that, unless the command began after the events said that it thinks.
        """
        if voice.source <= Source.PROTOCOL:
            begin = self.since(self.reports[Source.CHILDREN]) if self.command_runs() else self.now
            return begin > voice.at and self.now - begin >= SEEN_S
        shown = self.reports.get(Source.SCREEN)
        return self.command_runs() or (shown is not None and self.items[shown].claim == Working(Work.TOOL))

    def _newest_by_source(self, kinds: Iterable[type]) -> dict[Source, int]:
        found: dict[Source, int] = {}
        for kind in kinds:
            for index in self._kinds.get(kind, ()):
                source = self.items[index].source
                if found.get(source, -1) < index:
                    found[source] = index
        return found

    def _newest_progress(self, works: tuple[Work, ...], but: frozenset[Source] = LIFE_ONLY) -> int:
        for index in reversed(self._kinds.get(Progress, ())):
            item = self.items[index]
            if isinstance(item.claim, Progress) and item.claim.work in works and item.source not in but:
                return index
        return -1

    def _newest_output(self) -> int:
        """Return the newest result of work; bytes from the provider alone are none."""
        progress = self._newest_progress((Work.STREAMING, Work.TOOL), LIFE_ONLY | {Source.SOCKET})
        return max(progress, self.newest(Result), self.newest(ToolFailed))

    def _list_standing(self) -> Iterable[int]:
        items, reports, edges = self.items, self.reports, self.edges
        screen = reports.get(Source.SCREEN)
        asking = screen is not None and isinstance(items[screen].claim, Wants)
        command = edges.get(Source.CHILDREN, -1)
        horizon = -1
        for source in _ORDER_ASKING if asking else _ORDER:
            horizon = max(horizon, edges.get(source, -1))
            index = reports.get(source, -1)
            if index < 0 or (source in WITHDRAWING and isinstance(items[index].claim, Idle | Unread)):
                continue
            floor = max(horizon, command) if source in _UNTIL_A_COMMAND else horizon
            if index > floor and not self._has_decayed(index) and not self._is_outvoted(index):
                yield index
            horizon = max(horizon, index)

    def _is_outvoted(self, index: int) -> bool:
        """Return whether the report says that the program works, but its screen has come to rest since.

        A program at work changes its screen. If the screen shows the prompt or a question and has stopped
        changing, the program never retracted its report, as happens after a failed turn.
        """
        item, screen = self.items[index], self.reports.get(Source.SCREEN, -1)
        if item.source not in _OUTVOTED or not isinstance(item.claim, Working) or screen < index:
            return False
        still = self.reports.get(Source.STABILITY, -1)
        claim = self.items[still].claim if still > self.edges.get(Source.STABILITY, -1) else None
        rests = isinstance(claim, Idle) and claim.since is not None and claim.since > item.at
        return rests and isinstance(self.items[screen].claim, Wants) and not self.command_runs()

    def _has_decayed(self, index: int) -> bool:
        item = self.items[index]
        asks = isinstance(item.claim, Wants)
        if item.source is Source.FILE and not asks:
            return self.age(index) > FILE_S
        # Counted in looks, not in time: a question does not disappear while we do not look.
        return item.source in (Source.SCREEN, Source.FILE) and self._changes_after(index) >= SCREEN_LOOKS

    def _changes_after(self, index: int) -> int:
        later = [i for i in self._kinds.get(Working, ()) if i > index]
        return sum(self.items[i].source is Source.STABILITY for i in later)


class Window:
    """The evidence to classify, oldest first; bounded, without losing the deciding items.

    A terminal that is checked twice a second would push a request of a minute ago out of a plain ring buffer.
    So a source that repeats a report keeps only the first and the latest items, and if there are too many
    items, the oldest of the most frequent kind is dropped.
    """

    def __init__(self, items: Iterable[Evidence] = (), *, max_items: int = MAX_ITEMS) -> None:
        self.items: list[Evidence] = []
        self._max_items = max_items
        for item in items:
            self.add(item)

    def add(self, item: Evidence) -> bool:
        """Add an item; return true if its source reports something new."""
        if isinstance(item.claim, Used):  # a running total: only the newest matters
            others = (kept for kept in self.items if _kind(kept) != _kind(item))
            self.items = [*others, item][-self._max_items :]
            return False
        said = [index for index, kept in enumerate(self.items) if kept.source is item.source][-_KEPT:]
        news = not said or self.items[said[-1]].claim != item.claim
        again = len(said) == _KEPT and all(_is_same(self.items[index], item) for index in said)
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


def _is_same(one: Evidence, other: Evidence) -> bool:
    """Return whether both make the same claim; for commands the names count, too.

    That distinguishes a command that ran until the end from those that came and went.
    """
    return one.claim == other.claim and (other.source is not Source.CHILDREN or one.seen == other.seen)


def _kind(item: Evidence) -> _Kind:
    work = item.claim.work if isinstance(item.claim, Progress | Working) else None
    return (item.source, type(item.claim), work)
