"""One look at a machine, as values. Pure module."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.sandbox.host.hostfacts import HostFacts
from holdfast.sandbox.plan.select import Trial, Way


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A directory for an agent's state, or for temporary files."""

    path: str
    exists: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Installed:
    """A program on the PATH. `version` is None if it does not say, `logged_in` if that cannot be told."""

    name: str
    path: str
    version: str | None = None
    places: tuple[PlaceFacts, ...] = ()
    logged_in: bool | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    free_bytes: int
    free_files: int | None  # None where the file system does not count them


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One look at this machine."""

    host: HostFacts
    trials: Mapping[Way, Trial]
    tmux: Installed | None
    agents: tuple[Installed, ...]
    codex_home: str
    temporary: PlaceFacts
    disks: tuple[Disk, ...]
    open_files: int
    processes: int | None  # None: no limit
    encoding: str
    now: float
    unlaunched: str = ""  # why no way to confine could be tried through our own launcher
    other_package: str = ""  # why another distribution of the same import name is in the way
    other_package_remedy: str = ""
