"""What a worker of one profile could reach by making a task for another profile. Pure module.

A worker chooses the words of the tasks that it makes, and the workers of those tasks follow them. So a task
for a profile with more rights than the worker's own is not started until a person has agreed.
"""

from collections.abc import Collection

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.providerhosts import find_provider
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.egress.hosts import Host, decide, parse_rules
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.wire.permissions import AllowedHosts


def find_excess(parent: WorkerProfile, child: WorkerProfile, names: Collection[str]) -> list[str]:
    """What the child's profile grants and the parent's does not; `names` are the variables that are set."""
    found = _find_more_network(parent, child)
    passed = ({*child.env} - {*parent.env}) & {*names}
    found += [f"the variable {name}" for name in sorted(passed)]
    keys = (parse_secret(text).name for text in child.secrets if text not in parent.secrets)
    found += [f"the key of {name}" for name in keys]
    if child.keys_inside and not parent.keys_inside:
        found.append("its keys inside of its sandbox")
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


def _find_more_network(parent: WorkerProfile, child: WorkerProfile) -> list[str]:
    """The whole network, or the hosts that the parent lacks; rules are compared as they are written."""
    if _has_all(parent):
        return []
    if _has_all(child):
        return ["the network"]
    above, below = _hosts_of(parent), _hosts_of(child)
    found = [f"the host {rule}" for rule in below.allow if rule not in above.allow]
    found += [f"the hosts of {name}" for name in child.presets if name not in parent.presets]
    found += _find_more_requests(above, below)
    found += [f"the host {rule}, which is denied" for rule in above.deny if rule not in below.deny]
    found += [f"no limit of {limit} on hosts" for limit in above.limits if limit not in below.limits]
    if below.private and not above.private:
        found.append("hosts at addresses that are not public")
    return found + [
        f"the host {name} elsewhere"
        for name, at in below.addresses.items()
        if above.addresses.get(name) != at
    ]


def _find_more_requests(above: AllowedHosts, below: AllowedHosts) -> list[str]:
    """Hosts open to the child by a pattern, while the parent is limited to certain requests there."""
    parent, child = parse_rules(above.allow, above.deny), parse_rules(below.allow, below.deny)
    found = []
    for name, port in parent.requested:
        host = Host(name)
        if decide(child, host, port).allowed and not child.find_requests(host, port):
            found.append(f"all of the host {name}:{port}")
    return found


def _has_all(profile: WorkerProfile) -> bool:
    """Whether its worker has the whole network."""
    agent = CATALOG.get(profile.cli)
    unknown = agent is None or agent.reach is None
    return bool(profile.network) or (profile.network is None and unknown and profile.allowed_hosts is None)


def _hosts_of(profile: WorkerProfile) -> AllowedHosts:
    """Its hosts with those of its provider.

    A CLI talks to its model even if its commands have no network.
    """
    agent, named = CATALOG.get(profile.cli), profile.allowed_hosts or AllowedHosts([])
    if agent is None or (profile.network is False and agent.own_sandbox is None):
        return named
    found = find_provider(agent, profile.provider, _variables(profile, agent))
    return msgspec.structs.replace(named, allow=[*found.rules, *filter(None, [found.literal]), *named.allow])


def _variables(profile: WorkerProfile, agent: Agent) -> list[str]:
    """Provider addresses set by the profile itself; the user's own settings are the same for all."""
    names = () if agent.reach is None else agent.reach.variables
    return [profile.variables[name] for name in names if name in profile.variables]


def _is_within(path: str, places: Collection[str]) -> bool:
    return any(f"{path.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for place in places)
