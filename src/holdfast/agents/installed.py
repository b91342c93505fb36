"""Agents described by records, in the form that the doctor checks.

The doctor does not run a program for its version if only a user's record names it: such programs run only in
a sandbox. Only our own records say which files mean that the user is logged in.
"""

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import SHIPPED, KnownAgents
from holdfast.doctor.facts.facts import InstalledAgent
from holdfast.sandbox.policy.credentials import is_credential


def describe_installed(known: KnownAgents) -> tuple[InstalledAgent, ...]:
    """Return the agents of all usable records, shipped and the user's."""
    return tuple(
        _describe(agent, ours=known.source(name) == SHIPPED)
        for name, agent in known.items()
        if known.is_record(name)
    )


def _describe(agent: Agent, *, ours: bool) -> InstalledAgent:
    states = [kept for kept in agent.state if kept.path.startswith("{home}/")]
    return InstalledAgent(
        agent.name,
        (agent.binary, "--version") if ours else (agent.binary,),
        tuple(kept.path.removeprefix("{home}/") for kept in states),
        states[0].variable if len(states) == 1 and not states[0].below else None,
        tuple(file.path for file in agent.host_files if is_credential(f"/{file.path}")),
        agent.keys,
    )
