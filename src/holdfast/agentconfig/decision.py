"""What goes into the decision about an agent's sandbox, and what comes out. Pure module."""

import enum
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.agentconfig.settings import Settings

Version: TypeAlias = tuple[int, int, int]

_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?![\d.])")


class AgentName(enum.StrEnum):
    """Whom the decision is for; the value is the name of the program."""

    CODEX = "codex"
    CLAUDE = "claude"
    OPENCODE = "opencode"


OLDEST: Final[dict[AgentName, Version]] = {
    AgentName.CODEX: (0, 131, 0),  # strict configuration, permission profiles under their final names
    AgentName.CLAUDE: (2, 1, 0),  # older ones were not tried
    AgentName.OPENCODE: (1, 1, 1),  # before it, rules about tools had another form
}


class Boundary(enum.StrEnum):
    """What surrounds the agent, as the operator declared it; nothing here is ever found out."""

    NONE = "none"
    USER = "user"
    CONTAINER = "container"
    VM = "vm"


class Network(enum.StrEnum):
    """What commands may reach."""

    NONE = "none"
    HOSTS = "hosts"
    FULL = "full"


class Writes(enum.StrEnum):
    """What commands may change, beside the roots that are named."""

    NOTHING = "nothing"
    WORKSPACE = "workspace"
    GIT = "git"
    EVERYTHING = "everything"


class Mode(enum.StrEnum):
    """How the agent is confined."""

    READ_ONLY = "read-only"
    WORKSPACE = "workspace-write"
    PROFILE = "profile"
    FULL = "danger-full-access"
    NONE = "none"  # it must not be started


class Severity(enum.StrEnum):
    """How much of the wish is fulfilled."""

    OK = "ok"
    DEGRADED = "degraded"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Admin:
    """What an administrator's requirements allow; None is everything."""

    modes: tuple[str, ...] | None = None
    approvals: tuple[str, ...] | None = None
    profiles: bool = False  # a list of permission profiles is in force, and silences the older keys


@dataclass(frozen=True, slots=True)
class CodexFacts:
    """The host. Of what was tried, True is "works", False "fails" and None "not known"."""

    os: str  # "linux", "darwin", "windows", "wsl1", or another name
    version: Version | None  # of the agent
    userns: bool | None = None
    netns: bool | None = None
    proc: bool | None = None
    bubblewrap: tuple[int, int] | None = None  # the one on the PATH; None is the one Codex brings
    nested: bool = False  # inside another sandbox that allows none in it
    windows_sandbox: str | None = None
    boundary: Boundary = Boundary.NONE
    trusted: bool = False
    admin: Admin = Admin()
    home: str = ""  # where the configuration is
    temporary: tuple[str, ...] = ()  # directories that every mode but read-only can write
    agent: AgentName = AgentName.CODEX


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What the operator wants, with absolute paths. `projects` are all names of the task's root."""

    network: Network = Network.NONE
    hosts: tuple[str, ...] = ()
    writes: Writes = Writes.WORKSPACE
    roots: tuple[str, ...] = ()
    board: str | None = None
    workspace: str = ""  # where the agent works; links resolved, as in the roots
    projects: tuple[str, ...] = ()
    git: tuple[str, ...] = ()  # directories that a commit writes to, the common one first

    @property
    def writable(self) -> tuple[str, ...]:
        """The roots beside the workspace: those that are named, and the board's directory."""
        named = (*self.roots, self.board) if self.board else self.roots
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write and how to launch; of a refused one nothing may be written, and nothing launched."""

    row: str
    mode: Mode
    severity: Severity
    settings: Settings
    flags: tuple[str, ...]
    reason: str
    remedies: tuple[str, ...]
    notes: tuple[str, ...]

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "row": self.row,
            "mode": self.mode.value,
            "severity": self.severity.value,
            "settings": [{"key": list(item.key), "value": item.value} for item in self.settings.items],
            "flags": list(self.flags),
            "reason": self.reason,
            "remedies": list(self.remedies),
            "notes": list(self.notes),
        }


def parse_version(text: str) -> Version | None:
    """The first version in what a program says about itself.

    None if there is none, which is never a reason to allow more.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found[1]), int(found[2]), int(found[3])
