"""Which environments are given work, and how a run stands that is on one. Pure module.

An environment that does not answer is unreachable: nothing is begun there, and what runs there is waited for.
That is never taken for a failure of the work.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.agents.evidence.evidence import WorkerState
from holdfast.agents.evidence.status import UNREACHABLE
from holdfast.agents.fleet.facts import EnvironmentFacts
from holdfast.board.rules.assign import Places, clock
from holdfast.dispatch.rules.pressure import HostLoad, MemoryLoad, most_here
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.dispatch.rules.runsteps import ANSWERED

FRESH_S: Final = 60.0  # for which what a machine said of itself is believed
AGAIN_S: Final = 10.0  # between looks at one that was not reached
WAITS: Final = "waiting(environment unreachable)"  # the beginning of a run's note
MAX_WHY: Final = 300  # characters


def is_due(facts: EnvironmentFacts | None, now: float) -> bool:
    """Whether to look at an environment that work is for."""
    if facts is None or now < facts.at:  # the clock went back
        return True
    return now - facts.at >= (FRESH_S if facts.reached else AGAIN_S)


def count_slots(facts: EnvironmentFacts) -> int:
    """How many runs at once it can be given, as for a host that nobody has said anything about."""
    memory = MemoryLoad(facts.memory, facts.free) if facts.memory else None
    return most_here(HostLoad(cpus=float(facts.cpus or 1), memory=memory))


def find_holdup(facts: EnvironmentFacts | None, running: int) -> str:
    """Why nothing is begun on an environment now; empty if something may be. All work there is confined."""
    if facts is None:
        return "it has not been checked yet"
    if not facts.reached:
        return f"unreachable since {clock(round(facts.since * 1000))}: {facts.error}"[:MAX_WHY]
    if facts.unconfined:
        return f"it cannot confine a worker: {facts.unconfined}"[:MAX_WHY]
    slots = count_slots(facts)
    return f"all {slots} slots are taken" if running >= slots else ""


def make_places(
    named: Mapping[str, str],
    facts: Mapping[str, EnvironmentFacts],
    running: Mapping[str, int],
    profiles: Iterable[WorkerProfile],
) -> Places:
    """What a host offers; `named` are its environments, each with why it can be none for the board, or ""."""
    return Places(
        {name: bad or find_holdup(facts.get(name), running.get(name, 0)) for name, bad in named.items()},
        {one.name: one.environment for one in profiles if one.environment},
        {name: count_slots(facts[name]) for name in named if name in facts and facts[name].reached},
    )


def describe_waiting(environment: str, why: str) -> str:
    """The note of a run whose environment is not reached."""
    return f"{WAITS}: {environment}: {why}"[:MAX_WHY]


def is_unreached(state: str, detail: str) -> bool:
    """Whether a worker's report says that its machine is away."""
    return (state, detail) == (WorkerState.STALLED, UNREACHABLE)


def is_waited_for(outcome: str | None, *, unreached: bool) -> bool:
    """Whether a worker whose run is over is left alone until its machine is back.

    Its work is over there: one that answered has done it. Whoever takes a task away does not wait for that.
    """
    return unreached and outcome in ANSWERED
