"""What the worker of one profile could reach through a task for another one. Pure module.

A worker chooses the words of the tasks that it makes, and whoever works on them does what they say. So a task
for a profile that may more than the worker's own is not started until a person has agreed.
"""

from collections.abc import Collection

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.dispatch.rules.profiles import WorkerProfile


def find_excess(parent: WorkerProfile, child: WorkerProfile, names: Collection[str]) -> list[str]:
    """What the child's profile gives and the parent's does not, where the variables `names` are set."""
    found = []
    if child.network and not parent.network:
        found.append("the network")
    elif _reaches_a_model(child) and not _reaches_a_model(parent):
        found.append("a model to talk to")
    passed = ({*child.env} - {*parent.env}) & {*names}
    found += [f"the variable {name}" for name in sorted(passed)]
    if child.key_env is not None and child.key_env != parent.key_env:
        found.append(f"the key in {child.key_env}")
    set_otherwise = {name for name, value in child.variables.items() if parent.variables.get(name) != value}
    found += [f"its own {name}" for name in sorted(set_otherwise)]
    found += [f"writing to {path}" for path in child.writable if not _is_within(path, parent.writable)]
    if child.environment != parent.environment:
        found.append(f"another machine: {child.environment or 'this one'}")
    if not child.relocate and parent.relocate:
        found.append("the state of its CLI in the home directory")
    found += [f"copies of {pattern}" for pattern in child.copy if pattern not in parent.copy]
    return found


def ask_about(parent: str, child: str, excess: Collection[str]) -> str:
    """The question to a person."""
    return (
        f"A worker of {parent} made this task for {child}, which has more than it: {', '.join(excess)}. "
        "Read what the task says; unblock it to let it run."
    )


def _reaches_a_model(profile: WorkerProfile) -> bool:
    """Has its worker the network, even if its commands have none?"""
    agent = CATALOG.get(profile.agent)
    return profile.network or (agent is not None and agent.own_sandbox is not None)


def _is_within(path: str, places: Collection[str]) -> bool:
    return any(f"{path.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for place in places)
