"""`holdfast exec`: parse, call, print; and its options for all commands that run one."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.commands import options as table
from holdfast.commands.clickoptions import combine, duration
from holdfast.commands.output import OneLine

Command = Callable[..., None]


def make_option(option: table.ExecOption) -> Callable[[Command], Command]:
    """Turn an option of the table into a click option."""
    kind: Any = click.Choice(option.choices) if option.choices else None
    if option.kind == "port":
        kind = click.IntRange(1, table.MAX_PORT)
    elif option.kind == "span":
        kind = duration
    return click.option(
        option.name,
        option.target,
        metavar=option.metavar,
        type=kind,
        is_flag=option.kind == "flag",
        multiple=option.kind in ("many", "port"),
        default=option.absent if option.kind == "flag" else option.default,
        show_default=option.default is not None,
        envvar=option.variable or None,
        help=option.help or None,
        hidden=option.hidden,
    )


def with_limits(command: Command) -> Command:
    """Add the options to a command, which receives them as one argument, `limits`."""

    @functools.wraps(command)
    def call(**given: Any) -> None:
        limits = table.gather(given)
        command(limits=limits, **given)

    return combine(*map(make_option, table.LIMITS))(call)


@click.command("exec", cls=OneLine, context_settings={"allow_interspersed_args": False})
@with_limits
@combine(*map(make_option, table.EXEC))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec(limits: table.ExecLimits, command: tuple[str, ...], **given: Any) -> None:
    """Run a command in a sandbox, confined to this directory.

    Its exit code is the command's own; 74 if its output could not be written, as on a full disk, 124 if its
    --timeout was over, 125 if the sandbox could not be set up, 126 if the command is not executable, 127 if
    it is not found, 137 if it was killed, as at another limit. At the end it reports what the sandbox denied,
    with the option that allows it, and any limit that the command reached.

    \b
    Examples:
      holdfast exec -- npm test
      holdfast exec --allow-write ~/.npm --allow-net npm -- npm install
      holdfast exec --ask-network -- pip install requests
      holdfast exec --memory 2G --pids 200 --cpus 1.5 --timeout 10m -- make test
      holdfast exec --explain .git/config
    """
    sys.exit(table.execute(limits, command, **given))
