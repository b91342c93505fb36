"""Decide which sandbox the agent gets here: the first matching row of a table decides. Pure module.

Every row with full access requires a container or a virtual machine that the operator declared. An unknown
fact (a version, a probe that could not run) never allows more than if it were known to work: the agent's own
sandbox is requested, and fails closed where it is not available.
"""

import enum
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, TypeAlias

from holdfast.agentconfig.settings import (
    PROFILE,
    Key,
    Setting,
    Settings,
    Value,
    render_key,
    render_value,
    settings,
)

Version: TypeAlias = tuple[int, int, int]

_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?![\d.])")
RETRY_SWITCH: Final[Version] = (0, 148, 0)  # older versions do not know this key, and refuse it when strict
_WORKSPACE: Final = "sandbox_workspace_write"
_SANDBOX_KEYS: Final = ("sandbox_mode", "default_permissions", _WORKSPACE, "approval_policy")
_GIT_GUARDED: Final = ("hooks", "config")  # git executes these, also when the supervisor runs it
PROC_TEXT_CHANGED: Final = (0, 12)  # from this one on Codex does not recognise the error and does not retry

_ASSERT: Final = "see what is in force before the first task: holdfast config {agent} check"
_CONFINE: Final = (
    "confine the whole agent, by what really denies: holdfast exec --network on --allow-write "
    "~/.local/share/opencode --allow-write ~/.local/state/opencode --allow-write ~/.cache/opencode "
    "-- opencode run ..."
)
_DECLARE: Final = (
    "or run the agent in a container or virtual machine without host mounts and without the socket of a "
    "container daemon, and declare it: --boundary container"
)
_HOST: Final = "holdfast doctor says what stands in the way of user namespaces, and what to type"
_BROKER: Final = (
    "the worker can write anything into the board's directory, its database too: it can change the tasks of "
    "others; a broker that takes single actions from it would let it change its own card only"
)
_READABLE: Final = (
    "commands can read everything that this user can read, and with network it can leave: no secret is safe "
    "from them"
)
_ONLY_OUTER: Final = (
    "nothing but the boundary that was declared protects anything: no host mounts, no daemon's socket, a "
    "user and an egress policy of its own"
)
_PROXY: Final = (
    "traffic goes through a local proxy of the agent: a program that ignores proxy variables has none"
)
_HOOKS: Final = "hooks and configuration of the repository stay read-only: your own git would run them"


class AgentName(enum.StrEnum):
    """The agent that the decision is for; the value is the name of its program."""

    CODEX = "codex"
    CLAUDE = "claude"
    OPENCODE = "opencode"


OLDEST: Final[dict[AgentName, Version]] = {
    AgentName.CODEX: (0, 131, 0),  # strict configuration, permission profiles under their final names
    AgentName.CLAUDE: (2, 1, 0),  # older versions were not tested
    AgentName.OPENCODE: (1, 1, 1),  # older versions have another format of rules about tools
}


class Boundary(enum.StrEnum):
    """What surrounds the agent, as declared by the operator; it is never detected."""

    NONE = "none"
    USER = "user"
    CONTAINER = "container"
    VM = "vm"


class Egress(enum.StrEnum):
    """What commands may reach."""

    NONE = "none"
    HOSTS = "hosts"
    FULL = "full"


class Writes(enum.StrEnum):
    """What commands may change, besides the named roots."""

    NOTHING = "nothing"
    WORKSPACE = "workspace"
    GIT = "git"
    EVERYTHING = "everything"


class AgentMode(enum.StrEnum):
    """How the agent is confined."""

    READ_ONLY = "read-only"
    WORKSPACE = "workspace-write"
    PROFILE = "profile"
    FULL = "danger-full-access"
    NONE = "none"  # it must not be started


class Severity(enum.StrEnum):
    """How far the request is fulfilled."""

    OK = "ok"
    DEGRADED = "degraded"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Admin:
    """What an administrator's requirements allow; None means everything."""

    modes: tuple[str, ...] | None = None
    approvals: tuple[str, ...] | None = None
    profiles: bool = False  # a list of permission profiles is in force, and overrides the older keys


@dataclass(frozen=True, slots=True)
class CodexFacts:
    """Facts about the host. For probes True is "works", False "fails" and None "not known"."""

    os: str  # "linux", "darwin", "windows", "wsl1", or another name
    version: Version | None  # of the agent
    userns: bool | None = None
    netns: bool | None = None
    proc: bool | None = None
    bubblewrap: tuple[int, int] | None = None  # the one on the PATH; None is Codex's bundled one
    nested: bool = False  # inside another sandbox that forbids nested ones
    windows_sandbox: str | None = None
    boundary: Boundary = Boundary.NONE
    trusted: bool = False
    admin: Admin = Admin()
    home: str = ""  # where the configuration is
    temporary: tuple[str, ...] = ()  # directories that every mode but read-only can write
    agent: AgentName = AgentName.CODEX


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The operator's request, with absolute paths. `projects` are all names of the task's root."""

    network: Egress = Egress.NONE
    hosts: tuple[str, ...] = ()
    writes: Writes = Writes.WORKSPACE
    roots: tuple[str, ...] = ()
    board: str | None = None
    workspace: str = ""  # where the agent works; with links resolved, as in the roots
    projects: tuple[str, ...] = ()
    git: tuple[str, ...] = ()  # directories that a commit writes to, the common one first

    @property
    def writable(self) -> tuple[str, ...]:
        """The roots beside the workspace: the named ones, and the board's directory."""
        named = (*self.roots, self.board) if self.board else self.roots
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class ConfigDecision:
    """What to write and how to launch; after a refusal nothing may be written or launched."""

    row: str
    mode: AgentMode
    severity: Severity
    settings: Settings
    flags: tuple[str, ...]
    reason: str
    remedies: tuple[str, ...]
    notes: tuple[str, ...]

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self) | {"settings": [asdict(item) for item in self.settings.items]}


def parse_version(text: str) -> Version | None:
    """The first version number in a program's output.

    None if there is none; an unknown version never allows more.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found[1]), int(found[2]), int(found[3])


def choose_settings(mode: AgentMode, facts: CodexFacts, wish: ConfigRequest) -> Settings:
    """Every key that this mode needs, for this host and this request."""
    found: dict[Key, Value] = dict(_SANDBOX[mode](wish))
    found["approval_policy",] = choose_approval(facts)
    found["check_for_update_on_startup",] = False
    found["features", "memories"] = False
    found["features", "multi_agent"] = False
    if facts.version is None or facts.version >= RETRY_SWITCH:
        found["features", "unbounded_connection_retries"] = False
    found["shell_environment_policy", "ignore_default_excludes"] = False
    level = "trusted" if facts.trusted else "untrusted"
    for project in wish.projects:
        found["projects", project, "trust_level"] = level
    return settings(Setting(key, value) for key, value in found.items())


def choose_approval(facts: CodexFacts) -> str:
    """Never, because no user is there to answer, unless an administrator forbids that policy."""
    allowed = facts.admin.approvals
    return "never" if allowed is None or "never" in allowed else "on-request"


def render_flags(mode: AgentMode, decided: Settings) -> tuple[str, ...]:
    """Options for `codex exec` that enforce the same decision against a layer above the file."""
    found: list[str] = [] if mode is AgentMode.PROFILE else ["-s", mode.value]
    for item in decided.items:
        if item.key[0] in _SANDBOX_KEYS and item.key != ("sandbox_mode",):
            found += ["-c", f"{render_key(item.key)}={render_value(item.value)}"]
    return (*found, "--strict-config")


def _read_only(_wish: ConfigRequest) -> dict[Key, Value]:
    return {("sandbox_mode",): AgentMode.READ_ONLY.value}


def _full(_wish: ConfigRequest) -> dict[Key, Value]:
    return {("sandbox_mode",): AgentMode.FULL.value}


def _workspace(wish: ConfigRequest) -> dict[Key, Value]:
    """All four keys, so that a layer that changes one of them is detected."""
    return {
        ("sandbox_mode",): AgentMode.WORKSPACE.value,
        (_WORKSPACE, "network_access"): wish.network is Egress.FULL,
        (_WORKSPACE, "writable_roots"): wish.writable,
        (_WORKSPACE, "exclude_slash_tmp"): False,
        (_WORKSPACE, "exclude_tmpdir_env_var"): False,
    }


def _profile(wish: ConfigRequest) -> dict[Key, Value]:
    ours = ("permissions", PROFILE)
    found: dict[Key, Value] = {
        ("default_permissions",): PROFILE,
        (*ours, "extends"): ":workspace",
        (*ours, "network", "enabled"): wish.network is not Egress.NONE,
    }
    if wish.network is Egress.HOSTS:
        found["features", "network_proxy"] = True
        found |= {(*ours, "network", "domains", host): "allow" for host in wish.hosts}
    found |= {(*ours, "filesystem", root): "write" for root in wish.writable}
    if wish.writes is Writes.GIT and wish.git:
        found |= {(*ours, "filesystem", folder): "write" for folder in wish.git}
        found |= {(*ours, "filesystem", f"{wish.git[0]}/{name}"): "read" for name in _GIT_GUARDED}
    return found


_SANDBOX: Final = {
    AgentMode.READ_ONLY: _read_only,
    AgentMode.WORKSPACE: _workspace,
    AgentMode.PROFILE: _profile,
    AgentMode.FULL: _full,
}


class MatrixCase(NamedTuple):
    facts: CodexFacts
    wish: ConfigRequest


class MatrixCondition(NamedTuple):
    """A column of the table: its text, and its condition."""

    text: str
    holds: Callable[[MatrixCase], bool]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One line of the table. All of `when` must hold."""

    id: str
    when: tuple[MatrixCondition, ...]
    mode: AgentMode
    severity: Severity
    reason: str
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def inside(path: str, root: str) -> bool:
    """Whether `path` is this root or below it, by name."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def _exposed(case: MatrixCase) -> bool:
    """Whether a command can write the configuration. Codex itself protects `.codex` directly below a root."""
    home = case.facts.home
    roots = [root for root in (*case.wish.writable, case.wish.workspace, *case.facts.temporary) if root]
    if case.facts.agent is AgentName.CODEX:
        roots = [root for root in roots if home != f"{root.rstrip('/')}/.codex"]
    return any(inside(home, root) for root in roots)


def _blocked(case: MatrixCase) -> bool:
    facts = case.facts
    if facts.agent is AgentName.OPENCODE:
        return False
    newer = facts.bubblewrap is not None and facts.bubblewrap >= PROC_TEXT_CHANGED
    silent = facts.proc is False and newer and facts.agent is AgentName.CODEX
    return facts.os not in ("linux", "darwin", "windows") or facts.nested or (_namespaced(case) and silent)


def _namespaced(case: MatrixCase) -> bool:
    """Whether the agent's sandbox uses namespaces. OpenCode has no sandbox at all."""
    return case.facts.os == "linux" and case.facts.agent is not AgentName.OPENCODE


def _windows(case: MatrixCase) -> bool:
    return case.facts.os == "windows" and case.facts.agent is AgentName.CODEX


def _allows(mode: AgentMode) -> Callable[[MatrixCase], bool]:
    def holds(case: MatrixCase) -> bool:
        allowed = case.facts.admin.modes
        return allowed is None or mode.value in allowed

    return holds


def _network(*wanted: Egress) -> MatrixCondition:
    text = "network " + " or ".join(wanted)
    return MatrixCondition(text, lambda case: case.wish.network in wanted)


def _writes(wanted: Writes) -> MatrixCondition:
    return MatrixCondition(f"writes {wanted}", lambda case: case.wish.writes is wanted)


TOO_OLD: Final = MatrixCondition(
    "older than " + ", ".join(f"{agent} {'.'.join(map(str, version))}" for agent, version in OLDEST.items()),
    lambda case: case.facts.version is not None and case.facts.version < OLDEST[case.facts.agent],
)
CODEX: Final = MatrixCondition("codex", lambda case: case.facts.agent is AgentName.CODEX)
CLAUDE: Final = MatrixCondition("claude", lambda case: case.facts.agent is AgentName.CLAUDE)
UNCONFINED: Final = MatrixCondition("opencode", lambda case: case.facts.agent is AgentName.OPENCODE)
EXPOSED: Final = MatrixCondition("home in a writable directory", _exposed)
ENCLOSED: Final = MatrixCondition(
    "boundary container or vm", lambda case: case.facts.boundary in (Boundary.CONTAINER, Boundary.VM)
)
FULL_ALLOWED: Final = MatrixCondition("administrator allows full access", _allows(AgentMode.FULL))
NO_WORKSPACE: Final = MatrixCondition(
    "administrator does not allow workspace-write, and something is to be written",
    lambda case: case.wish.writes is not Writes.NOTHING and not _allows(AgentMode.WORKSPACE)(case),
)
READ_ONLY_ALLOWED: Final = MatrixCondition("administrator allows read-only", _allows(AgentMode.READ_ONLY))
NO_READ_ONLY: Final = MatrixCondition(
    "administrator does not allow read-only", lambda case: not _allows(AgentMode.READ_ONLY)(case)
)
PROFILES_FORCED: Final = MatrixCondition(
    "administrator lists permission profiles", lambda case: case.facts.admin.profiles
)
UNSUPPORTED: Final = MatrixCondition("no sandbox in this place (WSL 1, nested, another system)", _blocked)
NO_USERNS: Final = MatrixCondition(
    "Linux, user namespaces fail", lambda case: _namespaced(case) and case.facts.userns is False
)
NO_NETNS: Final = MatrixCondition(
    "Linux, network namespaces fail", lambda case: _namespaced(case) and case.facts.netns is False
)
WINDOWS_OFF: Final = MatrixCondition(
    "Windows, no sandbox set", lambda case: _windows(case) and case.facts.windows_sandbox is None
)
WINDOWS_ODD: Final = MatrixCondition(
    "Windows, unknown sandbox set",
    lambda case: _windows(case) and case.facts.windows_sandbox not in (None, "elevated", "unelevated"),
)
UNSEEN: Final = MatrixCondition(
    "version or probes not known",
    lambda case: (
        case.facts.version is None
        or (_namespaced(case) and None in (case.facts.userns, case.facts.netns))
        or (case.facts.agent is AgentName.CLAUDE and case.facts.os == "windows")
    ),
)

_UPGRADE: Final = (
    "{install}, or the newest version by whatever else installed it",
    "or have it confined by Holdfast, which needs none of these settings: holdfast worker run {agent}",
)
PACKAGES: Final[dict[AgentName, str]] = {
    AgentName.CODEX: "@openai/codex",
    AgentName.CLAUDE: "@anthropic-ai/claude-code",
    AgentName.OPENCODE: "opencode-ai",
}
_FORCED: Final = "no sandbox of the agent can work here; the boundary that was declared is all there is"
_REFUSED_HERE: Final = "no sandbox of the agent can work here, and no container or vm is declared around it"

MATRIX: Final = (
    MatrixRow(
        "too-old", (TOO_OLD,), AgentMode.NONE, Severity.REFUSED,
        "a version this old does not have, or does not check, the settings that are needed", _UPGRADE,
    ),
    MatrixRow(
        "home-exposed", (EXPOSED,), AgentMode.NONE, Severity.REFUSED,
        "a command could write the configuration that confines the next one",
        ("put the home outside of the workspace, of /tmp and $TMPDIR and of every writable root",),
    ),
    MatrixRow(
        "everything-enclosed", (_writes(Writes.EVERYTHING), ENCLOSED, FULL_ALLOWED), AgentMode.FULL,
        Severity.OK, "full access was asked for, inside a boundary that was declared", notes=(_ONLY_OUTER,),
    ),
    MatrixRow(
        "everything", (_writes(Writes.EVERYTHING),), AgentMode.NONE, Severity.REFUSED,
        "full access needs a container or vm that is declared, and an administrator who allows it",
        ("leave out --writes everything and name what has to be writable: --writable PATH", _DECLARE),
    ),
    MatrixRow(
        "profiles-forced", (PROFILES_FORCED, _network(Egress.FULL, Egress.HOSTS)), AgentMode.NONE,
        Severity.REFUSED,
        "the administrator's list of profiles would take the network away without a word",
        ("ask for a profile with network in requirements.toml, or use --network none",),
    ),
    MatrixRow(
        "nothing-forbidden", (_writes(Writes.NOTHING), NO_READ_ONLY), AgentMode.NONE, Severity.REFUSED,
        "the administrator does not allow what was asked for", ("ask for read-only in requirements.toml",),
    ),
    MatrixRow(
        "nothing-online", (CODEX, _writes(Writes.NOTHING), _network(Egress.FULL, Egress.HOSTS)),
        AgentMode.NONE, Severity.REFUSED, "Codex has no network in read-only mode, whatever the file says",
        ("use --network none, or --writes workspace",),
    ),
    MatrixRow(
        "unsupported-enclosed", (UNSUPPORTED, ENCLOSED, FULL_ALLOWED), AgentMode.FULL, Severity.DEGRADED,
        _FORCED, (_HOST,), (_ONLY_OUTER,),
    ),
    MatrixRow(
        "unsupported", (UNSUPPORTED,), AgentMode.NONE, Severity.REFUSED, _REFUSED_HERE, (_HOST, _DECLARE),
    ),
    MatrixRow("windows-odd", (WINDOWS_ODD,), AgentMode.NONE, Severity.REFUSED,
        "windows.sandbox has an unknown value", ('set windows.sandbox to "elevated"',)),
    MatrixRow(
        "windows-off-enclosed", (WINDOWS_OFF, ENCLOSED, FULL_ALLOWED), AgentMode.FULL, Severity.DEGRADED,
        "without windows.sandbox Codex refuses every change", ('set windows.sandbox to "elevated"',),
        (_ONLY_OUTER,),
    ),
    MatrixRow(
        "windows-off", (WINDOWS_OFF,), AgentMode.NONE, Severity.REFUSED,
        "without windows.sandbox Codex refuses every change",
        ('set windows.sandbox to "elevated"', _DECLARE),
    ),
    MatrixRow(
        "no-userns-enclosed", (NO_USERNS, ENCLOSED, FULL_ALLOWED), AgentMode.FULL, Severity.DEGRADED,
        _FORCED, (_HOST,), (_ONLY_OUTER,),
    ),
    MatrixRow("no-userns", (NO_USERNS,), AgentMode.NONE, Severity.REFUSED, _REFUSED_HERE, (_HOST, _DECLARE)),
    MatrixRow(
        "no-netns", (NO_NETNS, _network(Egress.NONE, Egress.HOSTS)), AgentMode.NONE, Severity.REFUSED,
        "every mode without the host's network needs a network namespace, and this host gives none",
        (_HOST, "or use --network full, where a boundary of yours limits the network"),
    ),
    MatrixRow(
        "no-netns-proxied", (NO_NETNS, CLAUDE), AgentMode.NONE, Severity.REFUSED,
        "the sandbox of Claude Code always needs a network namespace, and this host gives none", (_HOST,),
    ),
    MatrixRow(
        "profiles-forced-offline", (PROFILES_FORCED,), AgentMode.WORKSPACE, Severity.DEGRADED,
        "the administrator's profile decides what can be written, not this file", (_ASSERT,),
    ),
    MatrixRow(
        "admin-read-only", (NO_WORKSPACE, READ_ONLY_ALLOWED, _network(Egress.NONE)),
        AgentMode.READ_ONLY, Severity.DEGRADED,
        "the administrator allows no more than read-only", ("ask for workspace-write in requirements.toml",),
    ),
    MatrixRow(
        "admin-forbids", (NO_WORKSPACE,), AgentMode.NONE, Severity.REFUSED,
        "the administrator allows no mode that does what was asked for",
        ("ask for workspace-write in requirements.toml, or use --network none",),
    ),
    MatrixRow(
        "nothing-unconfined", (_writes(Writes.NOTHING), UNCONFINED), AgentMode.READ_ONLY, Severity.DEGRADED,
        "OpenCode has no sandbox: its rules allow no change and no command, and nothing else enforces that",
        (_CONFINE, _ASSERT),
    ),
    MatrixRow(
        "unconfined", (UNCONFINED,), AgentMode.WORKSPACE, Severity.DEGRADED,
        "OpenCode has no sandbox: its rules are about tools, and a command does all that this user can do",
        (_CONFINE, _ASSERT),
    ),
    MatrixRow(
        "nothing-unseen", (_writes(Writes.NOTHING), UNSEEN), AgentMode.READ_ONLY, Severity.DEGRADED,
        "read-only, as asked for; whether it works here is not known", (_ASSERT,),
    ),
    MatrixRow(
        "nothing", (_writes(Writes.NOTHING),), AgentMode.READ_ONLY, Severity.OK, "read-only, as asked for",
        (_ASSERT,),
    ),
    MatrixRow(
        "hosts-unseen", (_network(Egress.HOSTS), UNSEEN), AgentMode.PROFILE, Severity.DEGRADED,
        "a profile with a list of hosts; whether it works here is not known", (_ASSERT,), (_PROXY,),
    ),
    MatrixRow(
        "hosts", (_network(Egress.HOSTS),), AgentMode.PROFILE, Severity.OK,
        "a list of hosts needs a permission profile", (_ASSERT,), (_PROXY,),
    ),
    MatrixRow(
        "git-unseen", (_writes(Writes.GIT), UNSEEN), AgentMode.PROFILE, Severity.DEGRADED,
        "a profile that can commit; whether it works here is not known", (_ASSERT,), (_HOOKS,),
    ),
    MatrixRow(
        "git", (_writes(Writes.GIT),), AgentMode.PROFILE, Severity.OK,
        "a writable .git with guarded hooks needs a permission profile", (_ASSERT,), (_HOOKS,),
    ),
    MatrixRow(
        "workspace-unseen", (UNSEEN,), AgentMode.WORKSPACE, Severity.DEGRADED,
        "workspace-write, as asked for; whether it works here is not known", (_ASSERT,),
    ),
    MatrixRow("workspace", (), AgentMode.WORKSPACE, Severity.OK, "workspace-write, as asked for", (_ASSERT,)),
)  # fmt: skip


def decide(facts: CodexFacts, wish: ConfigRequest) -> ConfigDecision:
    """The decision of the first row that matches; the last one always does."""
    case = MatrixCase(facts, wish)
    row = next(row for row in MATRIX if all(condition.holds(case) for condition in row.when))
    install = f"npm install -g {PACKAGES[facts.agent]}@latest"
    remedies = tuple(remedy.format(agent=facts.agent, install=install) for remedy in row.remedies)
    if row.mode is AgentMode.NONE:
        return ConfigDecision(
            row.id, row.mode, row.severity, Settings(()), (), row.reason, remedies, row.notes
        )
    codex = facts.agent is AgentName.CODEX
    decided = choose_settings(row.mode, facts, wish) if codex else Settings(())
    return ConfigDecision(
        row.id,
        row.mode,
        row.severity,
        decided,
        render_flags(row.mode, decided) if codex else (),
        row.reason,
        remedies,
        (*row.notes, *_notes(row.mode, facts, wish)),
    )


def _notes(mode: AgentMode, facts: CodexFacts, wish: ConfigRequest) -> list[str]:
    notes = []
    if wish.board:
        notes.append(_BROKER)
    if wish.network is not Egress.NONE or mode is AgentMode.FULL:
        notes.append(_READABLE)
    if facts.trusted:
        notes.append(
            "the repository is trusted: what it brings for the agent counts too, and may be above this file"
        )
    if _namespaced(MatrixCase(facts, wish)) and facts.proc is False and mode is not AgentMode.FULL:
        notes.append("no /proc of its own can be mounted here: commands see the processes of the host")
    if choose_approval(facts) != "never":
        notes.append("the administrator requires a person's approval, and nobody is there to give it")
    return notes
