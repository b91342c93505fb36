"""Groups of commands: under headings in their help, and loaded when they are used."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

Sections = Mapping[str, Sequence[str]]  # heading: names of commands, in the order in which they are shown

SECTIONS: Final[Mapping[str, Sections]] = {
    "": {
        "Run a command": ("exec", "cp", "environment", "serve", "forward", "relay"),
        "Run a board of tasks": ("up", "task", "board", "dispatch", "open", "web"),
        "Run agents": ("worker", "mcp", "config", "handoff"),
        "See and manage what runs": ("status", "down", "doctor"),
    },
    "task": {
        "Look": ("list", "show", "why", "inbox"),
        "Create and change": ("create", "edit", "assign", "link", "comment", "attach", "tell"),
        "Decide": ("review", "unblock", "retry", "complete", "block", "cancel", "move", "ack"),
        "Look at its runs": ("runs", "log", "diff", "file", "policy"),
    },
    "board": {
        "Look": ("list", "show", "stats", "metrics"),
        "Create and change": ("create", "switch", "cap", "pause", "resume", "archive"),
        "Copy": ("backup", "restore", "import-hermes"),
    },
    "environment": {"Look": ("list", "check"), "Change": ("add", "remove")},
    "relay": {"Serve": ("serve",), "Look": ("list",), "Say who may": ("token",)},
    "relay token": {"Look": ("list",), "Change": ("add", "revoke")},
    "worker": {
        "Run": ("run", "wait", "grant", "apply", "stop", "prune"),
        "Look": ("list", "watch", "status", "why", "logs", "result", "diff", "equivalence", "agents"),
        "Take part": ("attach", "send", "approve"),
    },
}


class SectionedGroup(click.Group):
    """A command that is under no heading is shown under "Other commands"; a test allows none."""

    def __init__(self, *args: Any, sections: Sections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.sections:
            return super().format_commands(ctx, formatter)
        named = {name for names in self.sections.values() for name in names}
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {
            name: command for name, command in found.items() if command is not None and not command.hidden
        }
        others = tuple(name for name in shown if name not in named)
        width = formatter.width - 6 - max(map(len, shown), default=0)
        for heading, names in {**self.sections, "Other commands": others}.items():
            rows = [(name, shown[name].get_short_help_str(width)) for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=max(map(len, shown)) + 2)
        return None


class Deferred(SectionedGroup):
    """`deferred` says in which module of ours each command is: none waits for others' imports."""

    def __init__(self, *args: Any, deferred: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deferred = deferred

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.deferred})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.deferred and cmd_name not in self.commands:
            found = getattr(import_module(f"holdfast.{self.deferred[cmd_name]}"), cmd_name)
            self.add_command(found, cmd_name)
        return super().get_command(ctx, cmd_name)
