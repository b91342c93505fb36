"""When to dial again after a link is lost, and when to give the session up. Pure module.

    CONNECTED --link_lost--> RECOVERING --resumed--> CONNECTED
        |                        |
        | nothing to dial        | the window is over, or no attempt can help
        +----------------------->+--> FAILED

The caller reports events with the time, and carries out the actions that are returned. Links are
distinguished by their generation: a report about any but the current one changes nothing. While RECOVERING
either one attempt is under way (`Dial`) or a wake-up is due (`WakeAt`), never both.
"""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.errors import ConnectionLost, SessionAttached

WINDOW_S: Final = 25.0  # inside the server's 30 s: the two clocks start independently
FIRST_DELAY_S: Final = 0.1  # a server whose network restarts is back about then
MAX_DELAY_S: Final = 2.0  # so that a dozen attempts fit in the window
SETTLED_S: Final = 1.0  # a link that dies younger is not redialled at once, to avoid a busy loop


class LinkState(enum.StrEnum):
    """What a caller can expect of the session."""

    CONNECTED = "connected"
    RECOVERING = "recovering"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Dial:
    """Dial the link of this generation and resume the session on it, or fail by `until`."""

    generation: int
    until: float


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `tick` at this time."""

    when: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The session is lost: fail everything with this reason."""

    reason: str


Action: TypeAlias = Dial | WakeAt | GiveUp


def worth_retrying(error: Exception) -> bool:
    """Whether another attempt may succeed: the link failed, or the old link still holds the session."""
    return isinstance(error, ConnectionLost | SessionAttached | TimeoutError)


def delays(random: Callable[[], float]) -> Iterator[float]:
    """Yield delays that double from FIRST_DELAY_S to MAX_DELAY_S, each shortened by up to half at random."""
    delay = FIRST_DELAY_S
    while True:
        yield delay * (1 - random() / 2)
        delay = min(2 * delay, MAX_DELAY_S)


class Recovery:
    """The state machine.

    It begins CONNECTED with the link of generation 1. `random` gives numbers in [0, 1).
    """

    def __init__(self, *, resumable: bool, now: float, random: Callable[[], float]) -> None:
        self.state = LinkState.CONNECTED
        self.generation = 1
        self._resumable = resumable
        self._random = random
        self._delays = delays(random)
        self._connected_at = now
        self._deadline = 0.0
        self._dialling = False
        self._died = False

    def link_lost(self, generation: int, now: float, reason: str) -> Action | None:
        """Report that the link of this generation ended; None if that is known or irrelevant by now."""
        if self.state is LinkState.FAILED or generation != self.generation:
            return None
        if self.state is LinkState.RECOVERING:
            self._died = self._dialling  # the link of the attempt: its end decides about the attempt
            return None
        if not self._resumable:
            return self._fail(reason)
        self.state = LinkState.RECOVERING
        self._deadline = now + WINDOW_S
        self._delays = delays(self._random)
        if now - self._connected_at < SETTLED_S:
            return WakeAt(now + next(self._delays))
        return self._dial()

    def tick(self, now: float) -> Action | None:
        """Report the wake-up. None when nothing is due."""
        if self.state is not LinkState.RECOVERING or self._dialling:
            return None
        if now >= self._deadline:
            return self._fail(f"it was not resumed within {WINDOW_S:g} s")
        return self._dial()

    def dial_failed(self, now: float, *, retry: bool, reason: str) -> Action | None:
        """Report that the attempt ended without a resumed session. None if the session was given up."""
        if self.state is LinkState.FAILED:
            return None
        self._expect_attempt()
        self._dialling = False
        if not retry:
            return self._fail(reason)
        when = now + next(self._delays)
        if when >= self._deadline:
            return self._fail(f"it was not resumed within {WINDOW_S:g} s: {reason}")
        return WakeAt(when)

    def resumed(self, now: float) -> Action | None:
        """Report that the attempt succeeded. None: connected; an action if its link is dead by now."""
        if self.state is LinkState.FAILED:
            return None
        self._expect_attempt()
        if self._died:
            return self.dial_failed(now, retry=True, reason="the new connection was lost at once")
        self._dialling = False
        self.state = LinkState.CONNECTED
        self._connected_at = now
        return None

    def give_up(self) -> None:
        """End the session at the user's request; later reports change nothing."""
        self.state = LinkState.FAILED
        self._dialling = False

    def _dial(self) -> Dial:
        self.generation += 1
        self._dialling = True
        self._died = False
        return Dial(self.generation, self._deadline)

    def _fail(self, reason: str) -> GiveUp:
        self.state = LinkState.FAILED
        return GiveUp(reason)

    def _expect_attempt(self) -> None:
        if not self._dialling:
            raise AssertionError("an attempt ends once, and only after it was asked for")
