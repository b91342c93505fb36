"""Stateful test: Ordering against a server that forgets and a link that reorders, repeats and breaks.

The model knows the true stream. It follows only which numbers the client has been told, so it can
say before each step what is published after it, and whether the stream may be called lost.
"""

from dataclasses import replace
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.client.events.ordering import Closed, Event, Exited, Lost, Ordering, Output, ReadPage
from holdfast.server.processes.eventlog import EventLog

KEPT_BYTES, KEPT_CHUNKS = 16, 4  # by the server, for those who come back
MAX_EVENTS, MAX_BYTES = 4, 12  # early, at the client
STREAMS = st.sampled_from(["stdout", "stderr"])
CHUNKS = st.binary(max_size=3) | st.binary(max_size=14)
BURSTS = st.lists(CHUNKS, min_size=1, max_size=4)
Steps: TypeAlias = list[bytes | bool]  # output, or the exit: was it denied?
STEPS = st.lists(CHUNKS | st.booleans(), max_size=3)
LONG_STEPS = st.lists(st.binary(max_size=3) | st.booleans(), max_size=8)


class OrderingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.start(says_denied=True)

    @initialize(says_denied=st.booleans())
    def start(self, says_denied: bool) -> None:
        self.log = EventLog(max_bytes=KEPT_BYTES, max_chunks=KEPT_CHUNKS)
        self.stream: list[Event] = []
        self.says_denied = says_denied
        self.connected = True
        self.whole = True  # nothing was dropped since the last page
        self.flying: list[Event] = []  # notifications on the link
        self.answer: ReadPage | None = None  # a page on the link
        self.ordering = Ordering(max_events=MAX_EVENTS, max_bytes=MAX_BYTES)
        self.told: set[int] = set()
        self.published: list[Event] = []
        self.lost = False

    @precondition(lambda self: self.lost or self.ordering.closed)
    @rule(says_denied=st.booleans())
    def start_another(self, says_denied: bool) -> None:
        self.finish()
        self.start(says_denied)

    # The server

    @precondition(lambda self: not self.log.closed)
    @rule(stream=STREAMS, burst=BURSTS)
    def output(self, stream: str, burst: list[bytes]) -> None:
        for data in burst:
            self.happened(Output(self.log.output(stream, data), stream, data))

    @precondition(lambda self: not self.log.exited)
    @rule(code=st.integers(-1, 255), denied=st.booleans())
    def exit(self, code: int, denied: bool) -> None:
        self.happened(Exited(self.log.exit(code, denied=denied), code, denied))

    @precondition(lambda self: self.log.exited and not self.log.closed)
    @rule()
    def close(self) -> None:
        self.happened(Closed(self.log.close()))

    def happened(self, event: Event) -> None:
        self.stream.append(event)
        if self.connected:
            self.flying.append(self.sent(event))

    def sent(self, event: Event) -> Event:
        """As a notification; some servers do not say whether the sandbox refused something."""
        if isinstance(event, Exited) and not self.says_denied:
            return replace(event, sandbox_denied=None)
        return event

    # The link

    @precondition(lambda self: self.flying)
    @rule(places=st.lists(st.integers(0, 5), min_size=1, max_size=4), again=st.booleans())
    def deliver(self, places: list[int], again: bool) -> None:
        """Some notifications on the link, in any order, perhaps repeated; `again`: also later."""
        chosen = [self.flying[place % len(self.flying)] for place in places]
        if not again:
            self.flying = [event for event in self.flying if event not in chosen]
        for event in chosen:
            self.push(event)

    @precondition(lambda self: self.connected)
    @rule()
    def cut(self) -> None:
        """What is on the link is gone."""
        self.connected = self.whole = False
        self.flying.clear()
        self.answer = None

    @precondition(lambda self: not self.connected)
    @rule()
    def resume(self) -> None:
        """From here on the server notifies again."""
        self.connected = True

    @precondition(lambda self: self.connected and self.answer is None)
    @rule()
    def ask(self) -> None:
        """The server answers at once; the answer may overtake notifications and be overtaken."""
        page = self.log.read(self.ordering.last_published, None)
        self.answer = ReadPage(
            tuple(Output(*chunk) for chunk in page.chunks),
            page.next_seq,
            page.exited,
            page.exit_code,
            page.closed,
            None,
            page.denied,
        )

    @precondition(lambda self: not self.log.closed)
    @rule(cuts=st.booleans(), away=STEPS, back=STEPS, asked=STEPS)
    def ask_busy(self, cuts: bool, away: Steps, back: Steps, asked: Steps) -> None:
        """The process goes on while nobody is there, after the resume, and behind the answer."""
        if cuts and self.connected:
            self.cut()
        self.go_on(away)
        if not self.connected:
            self.resume()
        self.go_on(back)
        if self.answer is None:
            self.ask()
        self.go_on(asked)

    def push_some(self, which: int) -> None:
        """Those on the link whose bit is set."""
        for place, event in enumerate(self.flying):
            if which >> place & 1:
                self.push(event)

    def go_on(self, steps: Steps) -> None:
        for step in steps:
            if isinstance(step, bytes):
                self.output("stdout", [step])
            elif not self.log.exited:
                self.exit(1, step)

    @precondition(lambda self: self.answer is not None)
    @rule()
    def be_answered(self) -> None:
        assert self.answer is not None
        page, self.answer = self.answer, None
        self.whole = True
        self.catch_up(page)

    # The client, and what must come of it

    def push(self, event: Event) -> None:
        early = event.seq > self.in_order() + 1 and event.seq not in self.told
        waiting = [one for one in self.stream if one.seq in self.told and one.seq > self.in_order()]
        size = sum(weight(one) for one in [*waiting, event])
        must_fail = early and (len(waiting) == MAX_EVENTS or size > MAX_BYTES)
        try:
            self.publish(self.ordering.push(event))
        except Lost:
            assert must_fail
            assert not self.lost
            self.lost = True
        else:
            assert self.lost or not must_fail
            self.told.add(event.seq)

    def catch_up(self, page: ReadPage) -> None:
        shown = self.told | {chunk.seq for chunk in page.outputs}
        must_fail = any(
            isinstance(event, Output) and event.seq not in shown for event in self.stream[: page.next_seq - 1]
        )
        try:
            events = self.ordering.catch_up(page)
        except Lost:
            assert must_fail
            assert not self.lost
            self.lost = True
        else:
            assert self.lost or not must_fail
            known = [event for event in events if event.seq < page.next_seq]
            assert known == self.stream[len(self.published) :][: len(known)]  # the page knows of a denial
            self.publish(events)
            self.told.update(range(1, page.next_seq))

    def publish(self, events: list[Event]) -> None:
        assert not (self.lost and events)
        self.published += events

    def in_order(self) -> int:
        """The last number before the first the client was not told."""
        return next(seq for seq in range(len(self.stream) + 1) if seq + 1 not in self.told)

    @invariant()
    def nothing_is_missing_doubled_or_moved(self) -> None:
        true = self.stream[: len(self.published)]
        assert all(
            mine in (event, self.sent(event)) for mine, event in zip(self.published, true, strict=True)
        )
        assert self.ordering.last_published == len(self.published)
        assert self.ordering.closed == any(isinstance(event, Closed) for event in self.published)

    @invariant()
    def what_can_be_published_is(self) -> None:
        assert self.lost or len(self.published) == self.in_order()

    @rule()
    def settle(self) -> None:
        """On a whole link everything arrives without a page; otherwise one page is enough."""
        if not self.connected:
            self.resume()
        if not self.whole:
            self.answer = None
            self.ask()
            self.be_answered()
        lost_before = self.lost
        for event in sorted(self.flying, key=lambda event: event.seq):
            self.push(event)
        self.flying.clear()
        assert self.lost == lost_before
        assert self.lost or len(self.published) == len(self.stream)

    def teardown(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Every story ends: closed or lost."""
        if not self.log.exited:
            self.exit(0, False)
        if not self.log.closed:
            self.close()
        self.settle()
        self.nothing_is_missing_doubled_or_moved()
        assert self.lost or self.ordering.closed


def weight(event: Event) -> int:
    return len(event.data) if isinstance(event, Output) else 0


TestOrdering = OrderingMachine.TestCase
TestOrdering.settings = settings(deadline=None)


@given(
    says_denied=st.booleans(), first=LONG_STEPS, missed=STEPS, live=STEPS, arrives=st.integers(0, 2**11 - 1)
)
@settings(deadline=None)
def test_one_page_after_any_beginning(
    says_denied: bool, first: Steps, missed: Steps, live: Steps, arrives: int
) -> None:
    """The machine in its most telling story: any part arrives, the link breaks, one page, more news."""
    story = OrderingMachine()
    story.start(says_denied)
    story.go_on(first)
    story.push_some(arrives)
    story.cut()
    story.go_on(missed)
    story.resume()
    story.ask()
    story.go_on(live)
    story.push_some(arrives >> len(first))
    story.be_answered()
    story.nothing_is_missing_doubled_or_moved()
    story.what_can_be_published_is()
    story.finish()
