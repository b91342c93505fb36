"""When a worker is to be ended, and why: decided here, done by the supervisor. Pure module.

Advice about a worker (it stalls, it waits) never ends it. Only what cannot get better does, and the limits
that its owner set.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agents.evidence.evidence import Failure, Retrying, Status, WorkerState
from holdfast.agents.evidence.status import RETRYING, STORM, WorkerLimits
from holdfast.agents.evidence.verdict import http_failure

HOPELESS: Final = frozenset(
    {Failure.AUTH, Failure.MODEL, Failure.QUOTA}
)  # the same request fails the same way
HOPELESS_HTTP: Final = frozenset({401, 403, 404})
ENOUGH_ATTEMPTS: Final = 2  # the second shows that the first was no accident; CLIs go on for minutes


@dataclass(frozen=True, slots=True)
class End:
    """End it, with this as the cause of its exit: the verdict is then `failed`, this failure, these words."""

    failure: Failure
    why: str


def decide(status: Status, now: float, *, started_at: float, limits: WorkerLimits) -> End | None:
    """What to do about a worker in this state; None is nothing."""
    if status.state.ended:
        return None
    if limits.wall_s is not None and now - started_at > limits.wall_s:
        return End(Failure.TIMEOUT, f"it ran for more than {limits.wall_s:.0f} s")
    if status.rule == STORM:
        return End(Failure.PROVIDER, status.about)
    if status.rule == RETRYING and (failure := _hopeless(status)) is not None:
        return End(failure, f"trying again cannot help: {status.about}")
    idle_s = now - max(status.progress_at, started_at)
    # One that waits for its owner is not idle: the owner is.
    if limits.idle_s is not None and idle_s > limits.idle_s and status.state is not WorkerState.WAITING:
        return End(Failure.TIMEOUT, f"no sign of work for more than {limits.idle_s:.0f} s")
    return None


def _hopeless(status: Status) -> Failure | None:
    """The failure that repeats and will go on doing so. The evidence holds attempts that failed alike."""
    attempts = [item.claim for item in status.evidence if isinstance(item.claim, Retrying)]
    if len(attempts) < ENOUGH_ATTEMPTS:
        return None
    failure = attempts[0].failure or http_failure(attempts[0].http or 0)
    return failure if failure in HOPELESS or attempts[0].http in HOPELESS_HTTP else None
