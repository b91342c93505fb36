"""What a Seatbelt profile means, worked out from its text: of the rules that fit, the last one decides.

Written from the documented language, without anything of the code that makes profiles, so that it can be
asked whether a profile does what it is for. Filters that it does not know are an error, not a guess.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.support.sexpr import Shape, read

_NAMES: Final = ("global-name", "local-name", "sysctl-name", "ipc-posix-name", "iokit-registry-entry-class")
_PREFIXES: Final = ("sysctl-name-prefix", "ipc-posix-name-prefix")
_NEVER: Final = ("extension", "socket-domain", "socket-protocol", "ipc-posix-name-regex")


class Asked(NamedTuple):
    """One operation of a confined program; `name` is a service, a switch, or where a packet goes."""

    operation: str
    path: str = ""
    directory: bool = False
    name: str = ""


def allowed(
    text: str, parameters: Sequence[tuple[str, str]], asked: Asked, *, exact_last: bool = False
) -> bool:
    """Whether the profile lets it happen; with `exact_last` a rule for this operation alone beats its family.

    Raises:
        ValueError: the profile says something that this does not understand.
    """
    values = dict(parameters)
    decision = exact = False
    for rule in read(text, raw=True):
        if isinstance(rule, str):
            raise ValueError(f"no rule: {rule}")
        verdict, *rest = rule
        operations = [part for part in rest if isinstance(part, str)]
        filters = [part for part in rest if not isinstance(part, str)]
        if verdict == "version":
            continue
        if verdict not in ("allow", "deny"):
            raise ValueError(f"unknown: {verdict}")
        fits = any(_covers(operation, asked.operation) for operation in operations)
        fits = fits and (not filters or any(_fits(each, asked, values) for each in filters))
        names_it = exact_last and asked.operation in operations
        if fits and (names_it or not exact):
            decision, exact = verdict == "allow", names_it
    return decision


def _covers(operation: str, wanted: str) -> bool:
    if operation.endswith("*"):
        return wanted.startswith(operation[:-1])
    return operation in ("default", wanted)


def _fits(shape: Shape, asked: Asked, values: Mapping[str, str]) -> bool:
    if isinstance(shape, str):
        raise ValueError(f"no filter: {shape}")
    kind, *rest = shape
    match kind:
        case "require-all":
            return all(_fits(each, asked, values) for each in rest)
        case "require-any":
            return any(_fits(each, asked, values) for each in rest)
        case "require-not":
            return not _fits(rest[0], asked, values)
        case "literal":
            return asked.path == _value(rest[0], values)
        case "subpath":
            root = _value(rest[0], values).rstrip("/")
            return asked.path == root or asked.path.startswith(f"{root}/")
        case "regex":
            return bool(asked.path) and re.search(str(rest[0])[2:-1], asked.path) is not None
        case "vnode-type":
            return asked.directory
        case "target" | "remote":
            return asked.name == _value(rest[-1], values)
    if kind in _NAMES:
        return asked.name == _value(rest[0], values)
    if kind in _PREFIXES:
        return bool(asked.name) and asked.name.startswith(_value(rest[0], values))
    if kind in _NEVER:
        return False
    raise ValueError(f"unknown filter: {kind}")


def _value(shape: Shape, values: Mapping[str, str]) -> str:
    """A string as it stands, or what the parameter is."""
    if isinstance(shape, str):
        return shape.strip('"')
    name, key = shape
    if name != "param" or not isinstance(key, str):
        raise ValueError(f"no value: {shape}")
    return values[key.strip('"')]
