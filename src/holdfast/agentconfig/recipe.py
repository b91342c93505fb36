"""A mode as keys and launch flags of the Codex CLI. Pure module."""

from typing import Final

from holdfast.agentconfig import render
from holdfast.agentconfig.decision import CodexFacts, ConfigRequest, Mode, Network, Version, Writes
from holdfast.agentconfig.settings import PROFILE, Key, Setting, Settings, Value, settings

RETRY_SWITCH: Final[Version] = (0, 148, 0)  # older ones know no such key, and refuse it when strict
_WORKSPACE: Final = "sandbox_workspace_write"
_SANDBOX_KEYS: Final = ("sandbox_mode", "default_permissions", _WORKSPACE, "approval_policy")
_GIT_GUARDED: Final = ("hooks", "config")  # what the supervisor's own git would run


def write(mode: Mode, facts: CodexFacts, wish: ConfigRequest) -> Settings:
    """Every key that this mode needs, for this host and this wish."""
    found: dict[Key, Value] = dict(_SANDBOX[mode](wish))
    found["approval_policy",] = approval(facts)
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


def approval(facts: CodexFacts) -> str:
    """Nobody is there to ask, unless an administrator wants somebody to be."""
    allowed = facts.admin.approvals
    return "never" if allowed is None or "never" in allowed else "on-request"


def flags(mode: Mode, decided: Settings) -> tuple[str, ...]:
    """Options for `codex exec` that pin the same decision against a layer above the file."""
    found: list[str] = [] if mode is Mode.PROFILE else ["-s", mode.value]
    for item in decided.items:
        if item.key[0] in _SANDBOX_KEYS and item.key != ("sandbox_mode",):
            found += ["-c", f"{render.key(item.key)}={render.value(item.value)}"]
    return (*found, "--strict-config")


def _read_only(_wish: ConfigRequest) -> dict[Key, Value]:
    return {("sandbox_mode",): Mode.READ_ONLY.value}


def _full(_wish: ConfigRequest) -> dict[Key, Value]:
    return {("sandbox_mode",): Mode.FULL.value}


def _workspace(wish: ConfigRequest) -> dict[Key, Value]:
    """All four keys, so that a layer that adds one differs from us."""
    return {
        ("sandbox_mode",): Mode.WORKSPACE.value,
        (_WORKSPACE, "network_access"): wish.network is Network.FULL,
        (_WORKSPACE, "writable_roots"): wish.writable,
        (_WORKSPACE, "exclude_slash_tmp"): False,
        (_WORKSPACE, "exclude_tmpdir_env_var"): False,
    }


def _profile(wish: ConfigRequest) -> dict[Key, Value]:
    ours = ("permissions", PROFILE)
    found: dict[Key, Value] = {
        ("default_permissions",): PROFILE,
        (*ours, "extends"): ":workspace",
        (*ours, "network", "enabled"): wish.network is not Network.NONE,
    }
    if wish.network is Network.HOSTS:
        found["features", "network_proxy"] = True
        found |= {(*ours, "network", "domains", host): "allow" for host in wish.hosts}
    found |= {(*ours, "filesystem", root): "write" for root in wish.writable}
    if wish.writes is Writes.GIT and wish.git:
        found |= {(*ours, "filesystem", folder): "write" for folder in wish.git}
        found |= {(*ours, "filesystem", f"{wish.git[0]}/{name}"): "read" for name in _GIT_GUARDED}
    return found


_SANDBOX: Final = {
    Mode.READ_ONLY: _read_only,
    Mode.WORKSPACE: _workspace,
    Mode.PROFILE: _profile,
    Mode.FULL: _full,
}
