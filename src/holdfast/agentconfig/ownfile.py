"""One order to configure an agent that takes a file of ours at its launch: decide, show, write, compare.

The file is wholly ours. The agent's own files are only read, by the agent. A file of that name with content
that cannot be ours is never overwritten.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.agentconfig import claude, clients, files, host, opencode
from holdfast.agentconfig.decision import (
    Admin,
    AgentName,
    CodexFacts,
    ConfigDecision,
    ConfigRequest,
    Severity,
    decide,
)
from holdfast.agentconfig.order import EditPlan, Order, build_request, ensure_allowed, is_trusted
from holdfast.agentconfig.settings import ConfigDrift, Settings
from holdfast.errors import InvalidRequest, NotFound

_PATTERN: Final = frozenset("*?[](){}!\\\n")


@dataclass(frozen=True, slots=True)
class Client:
    """The differences between the agents."""

    agent: AgentName
    file: str
    owned: tuple[str, ...]  # the top-level keys that we ever write
    layers: tuple[str, ...]  # the repository's own configuration files
    unseen: tuple[str, ...]  # what a check cannot verify
    render: Callable[[ConfigDecision, CodexFacts, ConfigRequest], dict[str, object]]
    launch: Callable[[Path, bool], str]
    notes: Callable[[ConfigDecision, ConfigRequest], tuple[str, ...]]
    compare: Callable[[Path, Path, Path, bool, Mapping[str, object]], list[ConfigDrift]]


def plan(client: Client, order: Order) -> EditPlan:
    """What `apply` would do now.

    Raises:
        NotFound: the home, the directory or a root does not exist.
        UsageError: the request is invalid.
        InvalidRequest: the file has content that cannot be ours, or a path would be read as a pattern.
    """
    found = host.find_project(order.cwd, client.layers)
    wish = build_request(order, found)
    _ensure_plain(client, wish)
    text = files.read(order.home, follow=not order.task, name=client.file)
    _ensure_ours(client, text)
    binary = clients.find_if_any(client.agent)
    trusted = is_trusted(order, found)
    facts = host.gather(
        text="",
        home=order.home,
        version=clients.version(binary) if binary else None,
        admin=Admin(),
        boundary=order.boundary,
        trusted=trusted,
        agent=client.agent,
    )
    decision = decide(facts, wish)
    path = order.home / client.file
    if decision.severity is Severity.REFUSED:
        return EditPlan(path, decision, text, text, Settings(()), (), found.layers, binary)
    decision = replace(decision, notes=(*decision.notes, *client.notes(decision, wish)))
    after = json.dumps(client.render(decision, facts, wish), indent=2, ensure_ascii=False) + "\n"
    launch = client.launch(path, trusted)
    return EditPlan(path, decision, text, after, Settings(()), (), found.layers, binary, launch)


def apply(client: Client, order: Order) -> EditPlan:
    """Decide and write.

    Raises:
        SandboxUnavailable: the decision is to refuse; nothing was written.
        NotFound, UsageError, InvalidRequest: as `plan`.
        OperationFailed: writing failed. Nothing may be launched with the present file.
    """
    planned = plan(client, order)
    ensure_allowed(planned.decision)

    def change(text: str) -> str:
        _ensure_ours(client, text)
        return planned.after

    edited = files.edit(order.home, change, follow=not order.task, name=client.file)
    return replace(planned, before=edited.before)


def check(client: Client, order: Order) -> tuple[EditPlan, list[ConfigDrift]]:
    """Compare the values in force in a launch as planned with those of the decision.

    Raises:
        NotFound: as `plan`, or the agent is not installed, or the file was not written.
        SandboxUnavailable: the decision is to refuse, or the agent does not start without its sandbox.
        InvalidRequest, OperationFailed: the agent refuses the configuration, or does not answer.
    """
    binary = clients.find(client.agent)
    planned = plan(client, order)
    ensure_allowed(planned.decision)
    if not planned.before:
        raise NotFound(
            f"{planned.path} is not there",
            remedy=f"holdfast config {client.agent} apply, with the same options",
        )
    trusted = is_trusted(order, host.find_project(order.cwd))
    decided = json.loads(planned.after)
    return planned, client.compare(binary, order.cwd, planned.path, trusted, decided)


def remove(client: Client, order: Order) -> files.Edited:
    """Delete the file.

    Raises:
        InvalidRequest: it has content that cannot be ours.
        NotFound, OperationFailed: the home does not exist, or the file could not be deleted.
    """
    return files.delete(
        order.home, client.file, lambda text: _ensure_ours(client, text), follow=not order.task
    )


def _ensure_plain(client: Client, wish: ConfigRequest) -> None:
    """Refuse paths with pattern characters: in a rule of these agents they could match more."""
    for path in (wish.workspace, *wish.writable, *wish.git):
        if _PATTERN & set(path):
            raise InvalidRequest(
                f"{client.agent} would read {path!r} as a pattern", remedy="give the directory another name"
            )


def _ensure_ours(client: Client, text: str) -> None:
    if not text.strip():
        return
    try:
        tree = json.loads(text)
    except ValueError as exc:
        raise InvalidRequest(
            f"{client.file} is no JSON: {exc}", remedy="look what is in it, and move it away"
        ) from None
    others = sorted(set(tree) - set(client.owned)) if isinstance(tree, dict) else ["not an object"]
    if others:
        raise InvalidRequest(
            f"{client.file} holds what is not ours: {', '.join(others)}",
            remedy=f"keep settings of yours in {client.agent}'s own file",
        )


def _claude_launch(path: Path, trusted: bool) -> str:
    return f"claude -p {shlex.join(claude.arguments(str(path), trusted=trusted))}"


def _claude_compare(
    binary: Path, cwd: Path, path: Path, trusted: bool, decided: Mapping[str, object]
) -> list[ConfigDrift]:
    told = clients.claude_settings(binary, cwd, claude.arguments(str(path), trusted=trusted))
    return claude.differences(decided, told)


def _opencode_launch(path: Path, trusted: bool) -> str:
    closed = "" if trusted else "OPENCODE_DISABLE_PROJECT_CONFIG=1 "
    return f'{closed}OPENCODE_CONFIG_CONTENT="$(cat {shlex.quote(str(path))})" opencode run --agent build'


def _opencode_compare(
    binary: Path, cwd: Path, path: Path, trusted: bool, decided: Mapping[str, object]
) -> list[ConfigDrift]:
    variables = opencode.environment(path.read_text("utf-8"), trusted=trusted)
    with clients.opencode_settings(own_home(AgentName.OPENCODE)) as settings:
        config = clients.opencode_config(binary, cwd, {**settings, **variables}, "config")
        build = clients.opencode_config(binary, cwd, {**settings, **variables}, "agent", opencode.AGENTS[0])
    return opencode.differences(decided, config, build)


CLAUDE: Final = Client(
    AgentName.CLAUDE,
    claude.FILE,
    claude.OWNED,
    claude.LAYERS,
    claude.UNSEEN,
    lambda decision, facts, wish: claude.render(decision.mode, facts, wish),
    _claude_launch,
    lambda _decision, _wish: (),
    _claude_compare,
)
OPENCODE: Final = Client(
    AgentName.OPENCODE,
    opencode.FILE,
    opencode.OWNED,
    opencode.LAYERS,
    opencode.UNSEEN,
    lambda decision, _facts, wish: opencode.render(decision.mode, wish),
    _opencode_launch,
    opencode.notes,
    _opencode_compare,
)
CLIENTS: Final = {client.agent: client for client in (CLAUDE, OPENCODE)}


def own_home(agent: AgentName, environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the agent's own configuration."""
    user = Path(environ.get("HOME") or Path.home())
    if agent is AgentName.CLAUDE:
        return Path(environ.get("CLAUDE_CONFIG_DIR") or user / ".claude")
    if agent is AgentName.OPENCODE:
        return Path(environ.get("XDG_CONFIG_HOME") or user / ".config") / "opencode"
    return Path(environ.get("CODEX_HOME") or user / ".codex")
