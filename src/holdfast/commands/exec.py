"""`holdfast exec`: parse, call, print; and its options for every command that runs one."""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from holdfast.commands import options as table
from holdfast.commands.execute import execute
from holdfast.commands.output import OneLine

Command = Callable[..., None]


def make_option(option: table.ExecOption) -> Callable[[Command], Command]:
    """The option as click has it."""
    kind: Any = click.Choice(option.choices) if option.choices else None
    if option.kind == "port":
        kind = click.IntRange(1, table.MAX_PORT)
    return click.option(
        option.name,
        option.target,
        metavar=option.metavar,
        type=kind,
        is_flag=option.kind == "flag",
        multiple=option.kind in ("many", "port"),
        default=option.absent if option.kind == "flag" else option.default,
        show_default=option.default is not None,
        help=option.help,
    )


def add_options(options: Iterable[table.ExecOption]) -> Callable[[Command], Command]:
    """Several of them, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(tuple(options)):
            command = make_option(option)(command)
        return command

    return add


backend_option = make_option(table.BACKEND)
degraded_option = make_option(table.DEGRADED)


def with_limits(command: Command) -> Command:
    """Add the options to a command, which gets them as one argument, `limits`."""

    @functools.wraps(command)
    def call(**given: Any) -> None:
        limits = table.gather(given)
        command(limits=limits, **given)

    return add_options(table.LIMITS)(call)


@click.command("exec", cls=OneLine, context_settings={"allow_interspersed_args": False})
@with_limits
@add_options(table.EXEC)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec(
    limits: table.ExecLimits,
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
