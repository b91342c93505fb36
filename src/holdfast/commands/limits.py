"""The options that say what a command may do, for every command that runs one."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from holdfast.commands.options import BACKEND, DEGRADED, LIMITS, MAX_PORT, Option, gather
from holdfast.commands.options import Limits as Limits
from holdfast.commands.options import choice_of as choice_of

Command = Callable[..., None]


def option_of(option: Option) -> Callable[[Command], Command]:
    """The option as click has it."""
    kind: Any = click.Choice(option.choices) if option.choices else None
    if option.kind == "port":
        kind = click.IntRange(1, MAX_PORT)
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


def options_of(options: Iterable[Option]) -> Callable[[Command], Command]:
    """Several of them, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(tuple(options)):
            command = option_of(option)(command)
        return command

    return add


backend_option = option_of(BACKEND)
degraded_option = option_of(DEGRADED)


def limited(command: Command) -> Command:
    """Add the options to a command, which gets them as one argument, `limits`."""

    @functools.wraps(command)
    def gathered(**given: Any) -> None:
        limits = gather(given)
        command(limits=limits, **given)

    return options_of(LIMITS)(gathered)
