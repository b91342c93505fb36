"""What is really in force, beside what was decided. Pure module."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.agentconfig.settings import PROFILE, Key, Settings, render_key, render_value

_RIVALS: Final = {"sandbox_mode": "default_permissions", "default_permissions": "sandbox_mode"}
_BELOW_US: Final = "system"  # a layer under the user's; what it says of a rival is not heard


@dataclass(frozen=True, slots=True)
class Effective:
    """The values as an agent reads them, flat, lists as tuples; `origins` says which layer decided."""

    values: Mapping[Key, object]
    origins: Mapping[str, str]

    def origin(self, key: Key) -> str:
        """The layer that decided this key; the closest that is told for a value inside another."""
        for length in range(len(key), 0, -1):
            if found := self.origins.get(".".join(key[:length])):
                return found
        return next((told for name, told in self.origins.items() if name.startswith(".".join(key) + ".")), "")

    def typed(self, mode: str) -> "Effective":
        """The same with `-s` on the launch line, which no file and no `-c` outranks, in either vocabulary."""
        values = {key: value for key, value in self.values.items() if key != ("default_permissions",)}
        origins = {name: told for name, told in self.origins.items() if name != "default_permissions"}
        return Effective({**values, ("sandbox_mode",): mode}, {**origins, "sandbox_mode": "-s"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value is not the one that was decided; None is "not set"."""

    key: Key
    decided: object
    found: object
    origin: str

    def __str__(self) -> str:
        origin = f", from {self.origin}" if self.origin else ""
        return f"{render_key(self.key)} is {_words(self.found)}{origin}; decided was {_words(self.decided)}"

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "key": list(self.key),
            "decided": self.decided,
            "found": self.found,
            "origin": self.origin or None,
        }


def flatten(tree: object, above: Key = ()) -> Iterator[tuple[Key, object]]:
    """The leaves of a tree of objects, without what is not set."""
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from flatten(below, (*above, str(name)))
    elif isinstance(tree, list):
        yield above, tuple(tree)
    elif tree is not None:
        yield above, tree


def differences(decided: Settings, effective: Effective) -> list[Difference]:
    """Where what is in force is not what was decided, also what somebody added to it."""
    found = []
    for item in decided.items:
        value = effective.values.get(item.key)
        if value != item.value or isinstance(value, bool) != isinstance(item.value, bool):
            found.append(Difference(item.key, item.value, value, effective.origin(item.key)))
    keys = {item.key for item in decided.items}
    for ours, rival in _RIVALS.items():
        value = effective.values.get((rival,))
        if (ours,) in keys and value is not None and not effective.origin((rival,)).startswith(_BELOW_US):
            found.append(Difference((rival,), None, value, effective.origin((rival,))))
    for key, value in effective.values.items():
        if key[:2] == ("permissions", PROFILE) and key not in keys and ("default_permissions",) in keys:
            found.append(Difference(key, None, value, effective.origin(key)))
    return found


def _words(value: object) -> str:
    if isinstance(value, bool | int | str):
        return render_value(value)
    if isinstance(value, tuple):
        return render_value(tuple(str(each) for each in value))
    return "not set" if value is None else str(value)
