"""The decision as rules of OpenCode, in a file of ours that a launch passes on. Pure module.

OpenCode has no sandbox. It checks its rules before it uses a tool; it does not restrict what an allowed
command then does. The last matching rule counts. Layers are merged key by key, and a key that another layer
has keeps its place there. So the rules are written for each agent too: those come last.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from holdfast.agentconfig.decision import AgentMode, ConfigDecision, ConfigRequest, Egress
from holdfast.agentconfig.settings import ConfigDrift

FILE: Final = "holdfast-opencode.json"
LAYERS: Final = ("opencode.json", "opencode.jsonc", ".opencode")
OWNED: Final = ("permission", "agent", "default_agent", "share", "autoupdate")
AGENTS: Final = ("build", "general")  # the main agent, and its subagent; other agents may do less
UNSEEN: Final = (
    "that a command is confined: it is not, OpenCode has no sandbox; holdfast exec is one",
    "what an organisation's server says at the login, and plug-ins of your own: they run unconfined",
)

_ALLOW: Final = "allow"
_DENY: Final = "deny"
_READERS: Final = ("read", "glob", "grep", "list", "lsp", "todowrite", "todoread", "skill")
_PLAIN: Final = ("share", "autoupdate", "default_agent")

Rules: TypeAlias = Mapping[str, str | Mapping[str, str]]


def render(mode: AgentMode, wish: ConfigRequest) -> dict[str, object]:
    """All settings that the mode needs. A rule allows or denies, because no user is there to ask."""
    rules = _rules(mode, wish)
    return {
        "permission": rules,
        "agent": {name: {"permission": rules} for name in AGENTS},
        "default_agent": AGENTS[0],
        "share": "disabled",
        "autoupdate": False,
    }


def environment(text: str, *, trusted: bool) -> dict[str, str]:
    """Variables of a launch that put this text above all layers but an administrator's."""
    closed = {} if trusted else {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
    return {**closed, "OPENCODE_CONFIG_CONTENT": text}


def notes(decision: ConfigDecision, wish: ConfigRequest) -> tuple[str, ...]:
    """Limits that the rules cannot express."""
    found = []
    if decision.mode is AgentMode.WORKSPACE and wish.network is not Egress.FULL:
        found.append("commands have the network of this user: the rules close the tools of OpenCode only")
    if decision.mode is not AgentMode.FULL and wish.network is Egress.HOSTS:
        found.append("its web tool cannot be limited to hosts, and is closed")
    return tuple(found)


def differences(
    decided: Mapping[str, object], config: Mapping[str, object], build: Mapping[str, object]
) -> list[ConfigDrift]:
    """Where the resolved configuration differs from the decision, or the first agent's last rules do."""
    found = [
        ConfigDrift((key,), decided[key], config.get(key), "")
        for key in _PLAIN
        if decided[key] != config.get(key)
    ]
    wanted = flat(decided["permission"])
    for name in AGENTS:
        told = flat(_below(config, "agent", name, "permission"))
        last = told if name != AGENTS[0] or told != wanted else _tail(build.get("permission"), len(wanted))
        if last != wanted:
            found.append(ConfigDrift(("agent", name, "permission"), _lines(wanted), _lines(last), ""))
    return found


def flat(rules: object) -> list[tuple[str, str, str]]:
    """Rules as OpenCode lists them: tool, pattern, action."""
    found = []
    for tool, rule in rules.items() if isinstance(rules, Mapping) else ():
        patterns = rule.items() if isinstance(rule, Mapping) else (("*", rule),)
        found += [(str(tool), str(pattern), str(action)) for pattern, action in patterns]
    return found


def _rules(mode: AgentMode, wish: ConfigRequest) -> Rules:
    if mode is AgentMode.FULL:
        return {"*": _ALLOW, "external_directory": _ALLOW, "question": _DENY}
    change = _DENY if mode is AgentMode.READ_ONLY else _ALLOW
    roots = () if mode is AgentMode.READ_ONLY else wish.writable
    web = _ALLOW if wish.network is Egress.FULL else _DENY
    return {
        "*": _DENY,
        **dict.fromkeys(_READERS, _ALLOW),
        "edit": change,
        "bash": change,
        "task": {"*": _DENY, "general": _ALLOW, "explore": _ALLOW},
        "webfetch": web,
        "websearch": web,
        "external_directory": {"*": _DENY} | {f"{root.rstrip('/')}/*": _ALLOW for root in roots},
    }


def _tail(rules: object, length: int) -> list[tuple[str, str, str]]:
    """The last rules of an agent, without the one that OpenCode adds for its own directory."""
    listed = rules if isinstance(rules, list) else []
    known = [
        (str(rule.get("permission")), str(rule.get("pattern")), str(rule.get("action")))
        for rule in listed
        if isinstance(rule, Mapping)
    ]
    if known and known[-1][0] == "external_directory" and known[-1][1].endswith("/opencode/tool-output/*"):
        known = known[:-1]
    return known[-length:]


def _below(tree: object, *names: str) -> object:
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _lines(rules: list[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(f"{tool} {pattern}: {action}" for tool, pattern, action in rules)
