"""The executor's own Codex configuration, cut down to the keys a client asks for.

Config layers, weakest first: system, user, one per trusted project directory from the project root down to
the working directory, managed. Requirements: the system's, then those a managed configuration implies. An
ancestor directory with a root marker defines the project; it counts only if system, user or managed
configuration mark it as trusted. Values are passed on, never interpreted, and no error quotes a file: it may
hold secrets.
"""

import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.errors import OperationFailed, UsageError, from_os_error
from holdfast.wire.environment import (
    ConfigLayer,
    EnvironmentConfig,
    EnvironmentConfigReadParams,
    LayerStack,
)
from holdfast.wire.paths import uri_of

SYSTEM_DIR: Final = "/etc/codex"
MAX_CONFIG_BYTES: Final = 4 << 20  # a file larger than this is not a configuration
MAX_POINTER_BYTES: Final = 16 << 10  # a `.git` file holds one path

Table: TypeAlias = dict[str, object]
Wanted: TypeAlias = dict[str, "Wanted | None"]

# They decide which servers the agent contacts and what it runs on events; a repository must not set them.
_NOT_FOR_PROJECTS: Final = frozenset(
    {
        "apps_mcp_product_sku",
        "chatgpt_base_url",
        "experimental_realtime_webrtc_call_base_url",
        "experimental_realtime_ws_base_url",
        "model_provider",
        "model_providers",
        "notify",
        "openai_base_url",
        "otel",
        "profile",
        "profiles",
    }
)
_APPROVALS: Final = {
    "untrusted": "untrusted",
    "on-failure": "on-request",
    "on-request": "on-request",
    "never": "never",
}
_GRANULAR: Final = ("sandbox_approval", "rules", "skill_approval", "request_permissions", "mcp_elicitations")
_GRANULAR_OPTIONAL: Final = frozenset({"skill_approval", "request_permissions"})
_REVIEWERS: Final = {
    "user": ["user"],
    "auto_review": ["auto_review", "user"],
    "guardian_subagent": ["auto_review", "user"],
}
_SANDBOX_MODES: Final = {  # without read-only Codex would not run at all
    "read-only": ["read-only"],
    "workspace-write": ["read-only", "workspace-write"],
    "danger-full-access": ["read-only", "danger-full-access"],
}


@dataclass(frozen=True, slots=True)
class _Layer:
    """One file's table, and its source and path for the answer."""

    source: str
    path: str
    table: Table

    def select_keys(self, wanted: Wanted) -> list[ConfigLayer]:
        table = select(self.table, wanted)
        return (
            [ConfigLayer(self.source, uri_of(os.path.dirname(self.path)), _to_toml(table))] if table else []
        )


def read_config(
    params: EnvironmentConfigReadParams,
    *,
    environ: Mapping[str, str],
    home: str | None,
    hostname: str | None,
    system_dir: str = SYSTEM_DIR,
) -> EnvironmentConfig:
    """Return the selected keys of every layer that has some of them.

    Raises:
        UsageError: empty selectors, or a working directory of another platform.
        OperationFailed: a file is unreadable, no TOML, or has invalid settings of trust.
    """
    if not params.config_paths and not params.requirements_paths:
        raise UsageError("at least one config or requirements path is required")
    config_keys, requirement_keys = parse_wanted(params.config_paths), parse_wanted(params.requirements_paths)
    cwd = os.path.normpath(params.cwd.native())
    codex_home = find_codex_home(environ, home)

    system = _load("system ({})", os.path.join(system_dir, "config.toml"))
    user = _load("user ({})", os.path.join(codex_home, "config.toml"))
    managed = _load("legacy managed_config.toml ({})", os.path.join(system_dir, "managed_config.toml"))
    required = _load("{}", os.path.join(system_dir, "requirements.toml"))
    implied = _Layer(managed.path, managed.path, implied_requirements(managed.table))
    projects = _projects(cwd, codex_home, [system.table, user.table, managed.table])

    below = system.select_keys(config_keys)
    above = [layer for entry in (user, *projects, managed) for layer in entry.select_keys(config_keys)]
    demanded = required.select_keys(requirement_keys)
    return EnvironmentConfig(
        user_home_dir=None if home is None else uri_of(home),
        codex_home_dir=uri_of(codex_home),
        hostname=hostname,
        config=LayerStack(below + above, len(below)),
        requirements=LayerStack(demanded + implied.select_keys(requirement_keys), len(demanded)),
    )


def find_codex_home(environ: Mapping[str, str], home: str | None) -> str:
    """`CODEX_HOME`, which must be a directory, else `.codex` in the home directory, which need not exist.

    Raises:
        OperationFailed: there is no such directory, and no home directory.
    """
    if given := environ.get("CODEX_HOME"):
        if not os.path.exists(given):
            problem = "does not exist"
        elif not os.path.isdir(given):
            problem = "is not a directory"
        else:
            return os.path.realpath(given)
        raise OperationFailed(
            f'failed to find Codex home: CODEX_HOME points to "{given}", but that path {problem}'
        )
    if home is None:
        raise OperationFailed("failed to find Codex home: the user has no home directory")
    return os.path.join(home, ".codex")


def parse_wanted(paths: Iterable[Sequence[str]]) -> Wanted:
    """Parse key paths to a tree; None stands for everything below.

    Raises:
        UsageError: a path without a key.
    """
    tree: Wanted = {}
    for path in paths:
        if not path:
            raise UsageError("TOML paths must contain at least one key segment")
        branch = tree
        for key in path[:-1]:
            below = branch.setdefault(key, {})
            if below is None:
                break
            branch = below
        else:
            branch[path[-1]] = None
    return tree


def select(table: Table, keys: Wanted) -> Table:
    """The part of `table` that `keys` name, in its own order; a table without the leaf stays, empty."""
    return {
        key: select(value, keys[key] or {}) if isinstance(value, dict) and keys[key] is not None else value
        for key, value in table.items()
        if key in keys
    }


def implied_requirements(managed: Table) -> Table:
    """Convert the demands of the older managed configuration to the format of requirements.toml.

    Raises:
        OperationFailed: a demand is not understood, and must not be dropped.
    """
    demands: Table = {}
    if (approval := managed.get("approval_policy")) is not None:
        demands["allowed_approval_policies"] = [_approval(approval)]
    for key, name, known in (
        ("approvals_reviewer", "allowed_approvals_reviewers", _REVIEWERS),
        ("sandbox_mode", "allowed_sandbox_modes", _SANDBOX_MODES),
    ):
        if (value := managed.get(key)) is not None:
            if not isinstance(value, str) or value not in known:
                raise _failed(f"{key} of the managed configuration is not understood")
            demands[name] = known[value]
    return demands


def _approval(value: object) -> object:
    if isinstance(value, str) and value in _APPROVALS:
        return _APPROVALS[value]
    granular = value.get("granular") if isinstance(value, dict) else None
    if isinstance(granular, dict):
        full = dict.fromkeys(_GRANULAR_OPTIONAL, False) | granular
        if all(isinstance(full.get(key), bool) for key in _GRANULAR):
            return {"granular": {key: full[key] for key in _GRANULAR}}
    raise _failed("approval_policy of the managed configuration is not understood")


@dataclass(frozen=True, slots=True)
class _Trust:
    """Which directories may add configuration.

    A directory's own level decides, else the first of `fallbacks`.
    """

    levels: Mapping[str, bool]
    fallbacks: Sequence[str]

    def allows(self, folder: str) -> bool:
        for place in (folder, *self.fallbacks):
            for spelling in (os.path.realpath(place), place):
                if spelling in self.levels:
                    return self.levels[spelling]
        return False


def _projects(cwd: str, codex_home: str, tables: Iterable[Table]) -> Iterator[_Layer]:
    """The layers of the trusted project directories, the root's first."""
    levels, markers = _trust_settings(tables)
    root = next((folder for folder in _upwards(cwd) if _has_marker(folder, markers)), cwd)
    checkout = next((folder for folder in _upwards(cwd) if _has_marker(folder, [".git"])), None)
    main = checkout and _main_checkout(os.path.join(checkout, ".git"))
    trust = _Trust(levels, [folder for folder in (root, main or checkout) if folder])
    inside = [
        folder for folder in _upwards(cwd) if folder == root or folder.startswith(root.rstrip("/") + "/")
    ]
    own = os.path.realpath(codex_home)
    for folder in reversed(inside):
        dot_codex = os.path.join(folder, ".codex")
        if not os.path.isdir(dot_codex) or os.path.realpath(dot_codex) == own or not trust.allows(folder):
            continue
        layer = _load("project ({})", os.path.join(dot_codex, "config.toml"))
        dropped = _NOT_FOR_PROJECTS
        if checkout and main:
            # Hooks were vetted in the main checkout; a linked worktree may be on any branch.
            dropped |= {"hooks"}
        yield _Layer(layer.source, layer.path, _without(layer.table, dropped))
        if checkout and main:
            twin = os.path.normpath(os.path.join(main, os.path.relpath(folder, checkout)))
            if trust.allows(main) and trust.allows(twin):
                hooks = _load("project ({})", os.path.join(twin, ".codex", "config.toml"))
                yield _Layer(hooks.source, hooks.path, select(hooks.table, {"hooks": None}))


def _trust_settings(tables: Iterable[Table]) -> tuple[dict[str, bool], list[str]]:
    levels: dict[str, bool] = {}
    markers: list[str] = [".git"]
    for table in tables:
        listed = table.get("project_root_markers", markers)
        if not isinstance(listed, list) or not all(isinstance(marker, str) for marker in listed):
            raise _failed("project_root_markers must be an array of strings")
        markers = listed
        projects = table.get("projects", {})
        if not isinstance(projects, dict):
            raise _failed("projects must be a table")
        for path, project in projects.items():
            level = project.get("trust_level") if isinstance(project, dict) else ""
            if level not in (None, "trusted", "untrusted"):
                raise _failed("the trust_level of a project must be trusted or untrusted")
            if level is not None:
                levels[path] = level == "trusted"
    return levels, markers


def _upwards(path: str) -> Iterator[str]:
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _has_marker(folder: str, markers: Iterable[str]) -> bool:
    for marker in markers:
        path = os.path.join(folder, marker)
        # Sandboxes leave empty `.git` directories behind as mount points.
        if marker == ".git" and os.path.isdir(path):
            path = os.path.join(path, "HEAD")
        if os.path.exists(path):
            return True
    return False


def _main_checkout(dot_git: str) -> str | None:
    """The main checkout of a linked worktree, if worktree and repository refer to each other."""
    pointer = _pointer(dot_git)
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    git_dir = os.path.join(os.path.dirname(dot_git), pointer.removeprefix("gitdir:").strip())
    back, common = _pointer(os.path.join(git_dir, "gitdir")), _pointer(os.path.join(git_dir, "commondir"))
    if back is None or common is None:
        return None
    if os.path.realpath(os.path.join(git_dir, back)) != os.path.realpath(dot_git):
        return None
    folder, name = os.path.split(os.path.realpath(os.path.join(git_dir, common)))
    return folder if name == ".git" else None


def _pointer(path: str) -> str | None:
    try:
        data = read_regular(path, MAX_POINTER_BYTES)
    except OSError:
        return None
    if data is None or len(data) > MAX_POINTER_BYTES or b"\0" in data:
        return None
    return os.fsdecode(data).strip()


def _load(source: str, path: str) -> _Layer:
    """Load the file as a layer; a missing one is empty."""
    shown = os.fsencode(path).decode("utf-8", "replace")
    try:
        data = read_regular(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        data = b""
    except OSError as exc:
        raise _failed(f"{shown}: {from_os_error(exc)}") from exc
    if data is None or len(data) > MAX_CONFIG_BYTES:
        raise _failed(f"{shown} is not a file of configuration")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise _failed(f"{shown} is not valid TOML") from None
    return _Layer(source.format(shown), path, table)


def _without(table: Table, keys: frozenset[str]) -> Table:
    return {key: value for key, value in table.items() if key not in keys}


def _to_toml(table: Table) -> str:
    import tomlkit  # slow to import, and most connections never read configuration

    try:
        return tomlkit.dumps(table)
    except RecursionError:
        raise _failed("a value is nested too deeply") from None


def _failed(reason: str) -> OperationFailed:
    return OperationFailed(f"failed to load executor-local config: {reason}")


def read_regular(path: str, max_bytes: int) -> bytes | None:
    """Read at most `max_bytes + 1` bytes of the file: the extra byte shows that it is too large.

    None for a directory, FIFO, socket or device, on which this neither opens nor waits.

    Raises:
        OSError: it is missing or unreadable.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return file.read(max_bytes + 1)


def _open_without_waiting(path: str, flags: int) -> int:
    # Between the two checks the file may have been replaced by a FIFO without a writer.
    return os.open(path, flags | os.O_NONBLOCK)
