"""Which environments are given work, and the state of a run that is on one. Pure module.

An environment that does not answer is unreachable: nothing is begun there, and the dispatcher waits for what
runs there. Being unreachable is never taken for a failure of the work.
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

FRESH_S: Final = 60.0  # how long the facts that a machine reported are trusted
AGAIN_S: Final = 10.0  # between looks at one that was not reached
WAITS: Final = "waiting(environment unreachable)"  # the beginning of a run's note
MAX_WHY: Final = 300  # characters


def is_due(facts: EnvironmentFacts | None, now: float) -> bool:
    """Whether to look now at an environment that has work."""
    if facts is None or now < facts.at:  # the clock went back
        return True
    return now - facts.at >= (FRESH_S if facts.reached else AGAIN_S)


def count_slots(facts: EnvironmentFacts) -> int:
    """How many runs at once it can be given, computed like the default of a host without settings."""
    memory = MemoryLoad(facts.memory, facts.free) if facts.memory else None
    return most_here(HostLoad(cpus=float(facts.cpus or 1), memory=memory))


def find_holdup(facts: EnvironmentFacts | None, running: int) -> str:
    """Why nothing is begun on an environment now; empty if something may be. All work is confined there."""
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
    """What a host offers. `named` are its environments, each with why the board cannot use it, or ""."""
    return Places(
        {name: bad or find_holdup(facts.get(name), running.get(name, 0)) for name, bad in named.items()},
        {one.name: one.environment for one in profiles if one.environment},
        {name: count_slots(facts[name]) for name in named if name in facts and facts[name].reached},
    )


def describe_waiting(environment: str, why: str) -> str:
    """The note of a run on an environment that is not reached."""
    return f"{WAITS}: {environment}: {why}"[:MAX_WHY]


def is_unreached(state: str, detail: str) -> bool:
    """Whether a worker's report says that its machine is unreachable."""
    return (state, detail) == (WorkerState.STALLED, UNREACHABLE)


def is_waited_for(outcome: str | None, *, unreached: bool) -> bool:
    """Whether to wait for the machine of a worker that is unreachable although its run is over.

    Only a run that the worker answered itself is waited for, since its work is done there. When a person or
    another process ended the run, such as by taking the task away, there is nothing to wait for.
    """
    return unreached and outcome in ANSWERED
