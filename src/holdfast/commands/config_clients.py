"""`holdfast config claude` and `holdfast config opencode`: the same decision, in a file of our own."""

import sys
from typing import Any

import click

from holdfast.commands import config_wish
from holdfast.errors import HoldfastError

_EXITS = """
Exit codes of all of these: 0 done; 1 what is in force differs (check), the file holds what is not
ours, or the agent refuses it; 2 the arguments make no sense; 3 something named is not there; 71 it could not
be written, or the agent does not answer; 125 no safe decision is possible here, or the agent does not
start without its sandbox.
"""


def _example(*words: str) -> str:
    return f"\b\nExample:\n  holdfast config {' '.join(words)}"


def _group(name: str, text: str) -> click.Group:
    group = click.Group(name, help=text + _EXITS, epilog=_example(name, "plan"))

    @group.command(epilog=_example(name, "plan"))
    @config_wish.options
    def plan(as_json: bool, **wished: Any) -> None:
        """Print the decision, its reason and the change; write nothing."""
        from holdfast.agentconfig import ownfile
        from holdfast.agentconfig.decision import AgentName, Severity

        agent = AgentName(name)
        try:
            planned = ownfile.plan(ownfile.CLIENTS[agent], config_wish.order(agent, **wished))
        except HoldfastError as exc:
            config_wish.fail(exc)
        config_wish.show(planned, as_json=as_json, done="would change")
        sys.exit(125 if planned.decision.severity is Severity.REFUSED else 0)

    @group.command(epilog=_example(name, "apply"))
    @config_wish.options
    def apply(as_json: bool, **wished: Any) -> None:
        """Write the configuration into a file of its own."""
        from holdfast.agentconfig import ownfile
        from holdfast.agentconfig.decision import AgentName

        agent = AgentName(name)
        try:
            applied = ownfile.apply(ownfile.CLIENTS[agent], config_wish.order(agent, **wished))
        except HoldfastError as exc:
            config_wish.fail(exc)
        config_wish.show(applied, as_json=as_json, done="changed")

    @group.command(epilog=_example(name, "check"))
    @config_wish.options
    def check(as_json: bool, **wished: Any) -> None:
        """Ask the real agent which values are in force, and compare."""
        from holdfast.agentconfig import ownfile
        from holdfast.agentconfig.decision import AgentName

        agent = AgentName(name)
        client = ownfile.CLIENTS[agent]
        try:
            planned, found = ownfile.check(client, config_wish.order(agent, **wished))
        except HoldfastError as exc:
            config_wish.fail(exc)
        config_wish.compared(planned, found, client.unseen, agent=agent, as_json=as_json)

    @group.command(epilog=_example(name, "remove"))
    @config_wish.options
    def remove(as_json: bool, **wished: Any) -> None:
        """Delete the file that apply wrote."""
        from holdfast.agentconfig import ownfile
        from holdfast.agentconfig.decision import AgentName

        agent = AgentName(name)
        try:
            edited = ownfile.remove(ownfile.CLIENTS[agent], config_wish.order(agent, **wished))
        except HoldfastError as exc:
            config_wish.fail(exc)
        config_wish.removed(edited, as_json=as_json)

    return group


claude = _group(
    "claude",
    """Configure the sandbox of Claude Code.

The settings are in a file of their own, in force in a launch with --settings.

It confines commands in its own sandbox, and its file tools by rules.
""",
)
opencode = _group(
    "opencode",
    """Configure the rules of OpenCode.

They are in a file of their own, in force in a launch with OPENCODE_CONFIG_CONTENT.

It has no sandbox: a command that the rules allow does all that you can do. Run it under holdfast exec.
""",
)
