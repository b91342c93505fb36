"""`holdfast config`: parse, call, print."""

import sys
from typing import Any

import click

from holdfast.commands import config_wish
from holdfast.commands.config_clients import claude, opencode
from holdfast.errors import HoldfastError


@click.group()
def config() -> None:
    """Write a safe configuration for an agent CLI, and check it.

    \b
    Examples:
      holdfast config codex plan --network none
      holdfast config claude apply
    """


@config.group()
def codex() -> None:
    """Configure the sandbox of the Codex CLI.

    Exit codes of all of these: 0 done; 1 what is in force differs (check), or Codex refuses the
    file; 2 the arguments or the file make no sense; 3 something named is not there; 71 it could not be
    written; 125 no safe decision is possible here, and nothing was written.

    \b
    Examples:
      holdfast config codex plan --network none
      holdfast config codex check
    """


config.add_command(claude)
config.add_command(opencode)


@codex.command()
@config_wish.options
def plan(as_json: bool, **wished: Any) -> None:
    """Print the decision, its reason and the change; write nothing.

    \b
    Example:
      holdfast config codex plan --network none
    """
    from holdfast.agentconfig import order
    from holdfast.agentconfig.decision import AgentName, Severity

    try:
        planned = order.plan(config_wish.order(AgentName.CODEX, **wished))
    except HoldfastError as exc:
        config_wish.fail(exc)
    config_wish.show(planned, as_json=as_json, done="would change")
    sys.exit(125 if planned.decision.severity is Severity.REFUSED else 0)


@codex.command()
@config_wish.options
def apply(as_json: bool, **wished: Any) -> None:
    """Write the configuration into config.toml.

    A copy of what was there is kept beside it.

    \b
    Example:
      holdfast config codex apply --network none
    """
    from holdfast.agentconfig import order
    from holdfast.agentconfig.decision import AgentName

    try:
        applied = order.apply(config_wish.order(AgentName.CODEX, **wished))
    except HoldfastError as exc:
        config_wish.fail(exc)
    config_wish.show(applied, as_json=as_json, done="changed")


@codex.command()
@config_wish.options
@click.option(
    "-c", "overrides", metavar="KEY=VALUE", multiple=True, help="A setting that codex will be started with."
)
@click.option(
    "-s",
    "sandbox",
    type=click.Choice(["read-only", "workspace-write", "danger-full-access"]),
    help="The sandbox mode for codex; overrides every file and every -c.",
)
def check(as_json: bool, overrides: tuple[str, ...], sandbox: str | None, **wished: Any) -> None:
    """Ask the real Codex which values are in force, and compare.

    \b
    Example:
      holdfast config codex check
    """
    from holdfast.agentconfig import order
    from holdfast.agentconfig.decision import AgentName

    try:
        planned, found = order.check(config_wish.order(AgentName.CODEX, **wished), overrides, sandbox)
    except HoldfastError as exc:
        config_wish.fail(exc)
    config_wish.compared(planned, found, order.UNSEEN, agent=AgentName.CODEX, as_json=as_json)


@codex.command()
@config_wish.options
def remove(as_json: bool, **wished: Any) -> None:
    """Remove what apply wrote, and restore what it replaced.

    \b
    Example:
      holdfast config codex remove
    """
    from holdfast.agentconfig import order
    from holdfast.agentconfig.decision import AgentName

    try:
        edited = order.remove(config_wish.order(AgentName.CODEX, **wished))
    except HoldfastError as exc:
        config_wish.fail(exc)
    config_wish.removed(edited, as_json=as_json)
