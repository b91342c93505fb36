"""Stateful test: EventLog against the obvious model, a list that forgets nothing."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.server.processes.eventlog import Chunk, EventLog

MAX_BYTES, MAX_CHUNKS = 20, 5
BUDGETS = st.none() | st.integers(0, 30)


class EventLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = EventLog(max_bytes=MAX_BYTES, max_chunks=MAX_CHUNKS)
        self.events: list[Chunk | str] = []
        self.code: int | None = None
        self.denied = False

    @property
    def closed(self) -> bool:
        return "close" in self.events

    def retained(self) -> list[Chunk]:
        """The longest tail of the output that fits both bounds."""
        output = [event for event in self.events if isinstance(event, Chunk)]
        while sum(len(chunk.data) for chunk in output) > MAX_BYTES or len(output) > MAX_CHUNKS:
            del output[0]
        return output

    @precondition(lambda self: not self.closed)
    @rule(stream=st.sampled_from(["stdout", "stderr"]), data=st.binary(max_size=12) | st.binary(max_size=25))
    def output(self, stream: str, data: bytes) -> None:
        self.events.append(Chunk(len(self.events) + 1, stream, data))
        assert self.log.output(stream, data) == len(self.events)

    @precondition(lambda self: self.code is None)
    @rule(code=st.integers(-1, 255), denied=st.booleans())
    def exit(self, code: int, denied: bool) -> None:
        self.events.append("exit")
        self.code, self.denied = code, denied
        assert self.log.exit(code, denied=denied) == len(self.events)

    @precondition(lambda self: self.code is not None and not self.closed)
    @rule()
    def close(self) -> None:
        self.events.append("close")
        assert self.log.close() == len(self.events)

    @rule(back=st.integers(-2, 12), budget=BUDGETS)
    def read(self, back: int, budget: int | None) -> None:
        after = max(0, len(self.events) - back)
        wanted = [chunk for chunk in self.retained() if chunk.seq > after]
        page = self.log.read(after, budget)

        count = len(wanted)
        if budget is not None:
            fits = [
                sum(len(chunk.data) for chunk in wanted[:n]) <= budget
                and sum(len(chunk.data) for chunk in wanted[: n - 1]) < budget
                for n in range(2, len(wanted) + 1)
            ]
            count = min(count, 1 + sum(fits))
        assert page.chunks == wanted[:count]

        whole = budget is None or not wanted
        assert page.next_seq == (len(self.events) + 1 if whole else page.chunks[-1].seq + 1)
        assert (page.exited, page.exit_code) == (self.code is not None, self.code)
        assert (page.closed, page.denied) == (self.closed, self.denied)
        must_return = bool(wanted) or self.closed or (page.exited and after < page.next_seq - 1)
        assert self.log.ready(after) is must_return

    @rule(budget=BUDGETS)
    def follow(self, budget: int | None) -> None:
        """A reader who always asks for what comes next sees what is left, each once."""
        seen: list[Chunk] = []
        after = 0
        while (page := self.log.read(after, budget)).chunks:
            seen += page.chunks
            after = page.next_seq - 1
        assert seen == self.retained()

    @invariant()
    def bounded(self) -> None:
        kept = self.log.read(0, None).chunks
        assert len(kept) <= MAX_CHUNKS
        assert sum(len(chunk.data) for chunk in kept) <= MAX_BYTES


TestEventLog = EventLogMachine.TestCase
TestEventLog.settings = settings(deadline=None)
