"""A span of time as people write it: 90s, 30m, 12h, 7d."""

import re
from typing import Final

import click

MAX_DAYS: Final = 365  # longer is a typing error
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """In seconds; the type of an option.

    Raises:
        BadParameter: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= MAX_DAYS * _UNITS["d"]:
        raise click.BadParameter(f"{text!r} is no duration such as 90s, 30m, 12h or 7d")
    return float(seconds)
