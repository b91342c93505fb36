"""The agents known to a home: built-in ones, shipped records, and the user's own records.

HOME/agents.toml is read each time a worker is started, so a new record needs no restart. A mistake makes only
its own record unusable, with the reason; the other records stay usable.
"""

import errno
import functools
import os
import shutil
import stat
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG, FILE, KnownAgents, ShippedAgents
from holdfast.agents.catalog.userrecords import MAX_BYTES, parse_file
from holdfast.errors import UsageError
from holdfast.home import default_home


def read_known(home: Path | None = None) -> KnownAgents:
    """Read the agents of this home. Never raises for its file: errors are in `invalid`."""
    path = (default_home() if home is None else home) / FILE
    own: Mapping[str, Agent] = {}
    invalid: Mapping[str, str] = {}
    try:
        if text := _read(path):
            own, invalid = parse_file(text, str(path), taken=CATALOG, shipped=read_shipped())
    except UsageError as exc:
        invalid = {FILE: str(exc)}
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        invalid = {FILE: f"{path}: {reason}"}
    return KnownAgents(read_shipped(), own, invalid, str(path))


@functools.cache
def read_shipped() -> ShippedAgents:
    """Read the shipped records: one per file, named after its agent."""
    files = sorted(resources.files(__package__).joinpath("records").iterdir(), key=lambda one: one.name)
    texts = {file.name: file.read_text("utf-8") for file in files if file.name.endswith(".toml")}
    return ShippedAgents({name.removesuffix(".toml"): text for name, text in texts.items()})


def find_vouched(name: str) -> Agent | None:
    """Return our own record of this name, built-in or shipped, ignoring any user's record."""
    return CATALOG.get(name) or read_shipped().get(name)


def list_agents(home: Path, search: str) -> list[dict[str, str]]:
    """List all agents for people: the program on this PATH, the source of the record, how it was tested."""
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
    """Read the file; empty if it does not exist. A pipe or a device does not block, but is an error."""
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
