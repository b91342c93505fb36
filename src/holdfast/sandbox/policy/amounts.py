"""Limits on a command's resources, as users write them: `2G`, `1.5`, `10m`. Pure module."""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.errors import UsageError
from holdfast.sandbox.limits import NAMES, UNITS, Limits

_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
UNLIMITED: Final = "none"
_DIGITS: Final = frozenset("0123456789.")
_MOST_DIGITS: Final = 20  # more than any limit has; a longer number is an error


def parse(given: Mapping[str, object]) -> Limits:
    """Parse what a user wrote: `2G`, `200`, `1.5`, `10m`; None and `none` mean no limit.

    Raises:
        UsageError: a value is invalid; the message names it.
    """
    unknown = [name for name in given if name not in NAMES]
    if unknown:
        raise UsageError(f"{unknown[0]} is not a limit", remedy=f"one of: {', '.join(NAMES)}")
    meant = {name: content for name, content in given.items() if content not in (None, UNLIMITED)}
    read = {name: _READERS[name](name, content) for name, content in meant.items()}
    timeout_s = read.pop("timeout", None)
    try:
        return Limits(**read, timeout_s=timeout_s)  # type: ignore[arg-type]
    except ValueError as exc:
        raise UsageError(f"limit {exc}") from None


def _split(text: str) -> tuple[float | None, str]:
    """The number at the beginning of the text, and the rest."""
    digits = 0
    while digits < len(text) and text[digits] in _DIGITS:
        digits += 1
    if digits > _MOST_DIGITS:
        return None, text
    try:
        return float(text[:digits]), text[digits:].strip()
    except ValueError:
        return None, text


def read_size(name: str, content: object) -> int:
    """The bytes of 512M or 2G; `name` is the limit's name, for the message. Raises UsageError."""
    if isinstance(content, int) and not isinstance(content, bool):
        return content
    number, unit = _split(content.strip()) if isinstance(content, str) else (None, "")
    factor = UNITS.get(unit.upper().removesuffix("B").removesuffix("I"))
    if number is None or factor is None:
        raise UsageError(f"{_label(name)}: {content!r} is not a size", remedy="as in 512M or 2G")
    return int(number * factor)


def _count(name: str, content: object) -> int:
    if isinstance(content, int) and not isinstance(content, bool):
        return content
    if (
        isinstance(content, str)
        and content.isascii()
        and content.isdecimal()
        and len(content) <= _MOST_DIGITS
    ):
        return int(content)
    raise UsageError(f"{_label(name)}: {content!r} is not a whole number")


def _number(name: str, content: object) -> float:
    if isinstance(content, int | float) and not isinstance(content, bool):
        return content
    number, rest = _split(content) if isinstance(content, str) else (None, "")
    if number is None or rest:
        raise UsageError(f"{_label(name)}: {content!r} is not a number")
    return number


def _duration(name: str, content: object) -> float:
    if isinstance(content, int | float) and not isinstance(content, bool):
        return float(content)
    rest, total = content if isinstance(content, str) else "", 0.0
    while rest:
        number, rest = _split(rest)
        unit = next((one for one in ("ms", "s", "m", "h", "d") if rest.startswith(one)), "")
        if number is None or (rest and not unit):
            break
        total += number * _SECONDS[unit]
        rest = rest[len(unit) :]
    else:
        if content:
            return total
    raise UsageError(f"{_label(name)}: {content!r} is not a time", remedy="as in 90s, 10m or 1h30m")


_READERS: Final[Mapping[str, Callable[[str, object], float]]] = {
    "memory": read_size,
    "pids": _count,
    "cpus": _number,
    "disk": read_size,
    "open_files": _count,
    "timeout": _duration,
}


def _label(name: str) -> str:
    return f"limit {name.replace('_', '-')}"
