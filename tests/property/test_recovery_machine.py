"""Recovery under any order of losses, attempts, wake-ups and clocks."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.client.recovery import WINDOW_S, Action, Dial, GiveUp, LinkState, Recovery, WakeAt

steps = st.floats(min_value=0.0, max_value=30.0)


class RecoveryMachine(RuleBasedStateMachine):
    """An edge that does what it is told, with links that may die at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.chance = 0.0
        self.recovery = Recovery(resumable=True, now=0.0, random=lambda: self.chance)
        self.dial: Dial | None = None
        self.wake: WakeAt | None = None
        self.link: int | None = 1  # the generation of the link that is alive
        self.lost_at: float | None = None
        self.given_up = 0
        self.dialled: list[int] = [1]
        self.linked = {1}

    def do(self, action: Action | None) -> None:
        if isinstance(action, Dial):
            assert self.dial is None
            assert self.wake is None
            assert action.generation not in self.dialled
            assert self.lost_at is not None
            assert action.until == self.lost_at + WINDOW_S
            assert self.now < action.until
            self.dialled.append(action.generation)
            self.dial = action
        elif isinstance(action, WakeAt):
            assert self.dial is None
            assert self.wake is None
            assert self.lost_at is not None
            assert self.now < action.when < self.lost_at + WINDOW_S
            self.wake = action
        elif isinstance(action, GiveUp):
            self.given_up += 1

    @rule(step=steps, chance=st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
    def time_passes(self, step: float, chance: float) -> None:
        self.now += step
        self.chance = chance

    @precondition(lambda self: self.link is not None)
    @rule()
    def the_link_dies(self) -> None:
        assert self.link is not None
        generation, self.link = self.link, None
        was = self.recovery.state
        action = self.recovery.link_lost(generation, self.now, "reset")
        if was is LinkState.CONNECTED:
            self.lost_at = self.now
            assert action is not None
        else:
            assert action is None
        self.do(action)

    @rule(generation=st.integers(min_value=0, max_value=50))
    def an_old_loss_is_reported_again(self, generation: int) -> None:
        if generation < self.recovery.generation:
            before = self.recovery.state
            assert self.recovery.link_lost(generation, self.now, "late") is None
            assert self.recovery.state is before

    @precondition(lambda self: self.dial is not None and self.dial.generation not in self.linked)
    @rule()
    def the_attempt_gets_a_link(self) -> None:
        """One in its life, which may end before the attempt does."""
        assert self.dial is not None
        self.link = self.dial.generation
        self.linked.add(self.link)

    @precondition(lambda self: self.dial is not None)
    @rule(retry=st.booleans())
    def the_attempt_fails(self, retry: bool) -> None:
        self.dial, self.link = None, None
        action = self.recovery.dial_failed(self.now, retry=retry, reason="refused")
        if not retry:
            assert isinstance(action, GiveUp)
        self.do(action)

    @precondition(lambda self: self.dial is not None and self.dial.generation in self.linked)
    @rule()
    def the_attempt_reports_success(self) -> None:
        alive, self.dial = self.link is not None, None
        action = self.recovery.resumed(self.now)
        assert alive == (action is None) == (self.recovery.state is LinkState.CONNECTED)
        self.do(action)

    @precondition(lambda self: self.wake is not None)
    @rule()
    def the_wake_up_comes(self) -> None:
        assert self.wake is not None
        self.now = max(self.now, self.wake.when)
        self.wake = None
        self.do(self.recovery.tick(self.now))

    @precondition(lambda self: self.wake is None)
    @rule()
    def a_tick_too_many(self) -> None:
        assert self.recovery.tick(self.now) is None

    @invariant()
    def it_is_connected_exactly_while_its_link_lives_outside_an_attempt(self) -> None:
        if self.recovery.state is LinkState.CONNECTED:
            assert self.link == self.recovery.generation
            assert self.dial is None
            assert self.wake is None

    @invariant()
    def recovering_always_goes_somewhere(self) -> None:
        if self.recovery.state is LinkState.RECOVERING:
            assert (self.dial is None) != (self.wake is None)

    @invariant()
    def it_gives_up_once_and_for_all(self) -> None:
        assert self.given_up == (self.recovery.state is LinkState.FAILED)


TestRecoveryMachine = RecoveryMachine.TestCase
TestRecoveryMachine.settings = settings(deadline=None)
