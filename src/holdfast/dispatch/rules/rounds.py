"""What a dispatcher has to do in a round, from the board's state, the runs it drives itself, and the time.

Pure module. Every round begins from the board, so a dispatcher that takes over after a kill comes to the same
conclusions. The only memory is when something was last done, and it is updated once that is done.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.board.rules.rows import Run
from holdfast.board.rules.transitions import OPEN, TaskStatus
from holdfast.dispatch.rules.pressure import MAX_HERE, YOUNG_S
from holdfast.errors import (
    HoldfastError,
    OperationFailed,
    OutputLost,
    SandboxUnavailable,
    SessionLost,
    StartupError,
    TokenRefused,
    is_storage_fault,
)

TICK_S: Final = 1.0  # between rounds without news, and between looks for expired leases
REST_S: Final = 10.0  # likewise, while no task is in a status that time alone could end
_MOVED_BY_TIME: Final = OPEN - {TaskStatus.TRIAGE, TaskStatus.WAITING_HUMAN, TaskStatus.REVIEW}
BEATS: Final = 4  # renewals in one lease: three may fail
TRIES: Final = 3  # for errors that waiting cannot fix
OVER_TRIES: Final = 30  # of a run that is over on the board: it must not hold its slot for ever
_WAITED_FOR: Final = (
    OperationFailed,
    OutputLost,
    SandboxUnavailable,
    SessionLost,
    StartupError,
    TokenRefused,
)


@dataclass(frozen=True, slots=True)
class Round:
    """What to do, in this order."""

    give_back: tuple[Run, ...]  # to the board, so that another dispatcher can begin them again
    drive: tuple[Run, ...]  # held by this host, and without a driver here
    over: tuple[str, ...]  # driven here, but not held any more: they were ended on the board
    renew: tuple[Run, ...]  # leases
    expire: bool  # look for leases that ran out
    end_lost: bool  # ... and end the runs of others
    claim: bool


class Rounds:
    """The rounds of one dispatcher. `once`: claims in one round only; without `claiming`: in none."""

    def __init__(self, *, lease_s: float, claiming: bool, once: bool) -> None:
        self._renew_s = lease_s / BEATS
        self._claiming = claiming
        self._once = once
        self._renewed_at: float | None = None
        self._expired_at: float | None = None
        self._looked = False
        self._leaving = False

    def leave(self) -> None:
        """From now on start nothing and give back what runs."""
        self._leaving = True
        self._claiming = False

    def plan(self, held: Iterable[Run], driven: Collection[str], now: float) -> Round:
        """`held`: the runs that the board gives to this host; `driven`: the ids of those driven here."""
        ours = {run.id: run for run in held}
        if self._leaving:
            return Round(
                tuple(ours.values()), (), tuple(driven), (), expire=False, end_lost=False, claim=False
            )
        return Round(
            give_back=(),
            drive=tuple(run for run in ours.values() if run.id not in driven),
            over=tuple(id for id in driven if id not in ours),
            renew=tuple(ours.values()) if _is_due(self._renewed_at, self._renew_s, now) else (),
            expire=_is_due(self._expired_at, TICK_S, now),
            # If the clock jumped just before our start, other dispatchers notice it within a tick, but we
            # cannot.
            end_lost=self._once or self._expired_at is not None,
            claim=self._claiming,
        )

    def finish(self, done: Round, now: float) -> None:
        """Record that all of it was done. Without this call, a failed round is planned again."""
        if _is_due(self._renewed_at, self._renew_s, now):
            self._renewed_at = now
        if done.expire:
            self._expired_at = now
        if done.claim and self._once:
            self._claiming = False
        self._looked = True

    def is_over(self, driven: Collection[str]) -> bool:
        """Whether there is nothing left to do and nothing more will come."""
        return self._looked and not self._claiming and not driven


def find_pause(boards: Iterable[Mapping[str, int]]) -> float:
    """Seconds until the next round without news, from each board's number of tasks by status."""
    return TICK_S if any(counts.get(status) for counts in boards for status in _MOVED_BY_TIME) else REST_S


def _is_due(last: float | None, every_s: float, now: float) -> bool:
    return last is None or now - last > every_s


class Starts:
    """When workers were started here: each takes its memory only after a while."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MAX_HERE)

    def add(self, now: float) -> None:
        self._at.append(now)

    def young(self, running: int, now: float) -> int:
        """How many of the running workers have only just been started."""
        return min(running, sum(now - at < YOUNG_S for at in self._at))


def hold_up(
    running: int, young: int, *, most: int, held: Callable[[int, int], str | None]
) -> tuple[str | None, bool]:
    """Why this host starts nothing now, or None; and whether the reason is only that it is full."""
    if running >= most:
        return f"{most} runs at once are the most", True
    return held(running, young), False


def max_tries(exc: Exception, *, over: bool) -> int | None:
    """How often to try driving a run that fails with this error; None: until what it needs is back."""
    if isinstance(exc, TimeoutError) or (isinstance(exc, HoldfastError) and exc.retryable):
        return None
    if is_storage_fault(exc):
        return None
    if isinstance(exc, _WAITED_FOR):
        return OVER_TRIES if over else None
    return TRIES
