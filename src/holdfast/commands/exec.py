"""`holdfast exec`: parse, call, print."""

import sys

import click

from holdfast.commands.execute import execute
from holdfast.commands.limits import limited, options_of
from holdfast.commands.oneline import OneLine
from holdfast.commands.options import EXEC, Limits


@click.command("exec", cls=OneLine, context_settings={"allow_interspersed_args": False})
@limited
@options_of(EXEC)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec(
    limits: Limits,
    where: str | None,
    watch: bool,
    print_plan: bool,
    explain: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command in a sandbox, confined to this directory.

    Its exit code is the command's own; 125 if the sandbox could not be set up, 126 if the command is not
    executable, 127 if it is not found. What the sandbox denied is said at the end, with the option that
    allows it.

    \b
    Examples:
      holdfast exec -- npm test
      holdfast exec --allow-write ~/.npm --network on -- npm install
      holdfast exec --explain .git/config
    """
    sys.exit(execute(limits, command, where, explain, watch=watch, print_plan=print_plan, as_json=as_json))
