"""Stateful test: Sessions against a list of who holds what since when, and a clock."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.errors import InvalidRequest, SessionAttached
from holdfast.server.executor import Sessions

LIFETIME_S = 30.0
OWNERS = st.sampled_from(["amy", "bob", "cat"])
NUMBERS = st.integers(0, 7)  # beyond those that exist on purpose


@dataclass
class Model:
    owner: str | None
    detached_at: float = 0.0


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: Sessions[int, str] = Sessions(detached_s=LIFETIME_S)
        self.model: dict[int, Model] = {}
        self.made = 0
        self.now = 1000.0

    def over(self, number: int) -> bool:
        session = self.model[number]
        return session.owner is None and self.now >= session.detached_at + LIFETIME_S

    @rule(seconds=st.sampled_from([0.0, 0.5, 10.0, 15.0, 29.5, 30.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=OWNERS)
    def add(self, owner: str) -> None:
        self.sessions.add(str(self.made), self.made, owner)
        self.model[self.made] = Model(owner)
        self.made += 1

    @rule(number=NUMBERS, owner=OWNERS)
    def resume(self, number: int, owner: str) -> None:
        if number not in self.model or self.over(number):
            with pytest.raises(InvalidRequest):
                self.sessions.resume(str(number), owner, self.now)
        elif self.model[number].owner is not None:
            with pytest.raises(SessionAttached):
                self.sessions.resume(str(number), owner, self.now)
        else:
            assert self.sessions.resume(str(number), owner, self.now) == number
            self.model[number].owner = owner

    @rule(number=NUMBERS, owner=OWNERS)
    def detach(self, number: int, owner: str) -> None:
        held = number in self.model and self.model[number].owner == owner
        assert self.sessions.detach(str(number), owner, self.now) is held
        if held:
            self.model[number] = Model(None, self.now)

    @rule(number=NUMBERS)
    def remove(self, number: int) -> None:
        assert self.sessions.remove(str(number)) == (number if self.model.pop(number, None) else None)

    @rule()
    def expire(self) -> None:
        over = [number for number in self.model if self.over(number)]
        assert self.sessions.expire(self.now) == over
        for number in over:
            del self.model[number]

    @rule()
    def expire_just_in_time(self) -> None:
        """The announced time is neither too early nor too late."""
        when = self.sessions.next_expiry()
        if when is not None and when > self.now:
            assert self.sessions.expire(when - 0.25) == []
            self.now = when
            over = [number for number in self.model if self.over(number)]
            assert over
            for number in over:
                self.resume(number, "amy")
            self.expire()

    @invariant()
    def same(self) -> None:
        assert list(self.sessions) == list(self.model)
        assert len(self.sessions) == len(self.model)
        deadlines = [s.detached_at + LIFETIME_S for s in self.model.values() if s.owner is None]
        assert self.sessions.next_expiry() == min(deadlines, default=None)


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(deadline=None)
