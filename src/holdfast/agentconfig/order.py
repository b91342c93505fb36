"""One order to configure Codex: decide for this machine, show, write, compare or remove."""

import difflib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agentconfig import block, clients, environments, files, host, settings
from holdfast.agentconfig.decision import (
    Admin,
    AgentName,
    Boundary,
    ConfigDecision,
    ConfigRequest,
    Egress,
    Severity,
    Writes,
    decide,
)
from holdfast.agentconfig.removal import ConfigConflict, strip
from holdfast.agentconfig.settings import Settings
from holdfast.errors import InvalidRequest, NotFound, OperationFailed, SandboxUnavailable, UsageError

UNSEEN: Final = (
    "that a command is really confined: holdfast doctor assert runs some",
    "what requirements of an administrator make of a value at the start of a thread; they were read, and "
    "the decision is one that they allow",
)

_HOST: Final = re.compile(r"(?:\*{1,2}\.)?(?!-)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
_SECRET: Final = re.compile(
    r"key|secret|token|passw|credential|authorization|bearer|shell_environment_policy", re.IGNORECASE
)
_HARMLESS: Final = re.compile(r"[+-](?:#: )?(?:shell_environment_policy\.)?ignore_default_excludes = \w+")
_MARK: Final = re.compile(r"[+-]# (?:>>>|<<<|holdfast) ?.*")


@dataclass(frozen=True, slots=True)
class Order:
    """The user's options. `task` is whether the home is for one task; then no link is followed."""

    home: Path
    task: bool
    cwd: Path
    network: tuple[str, ...] = ()
    writes: Writes = Writes.WORKSPACE
    writable: tuple[Path, ...] = ()
    board: Path | None = None
    boundary: Boundary = Boundary.NONE
    trusted: tuple[Path, ...] = ()
    environment: environments.Environment | None = None  # for Codex only: a server of ours to configure


@dataclass(frozen=True, slots=True)
class EditPlan:
    """The decision, and the file before and after; a refused decision leaves the file unchanged."""

    path: Path
    decision: ConfigDecision
    before: str
    after: str
    settings: Settings  # in force afterwards: the decision's, or the user's where those are stricter
    conflicts: tuple[ConfigConflict, ...]
    layers: tuple[str, ...]  # files of the repository that would override this one if it were trusted
    binary: Path | None
    launch: str = ""  # the command line that puts all this in force
    environments: files.Edited | None = None  # the other file, if an environment was requested

    def diff(self) -> list[str]:
        """A unified diff, without line ends and without secrets; empty if nothing changes."""
        return diff(str(self.path), self.before, self.after)

    def environments_diff(self) -> list[str]:
        """The same for the file with the environments."""
        other = self.environments
        return diff(str(other.path), other.before, other.after) if other else []

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        other = self.environments
        return self._report() | (
            {
                "environments": {
                    "file": str(other.path),
                    "changed": other.changed,
                    "diff": self.environments_diff(),
                }
            }
            if other
            else {}
        )

    def _report(self) -> dict[str, object]:
        return {
            "schemaVersion": 1,
            "file": str(self.path),
            "decision": self.decision.report(),
            "changed": self.before != self.after,
            "diff": self.diff(),
            "conflicts": [
                {"kind": each.kind.value, "key": list(each.key), "line": each.line, "detail": each.detail}
                for each in self.conflicts
            ],
            "projectLayers": list(self.layers),
            "launch": self.launch,
        }


def plan(order: Order) -> EditPlan:
    """What `apply` would do now.

    Raises:
        NotFound: the home, the directory or a root does not exist.
        UsageError: the request is invalid, or the file is not TOML.
    """
    found = host.find_project(order.cwd)
    wish = build_request(order, found)
    text = files.read(order.home, follow=not order.task)
    binary = clients.find_if_any(AgentName.CODEX)
    facts = host.gather(
        text=text,
        home=order.home,
        version=clients.version(binary) if binary else None,
        admin=clients.read_codex_requirements(binary) if binary else Admin(),
        boundary=order.boundary,
        trusted=is_trusted(order, found),
    )
    decision = decide(facts, wish)
    path = order.home / files.NAME
    if decision.severity is Severity.REFUSED:
        return EditPlan(path, decision, text, text, decision.settings, (), found.layers, binary)
    applied = _apply_block(text, decision, order)
    return EditPlan(
        path,
        decision,
        text,
        applied.text,
        applied.settings,
        applied.conflicts,
        found.layers,
        binary,
        _launch(decision),
        _plan_environment(order),
    )


def apply(order: Order) -> EditPlan:
    """Decide and write; Codex itself validates the text before it is written.

    Raises:
        SandboxUnavailable: the decision is to refuse; nothing was written.
        NotFound, UsageError: as `plan`.
        InvalidRequest: Codex refuses the new file; nothing was written.
        OperationFailed: writing failed. Nothing may be launched with the present file.
    """
    planned = plan(order)
    decision, binary = planned.decision, planned.binary
    ensure_allowed(decision)

    def validate(text: str) -> None:
        if binary is not None:
            clients.validate_codex(binary, order.home, text)

    def validate_environments(text: str) -> None:
        if binary is not None:
            clients.validate_codex_environments(binary, order.home, text)

    if planned.environments and planned.environments.changed:
        validate_environments(planned.environments.after)  # before anything is written
    edited = files.edit(
        order.home,
        lambda text: _apply_block(text, decision, order).text,
        follow=not order.task,
        validate=validate,
    )
    wish, other = order.environment, None
    if wish is not None:
        other = files.edit(
            order.home,
            lambda text: environments.apply(text, wish),
            follow=not order.task,
            validate=validate_environments,
            name=environments.FILE,
        )
    applied = _apply_block(edited.before, decision, order)
    return EditPlan(
        planned.path,
        decision,
        edited.before,
        edited.after,
        applied.settings,
        applied.conflicts,
        planned.layers,
        binary,
        planned.launch,
        other,
    )


def check(
    order: Order, overrides: Sequence[str] = (), sandbox: str | None = None
) -> tuple[EditPlan, list[settings.ConfigDrift]]:
    """Compare the values in force, read back from the real Codex, with the decision.

    `overrides` and `sandbox` are what its launch line will have after -c and -s.

    Raises:
        NotFound: as `plan`, or Codex is not installed.
        SandboxUnavailable: the decision is to refuse, so no configuration is right.
        InvalidRequest, OperationFailed: Codex refuses the configuration, or does not answer.
    """
    binary = clients.find(AgentName.CODEX)
    planned = plan(order)
    decision = planned.decision
    ensure_allowed(decision)
    now = clients.read_codex_values(binary, order.home, order.cwd, overrides)
    found = settings.differences(planned.settings, now if sandbox is None else now.typed(sandbox))
    if order.environment is not None and planned.environments and planned.environments.changed:
        key = (*environments.ENTRIES, order.environment.id)
        there = "another one" if environments.has_entry(planned.environments.before) else None
        found.append(settings.ConfigDrift(key, "as asked for", there, str(planned.environments.path)))
    return planned, found


def remove(order: Order) -> files.Edited:
    """Remove our blocks and restore what they displaced; remove our environment too.

    Raises:
        NotFound: the home does not exist.
        UsageError: a file is not TOML.
        OperationFailed: writing failed.
    """
    follow, name = not order.task, environments.FILE
    before = files.read(order.home, follow=follow, name=name)
    if before and not environments.strip(before):

        def ensure_only_ours(text: str) -> None:
            if environments.strip(text):
                raise OperationFailed(
                    f"{order.home / name} was changed meanwhile", remedy="the same command again"
                )

        other = files.delete(order.home, name, ensure_only_ours, follow=follow)
    else:
        other = files.edit(order.home, environments.strip, follow=follow, name=name)
    edited = files.edit(order.home, lambda text: strip(text).text, follow=follow)
    return edited if edited.changed or not other.changed else other


def _plan_environment(order: Order) -> files.Edited | None:
    if order.environment is None:
        return None
    text = files.read(order.home, follow=not order.task, name=environments.FILE)
    return files.Edited(order.home / environments.FILE, text, environments.apply(text, order.environment))


def ensure_allowed(decision: ConfigDecision) -> None:
    """Raise if the decision is to refuse.

    Raises:
        SandboxUnavailable: the decision is to refuse.
    """
    if decision.severity is Severity.REFUSED:
        raise SandboxUnavailable(
            f"refused ({decision.row}): {decision.reason}", remedy="; ".join(decision.remedies) or None
        )


def _apply_block(text: str, decision: ConfigDecision, order: Order) -> block.Applied:
    return block.apply(text, decision.settings, config_dir=os.path.realpath(order.home))


def _launch(decision: ConfigDecision) -> str:
    return f"codex exec {shlex.join(decision.flags)}"


def build_request(order: Order, found: host.Project) -> ConfigRequest:
    """The request, with absolute paths.

    Raises:
        NotFound, UsageError: as `plan`.
    """
    if not order.cwd.is_dir():
        raise NotFound(f"{order.cwd} is not a directory", remedy="name the task's directory with --cwd")
    network, hosts = _network(order.network)
    if order.writes is Writes.GIT and not found.git:
        raise InvalidRequest(
            f"{order.cwd} is in no repository whose git directory can be trusted to be its own",
            remedy="use a plain clone or a linked worktree, or --writes workspace",
        )
    return ConfigRequest(
        network=network,
        hosts=hosts,
        writes=order.writes,
        roots=tuple(_directory(path, "--writable") for path in order.writable),
        board=_directory(order.board, "--board") if order.board else None,
        workspace=os.path.realpath(order.cwd),
        projects=found.names,
        git=found.git,
    )


def _network(words: tuple[str, ...]) -> tuple[Egress, tuple[str, ...]]:
    if not words or words == (Egress.NONE.value,):
        return Egress.NONE, ()
    if words == (Egress.FULL.value,):
        return Egress.FULL, ()
    for word in words:
        if word in (Egress.NONE.value, Egress.FULL.value) or not _HOST.fullmatch(word):
            raise UsageError(
                f"not a host: {word!r}",
                remedy="--network none, --network full, or names such as --network api.example.com, one each",
            )
    return Egress.HOSTS, tuple(dict.fromkeys(words))


def _directory(path: Path, option: str) -> str:
    """Check that a root exists: an agent silently ignores one that does not."""
    if not path.is_dir():
        raise NotFound(f"{option}: {path} is not a directory", remedy=f"mkdir -p {str(path)!r}")
    return os.path.realpath(path)


def is_trusted(order: Order, found: host.Project) -> bool:
    """Whether the operator named the repository as trusted."""
    named = {os.path.realpath(path) for path in order.trusted}
    return bool(named & {os.path.realpath(name) for name in found.names})


def diff(name: str, before: str, after: str) -> list[str]:
    """A unified diff without line ends; empty if nothing changes.

    The file may contain tokens, and the output ends up in logs: unchanged lines are left out, and of a line
    that looks like a secret only the key is shown.
    """
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=0, lineterm="")
    return [_hide_secret(line) for line in lines]


def _hide_secret(line: str) -> str:
    if line.startswith(("---", "+++", "@@")) or _HARMLESS.fullmatch(line) or _MARK.fullmatch(line):
        return line
    if not _SECRET.search(line):
        return line
    key, equals, _ = line.partition("=")
    return f"{key}= (not shown)" if equals else f"{line[0]}(not shown)"
