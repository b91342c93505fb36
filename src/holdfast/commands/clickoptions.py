"""Options that several commands take, and the types of their values."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.dispatch.rules.pressure import HostLimits

F = TypeVar("F", bound=Callable[..., object])

MAX_DAYS: Final = 365  # longer is a typing error
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def duration(text: str) -> float:
    """A span of time as people write it (90s, 30m, 12h, 7d) in seconds; the type of an option.

    Raises:
        BadParameter: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_DAYS * _SECONDS["d"]:
        raise click.BadParameter(f"{text!r} is no duration such as 90s, 30m, 12h or 7d")
    return float(seconds)


def size(text: str) -> int:
    """In bytes; the type of an option.

    Raises:
        BadParameter: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})([KMG]?)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size such as 512M or 2G")
    return int(found[1]) * _BYTES[found[2]]


def _complete_home(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    from holdfast.home import default_home

    return (value or default_home()).absolute()  # daemons work elsewhere


home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    callback=_complete_home,
    is_eager=True,  # the default of --store is in it
    help="The directory for workers and workspaces [default: $HOLDFAST_HOME, or below $XDG_STATE_HOME].",
)


def host_options(command: F) -> F:
    """Options `most`, `min_free` and `max_load`: how much of this host workers may take."""
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


def choose_limits(min_free: int | None, max_load: float | None) -> "HostLimits":
    """What was asked for, and the defaults of this host for what was not."""
    from holdfast.dispatch import hostload
    from holdfast.dispatch.rules import pressure

    usual = pressure.default_limits(hostload.look())
    return pressure.HostLimits(
        usual.min_free if min_free is None else min_free or None,
        usual.max_load if max_load is None else max_load or None,
    )
