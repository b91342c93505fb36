"""A group whose commands are loaded when they are used: a command does not wait for the imports of others."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from holdfast.commands.sections import SectionedGroup


class Deferred(SectionedGroup):
    """`deferred` says in which module of ours each command is, by the command's name."""

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
