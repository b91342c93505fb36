"""Stateful test: the store on SQLite against a model of tasks, links and runs, in whatever order."""

import contextlib
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import Edit, NewTask, Run
from holdfast.board.rules.transitions import ENDS, TABLE, WHO, Actor, Move, TaskStatus, settle
from holdfast.board.store import open_store
from holdfast.errors import IllegalTransition, InvalidRequest, StaleRun
from tests.support.boards import SettableClock

NUMBERS = st.integers(0, 9)
MAX_ATTEMPTS = 2


@dataclass
class Model:
    status: TaskStatus
    parents: set[str] = field(default_factory=set)
    done: bool = False
    runs_since_a_person: int = 0


class BoardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.store = open_store(":memory:", clock=self.clock)
        self.store.create_board("b")
        self.model: dict[str, Model] = {}
        self.runs: list[tuple[str, Run]] = []
        self.paused = False
        self.most = 10**6

    def teardown(self) -> None:
        self.store.close()

    def named(self, number: int) -> str | None:
        names = list(self.model)
        return names[number % len(names)] if names else None

    def waits(self, name: str) -> int:
        return sum(not self.model[parent].done for parent in self.model[name].parents)

    def put(self, name: str, status: TaskStatus) -> None:
        """The rule for one task; what it releases follows from the invariant."""
        task = self.model[name]
        task.status = settle(status, self.waits(name))
        task.done = task.done or status is TaskStatus.DONE
        for other, child in self.model.items():
            child.status = settle(child.status, self.waits(other))

    @initialize()
    def begin(self) -> None:
        """A chain, so that there is something to release from the first step on."""
        for number in range(4):
            self.create([number - 1] if number else [], 0, False)

    @rule(parents=st.lists(NUMBERS, max_size=3), priority=st.integers(-1, 1), triage=st.booleans())
    def another(self, parents: list[int], priority: int, triage: bool) -> None:
        self.create(parents, priority, triage)

    def create(self, parents: list[int], priority: int, triage: bool) -> None:
        names = sorted({name for number in parents if (name := self.named(number))})
        unfit = {TaskStatus.ARCHIVED, TaskStatus.CANCELLED}
        names = [name for name in names if self.model[name].status not in unfit]
        new = NewTask(
            title="x", parents=tuple(names), priority=priority, triage=triage, max_attempts=MAX_ATTEMPTS
        )
        made = self.store.create("b", new)
        self.model[made.id] = Model(TaskStatus.TRIAGE, set(names))
        self.put(made.id, TaskStatus.TRIAGE if triage else TaskStatus.READY)

    @rule(parent=NUMBERS, child=NUMBERS)
    def link(self, parent: int, child: int) -> None:
        above, below = self.named(parent), self.named(child)
        if above is None or below is None:
            return
        fine = (
            not self.reaches(below, above)
            and self.model[above].status not in (TaskStatus.ARCHIVED, TaskStatus.CANCELLED)
            and self.model[below].status not in ENDS - {TaskStatus.FAILED}
        )
        try:
            self.store.link(above, below)
        except InvalidRequest:
            assert not fine
        else:
            assert fine
            self.model[below].parents.add(above)
            self.put(below, self.model[below].status)

    def reaches(self, start: str, goal: str) -> bool:
        """Does the goal wait for the start already, or is it the start?"""
        waiting, seen = [goal], {goal}
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            waiting += self.model[name].parents - seen
            seen |= self.model[name].parents
        return False

    @rule(number=NUMBERS, move=st.sampled_from(Move))
    def try_a_move(self, number: int, move: Move) -> None:
        self.move(number, move)

    def move(self, number: int, move: Move) -> None:
        name = self.named(number)
        if name is None:
            return
        before = self.model[name].status
        legal = (before, move) in TABLE and Actor.PERSON in WHO[move]
        try:
            self.store.move(name, move, wake_ms=self.clock.now_ms + 1000, question="?", reason="so")
        except IllegalTransition:
            assert not legal
        else:
            assert legal
            self.model[name].runs_since_a_person = 0
            self.put(name, TABLE[before, move])

    @rule(number=NUMBERS)
    def finish(self, number: int) -> None:
        """What releases other tasks is tried more often than chance would have it."""
        self.move(number, Move.COMPLETE)

    @rule()
    def claim(self) -> None:
        running = sum(model.status is TaskStatus.RUNNING for model in self.model.values())
        won = self.store.claim("b", worker="w")
        if self.paused or running >= self.most:
            assert won is None
            return
        for model in self.model.values():
            assert won is not None or model.status is not TaskStatus.READY
        if won is None:
            return
        task, run = won
        assert self.model[task.id].status is TaskStatus.READY
        self.model[task.id].status = TaskStatus.RUNNING
        self.model[task.id].runs_since_a_person += 1
        self.runs.append((task.id, run))

    @rule(number=NUMBERS, verb=st.sampled_from(["complete", "block", "review", "wait", *FailureKind]))
    def say(self, number: int, verb: str) -> None:
        """A run says how it ended, once or again; only the one that holds its task is heard."""
        if not self.runs:
            return
        name, run = self.runs[-1 - number % len(self.runs)]
        holds = self.store.task(name).run_id == run.id
        envelope = f"{verb}{run.generation}"
        try:
            if verb == "complete":
                after = self.store.complete(run.ref, envelope, "ok")
            elif verb == "block":
                after = self.store.block(run.ref, envelope, "?")
            elif verb == "wait":
                after = self.store.block(run.ref, envelope, "?", until_ms=self.clock.now_ms + 500)
            elif verb == "review":
                after = self.store.request_review(run.ref, envelope, "ok")
            else:
                after = self.store.fail(run.ref, FailureKind(verb))
        except StaleRun:
            assert not holds
        else:
            if holds:
                if verb == FailureKind.HANDOFF:
                    self.model[name].runs_since_a_person -= 1
                self.put(name, after.status)

    @rule(ms=st.sampled_from([1, 500, 1000, 10_000, 100_000]))
    def wait(self, ms: int) -> None:
        """Time passes; leases end and what waited for the clock moves on."""
        self.clock.now_ms += ms
        for task in self.store.expire("b").lost:
            self.put(task.id, task.status)
        self.store.wake("b")
        for name, model in self.model.items():
            task = self.store.task(name)
            if (
                model.status in (TaskStatus.SCHEDULED, TaskStatus.WAITING_SYSTEM)
                and task.status is not model.status
            ):
                self.put(name, TaskStatus.READY)

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.paused = self.store.pause("b", on).paused

    @rule(most=st.sampled_from([0, 1, 2, 10**6]))
    def cap(self, most: int) -> None:
        self.most = most
        self.store.set_cap("b", "board", "", most)

    @rule(number=NUMBERS, priority=st.integers(-1, 1), most=st.integers(1, MAX_ATTEMPTS))
    def edit(self, number: int, priority: int, most: int) -> None:
        """Whatever is changed about a task, it stays where it is."""
        if (name := self.named(number)) is not None:
            with contextlib.suppress(InvalidRequest):
                self.store.edit(name, Edit(priority=priority, max_attempts=most))
                assert self.model[name].status not in ENDS - {TaskStatus.FAILED}

    @rule(number=NUMBERS)
    def keep(self, number: int) -> None:
        """Also of a run that is long over."""
        if self.runs:
            name, run = self.runs[-1 - number % len(self.runs)]
            self.store.keep(run.id, "end.json", run.id.encode())
            assert self.store.file(name, run.id, "end.json") == run.id.encode()

    @rule(number=NUMBERS)
    def look(self, number: int) -> None:
        if (name := self.named(number)) is not None:
            before = self.store.boards()
            assert self.store.why(name).reason
            self.store.show(name), self.store.page("b"), self.store.stats("b")
            assert self.store.boards() == before

    @invariant()
    def the_store_is_what_the_model_is(self) -> None:
        for name, model in self.model.items():
            task = self.store.task(name)
            assert task.status is model.status
            assert task.open_parents == self.waits(name)
            assert task.attempts <= MAX_ATTEMPTS
            assert model.runs_since_a_person <= MAX_ATTEMPTS

    @invariant()
    def everything_adds_up(self) -> None:
        assert self.store.faults() == []


BoardMachine.TestCase.settings = settings(deadline=None, stateful_step_count=30)
TestBoard = BoardMachine.TestCase
