"""Which agents a home knows: ours, those whose records we ship, and those of the user's own records.

HOME/agents.toml is read when a worker is started, so that a new record needs no restart. What is wrong in it
makes that one record unusable, with the reason; the others go on.
"""

import errno
import functools
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.userrecords import MAX_BYTES, Records, parse_file
from holdfast.errors import UsageError
from holdfast.home import default_home

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


def read_known(home: Path | None = None) -> KnownAgents:
    """The agents of this home as its file is now. Never raises: what is wrong is among the invalid."""
    path = (default_home() if home is None else home) / FILE
    try:
        text = _read(path)
        shipped = read_shipped().agents
        own = parse_file(text, str(path), taken=CATALOG, shipped=shipped) if text else Records({}, {})
    except UsageError as exc:
        own = Records({}, {FILE: str(exc)})
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        own = Records({}, {FILE: f"{path}: {reason}"})
    return KnownAgents(read_shipped(), own, str(path))


@functools.cache
def read_shipped() -> Records:
    """The records that come with us, read when somebody first asks."""
    found = Records({}, {})
    for file in sorted(resources.files(__package__).joinpath("records").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".toml"):
            more = parse_file(file.read_text("utf-8"), file.name, taken=CATALOG, trusted=True)
            found.agents.update(more.agents)
            found.invalid.update(more.invalid)
    return found


def find_vouched(name: str) -> Agent | None:
    """What we ourselves say of the CLI of this name, whatever a record of the user's says besides."""
    return CATALOG.get(name) or read_shipped().agents.get(name)


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


def list_agents(home: Path, search: str) -> list[dict[str, str]]:
    """What is known of each, for people: where its program is on this PATH, who described it, how tried."""
    known = read_known(home)
    rows = [
        {
            "name": name,
            "program": shutil.which(agent.binary, path=search) or "",
            "source": known.source(name),
            "tried": agent.tried or (f"tried with {agent.versions.recorded}" if agent.versions else ""),
            "invalid": "",
        }
        for name, agent in known.items()
    ]
    rows += [
        {"name": name, "program": "", "source": FILE, "tried": "", "invalid": reason}
        for name, reason in known.invalid.items()
    ]
    return sorted(rows, key=lambda row: row["name"])


def _read(path: Path) -> str:
    """Its text; nothing where there is no such file. A pipe or a device is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES} bytes")
    return data.decode("utf-8")
