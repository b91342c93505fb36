"""Agents of records, as the doctor looks for them.

A program that only a record of the user's names is not run to ask for its version: described programs run in
a sandbox. Which places mean that somebody logged in, only our own records say.
"""

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import SHIPPED, KnownAgents
from holdfast.doctor.facts.facts import InstalledAgent
from holdfast.sandbox.policy.credentials import is_credential


def describe_installed(known: KnownAgents) -> tuple[InstalledAgent, ...]:
    """Those of records that can be used, ours and the user's."""
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
