"""Evidence put in order: what each source says last, and which of it still stands. Pure module.

*Reports* say what is (working, idle, wants, obstructed, a result) and stand until something takes them back;
*edges* say that something happened and stand for nothing themselves. Going through the sources, the strongest
first, a report is void when anything from a stronger source, or an edge from its own, is newer. So a weaker
source is heard only where it is fresher than all stronger ones, and what has decayed does not give its place
back to something older.
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

FILE_S: Final = 120.0  # a record on disk that nobody touched for so long may be of a program that forgot it
# A program that asks for input in turns is elsewhere at some looks; one that went on is so at the next too,
# and those of one that stands still are two seconds apart.
GLANCE_S: Final = 2.5
SEEN_S: Final = 1.0  # for so long a command was seen that is more than a helper
SCREEN_LOOKS: Final = 2  # a screen that changed so often without the sign coming back has lost it

_REPORTS: Final = (Working, Idle, Wants, Unread, Obstructed, Result)
_EDGES: Final = (Progress, Retrying, ToolFailed, Answered, Requested)
_PROGRESSING: Final = (Ready, Working, Progress, Retrying, ToolFailed, Answered, Requested, Result)

LIFE_ONLY: Final = frozenset({Source.STABILITY, Source.CLOCK})  # a screen that moves shows life, not work
# Their `Idle`, as `Unread`, means that what they saw is gone, not that the worker waits.
WITHDRAWING: Final = frozenset({Source.DENIAL, Source.SYSCALL, Source.TTY, Source.SOCKET, Source.CHILDREN})
# What a program or its screen says of itself stands until a new command below the worker contradicts it.
_UNTIL_A_COMMAND: Final = frozenset({Source.ESCAPE, Source.TITLE, Source.SCREEN})

_OUTVOTED: Final = frozenset({Source.ESCAPE, Source.TITLE})

_ORDER: Final = tuple(sorted(Source))
# A question on the bottom of the screen is not contradicted by a busy socket or a command in the background.
_ORDER_ASKING: Final = tuple(
    sorted(Source, key=lambda source: Source.TITLE + 0.5 if source is Source.SCREEN else source)
)


_START_UP: Final = (Want.TRUST, Want.LOGIN)
MAX_ITEMS: Final = 200  # classify looks at all of them, for every worker, twice a second

_KEPT: Final = 3  # of the same again: the first for its age, two more because a sign needs two looks to go
_COUNTED: Final = (Denied, Requested)  # each one counts, also when it is the same again

_Kind: TypeAlias = tuple[Source, type, Work | None]


def began(items: Iterable[Evidence]) -> bool:
    """Has it taken part? A dialog before the first prompt, and a screen that moves, are not that."""
    return any(map(_takes_part, items))


def _takes_part(item: Evidence) -> bool:
    claim = item.claim
    if isinstance(claim, Wants):
        return claim.want not in _START_UP
    if isinstance(claim, Idle):
        return item.source not in LIFE_ONLY and item.source not in WITHDRAWING
    return isinstance(claim, _PROGRESSING) and item.source not in LIFE_ONLY


def _looks_away(item: Evidence) -> bool:
    """Does the kernel not show any more what it waits for?"""
    return item.source is Source.SYSCALL and isinstance(item.claim, Idle | Unread)


def _went_on(item: Evidence) -> bool:
    """Was it answered, or seen to work?"""
    if isinstance(item.claim, Answered):
        return True
    return isinstance(item.claim, _PROGRESSING) and item.source not in LIFE_ONLY


class Digest:
    """One look over the evidence. Indexes count from the oldest item; -1 is none.

    live         the reports that stand, the strongest first
    reports      what each source reported last
    edges        what each source saw happen last
    output       something came of the work: text, a tool, a result
    received     something came from outside: output, bytes, an error that is tried again
    advance      it got on, be it only with another request
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
        """Where claims of this kind are, the oldest first."""
        return self._kinds.get(kind, [])

    def newest(self, kind: type) -> int:
        found = self._kinds.get(kind)
        return found[-1] if found else -1

    @property
    def advanced_at(self) -> float:
        """When it last got on; before everything if it never did."""
        return self.items[self.advance].at if self.advance >= 0 else float("-inf")

    def age(self, index: int) -> float:
        return self.now - self.items[index].at

    def since(self, index: int) -> float:
        """When the source of this report began to say it without a break."""
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
        """Where the kernel showed what it waits for, if only looks of a moment ago did not; else -1."""
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
        """The strongest report that stands."""
        return self.items[self.live[0]] if self.live else None

    def unread(self) -> Evidence | None:
        """The proof that nobody reads its terminal, if there is one: then no screen says that it waits."""
        item = self.items[self.reports[Source.SYSCALL]] if Source.SYSCALL in self.reports else None
        return item if item is not None and isinstance(item.claim, Unread) else None

    def command_runs(self) -> bool:
        found = self.reports.get(Source.CHILDREN)
        return found is not None and isinstance(self.items[found].claim, Working)

    def tool_runs(self, voice: Evidence) -> bool:
        """Does a command run below it, or does its screen say so? Some have their commands run elsewhere.

        Its own events know better, unless the command began after they said that it thinks.
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
        """What a provider's bytes alone are not: something came of them."""
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
        """A program that said that it works, once, and whose screen has since come to rest.

        One at work moves what it shows: where that shows its prompt or a question and does not move any more,
        the word that takes back the other was never said, as after a turn that failed.
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
        # By looks and not by the clock: a question does not go away because nobody looks.
        return item.source in (Source.SCREEN, Source.FILE) and self._changes_after(index) >= SCREEN_LOOKS

    def _changes_after(self, index: int) -> int:
        later = [i for i in self._kinds.get(Working, ()) if i > index]
        return sum(self.items[i].source is Source.STABILITY for i in later)


class Window:
    """The evidence to classify, oldest first; bounded, without losing what decides.

    A terminal that is looked at twice a second would push a request of a minute ago out of any plain ring. So
    a source that says the same again keeps its first and its latest items, and when there are too many, the
    commonest kind gives way first.
    """

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
    """Of commands it counts which they are: what runs until the end is told from what came and went."""
    return one.claim == other.claim and (other.source is not Source.CHILDREN or one.seen == other.seen)


def _kind(item: Evidence) -> _Kind:
    work = item.claim.work if isinstance(item.claim, Progress | Working) else None
    return (item.source, type(item.claim), work)
