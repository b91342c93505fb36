"""The decision as settings of Claude Code, in a file of ours that a launch names. Pure module.

Commands run in Claude Code's own sandbox; it refuses to start without one. Its file tools are outside that
sandbox: rules with paths limit them. It asks no questions: what no rule allows is denied.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.agentconfig.decision import AgentMode, CodexFacts, ConfigRequest, Egress, Writes
from holdfast.agentconfig.settings import ConfigDrift, Key, flatten

FILE: Final = "holdfast-claude.json"
LAYERS: Final = (".claude/settings.json", ".claude/settings.local.json", ".mcp.json")
OWNED: Final = ("permissions", "sandbox", "enableAllProjectMcpServers")
UNSEEN: Final = (
    "that a command is really confined: it was not run; Claude Code itself tries its sandbox at every start",
    "hooks and plug-ins of your own settings: they run outside of the sandbox",
)

_READERS: Final = ("Read", "Glob", "Grep")
_STRICTER: Final = {("permissions", "deny"), ("permissions", "ask"), ("sandbox", "filesystem", "denyWrite")}
_FLAG: Final = "flagSettings"  # Claude Code's name for the layer of --settings


def render(mode: AgentMode, facts: CodexFacts, wish: ConfigRequest) -> dict[str, object]:
    """All settings that the mode needs, including defaults, so that an added value is detected."""
    allow, deny = _rules(mode, wish)
    return {
        "permissions": {
            "defaultMode": "dontAsk",
            "disableBypassPermissionsMode": "disable",
            "allow": allow,
            "deny": deny,
            "additionalDirectories": list(_roots(mode, wish)),
        },
        "sandbox": _sandbox(mode, facts, wish),
        "enableAllProjectMcpServers": False,
    }


def arguments(file: str, *, trusted: bool) -> tuple[str, ...]:
    """Options of a launch that use the file and, unless `trusted`, ignore the repository's settings."""
    return ("--settings", file, *(() if trusted else ("--setting-sources", "user", "--strict-mcp-config")))


def differences(decided: Mapping[str, object], told: Mapping[str, object]) -> list[ConfigDrift]:
    """Compare the answer to `get_settings` with the decision; a layer that forbids more is no difference."""
    now = dict(flatten(told.get("effective")))
    found = []
    for key, value in flatten(decided):
        other = now.get(key)
        if not _same(key, value, other):
            found.append(ConfigDrift(key, value, other, _origin(told.get("sources"), key)))
    return found


def _rules(mode: AgentMode, wish: ConfigRequest) -> tuple[list[str], list[str]]:
    allow, deny = ["Bash", *_READERS], []
    if mode is AgentMode.FULL:
        return [*allow, "Edit", "WebFetch", "WebSearch"], []
    if mode is AgentMode.READ_ONLY:
        deny.append("Edit")
    else:
        allow += [f"Edit({_below(root)})" for root in (wish.workspace, *_roots(mode, wish))]
        deny += [f"Edit({_below(folder)})" for folder in _guarded(wish)]
    match wish.network:
        case Egress.NONE:
            deny += ["WebFetch", "WebSearch"]
        case Egress.HOSTS:
            allow += [f"WebFetch(domain:{host})" for host in _domains(wish)]
            deny.append("WebSearch")
        case Egress.FULL:
            allow += ["WebFetch", "WebSearch"]
    return allow, deny


def _sandbox(mode: AgentMode, facts: CodexFacts, wish: ConfigRequest) -> dict[str, object]:
    on = mode is not AgentMode.FULL
    return {
        "enabled": on,
        "failIfUnavailable": on,
        "allowUnsandboxedCommands": not on,
        "excludedCommands": [],
        "enableWeakerNestedSandbox": on and facts.proc is False,
        "allowNestedUserNamespaces": False,
        "network": {
            "allowedDomains": ["*"] if wish.network is Egress.FULL or not on else _domains(wish),
            "strictAllowlist": on,
            "allowAllUnixSockets": False,
        },
        "filesystem": {
            "disabled": False,
            "allowWrite": list(_roots(mode, wish)),
            "denyWrite": [wish.workspace]
            if mode is AgentMode.READ_ONLY
            else list(_guarded(wish))
            if on
            else [],
        },
    }


def _roots(mode: AgentMode, wish: ConfigRequest) -> tuple[str, ...]:
    """The writable roots beside the workspace."""
    if mode in (AgentMode.READ_ONLY, AgentMode.FULL):
        return ()
    git = wish.git if wish.writes is Writes.GIT else ()
    outside = [folder for folder in git if not folder.startswith(f"{wish.workspace.rstrip('/')}/")]
    return (*wish.writable, *outside)


def _guarded(wish: ConfigRequest) -> tuple[str, ...]:
    """Protect git's directories; if commits were requested, only what git executes in them."""
    if wish.writes is Writes.GIT and wish.git:
        return tuple(f"{wish.git[0]}/{name}" for name in ("hooks", "config"))
    return wish.git


def _domains(wish: ConfigRequest) -> list[str]:
    """Two stars mean a host and its subdomains; Claude Code has a pattern for the subdomains only."""
    found: list[str] = []
    for host in wish.hosts:
        found += [host[3:], host[1:]] if host.startswith("**.") else [host]
    return found


def _below(path: str) -> str:
    """Two slashes begin an absolute path; one would be relative to the directory of the settings."""
    return f"/{path.rstrip('/')}/**"


def _same(key: Key, decided: object, found: object) -> bool:
    if isinstance(decided, tuple) and isinstance(found, tuple):
        return set(decided) <= set(found) if key in _STRICTER else set(decided) == set(found)
    return decided == found and isinstance(decided, bool) == isinstance(found, bool)


def _origin(sources: object, key: Key) -> str:
    """The last layer, other than ours, that sets this key."""
    named = ""
    for each in _trees(sources):
        source = str(each.get("source"))
        if source != _FLAG and any(path == key for path, _ in flatten(each.get("settings"))):
            named = source
    return named


def _trees(value: object) -> Iterable[Mapping[str, object]]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from (each for each in value if isinstance(each, Mapping))
