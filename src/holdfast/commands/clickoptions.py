"""How much of this host workers may take: the options of whoever starts them."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.dispatch.rules.pressure import HostLimits

F = TypeVar("F", bound=Callable[..., object])

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """In bytes; the type of an option.

    Raises:
        BadParameter: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})([KMG]?)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size such as 512M or 2G")
    return int(found[1]) * _UNITS[found[2]]


def host_options(command: F) -> F:
    """Options `most`, `min_free` and `max_load`."""
    for option in (
        click.option(
            *("--max-load", "max_load"),
            type=click.FloatRange(min=0),
            metavar="N",
            help="Start nothing while the load per CPU is above N; 0 turns the check off [default: 4].",
        ),
        click.option(
            *("--min-free-memory", "min_free"),
            type=size,
            metavar="SIZE",
            help="Keep this much memory free: 512M, 2G; 0 turns the check off [default: 1G, or a tenth].",
        ),
        click.option(
            *("--max", "most"),
            type=click.IntRange(1, 200),
            metavar="N",
            help="Limit how many runs happen at once here [default: by CPUs and memory].",
        ),
    ):
        command = option(command)
    return command


def chosen(min_free: int | None, max_load: float | None) -> "HostLimits":
    """What was asked for, and the defaults of this host for what was not."""
    from holdfast.dispatch import hostload
    from holdfast.dispatch.rules import pressure

    usual = pressure.default_limits(hostload.look())
    return pressure.HostLimits(
        usual.min_free if min_free is None else min_free or None,
        usual.max_load if max_load is None else max_load or None,
    )
