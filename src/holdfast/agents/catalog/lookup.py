"""The agents that a home knows, by name, and what is said of a name that nobody can use. Pure module."""

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.userrecords import Records
from holdfast.errors import UsageError

FILE: Final = "agents.toml"
BUILT_IN: Final = "built in"
SHIPPED: Final = "shipped record"


class KnownAgents(Mapping[str, Agent]):
    """By name; `invalid` says of the other names why they cannot be used, and `source` who described one."""

    def __init__(self, shipped: Records, own: Records, file: str) -> None:
        # A wrong record does not leave the shipped one in its place: somebody meant another program.
        others = {name: agent for name, agent in shipped.agents.items() if name not in own.invalid}
        self._found = {**others, **own.agents, **CATALOG}
        self.invalid = {**shipped.invalid, **own.invalid}
        self._own, self._shipped, self._file = own.agents, shipped.agents, file

    def __getitem__(self, name: str) -> Agent:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def is_record(self, name: str) -> bool:
        """Is it described by a record, ours or the user's?"""
        return name in self and self.source(name) != BUILT_IN

    def source(self, name: str) -> str:
        if name in self._own:
            return self._file
        return SHIPPED if name in self._shipped else BUILT_IN


def find_agent(known: Mapping[str, Agent], name: str) -> Agent:
    """Raises UsageError: there is none, or its record is wrong."""
    agent = known.get(name)
    if agent is not None:
        return agent
    invalid = known.invalid if isinstance(known, KnownAgents) else {}
    if name in invalid:
        raise UsageError(
            f"the record of `{name}` is invalid: {invalid[name]}", remedy="holdfast worker agents"
        )
    remedy = f"one of: {', '.join(sorted(known))}"
    if FILE in invalid:
        remedy += f"; nothing of {invalid[FILE]}"
    raise UsageError(f"no agent `{name}` is known", remedy=remedy)


def describe_unknown(name: str) -> Agent:
    """For a worker whose record is gone: its words are for people, and its exit code means little."""
    return Agent(name=name, binary=name, package=None, versions=None)
