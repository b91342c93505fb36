"""The command line: parse, call, print. No logic of its own."""

from typing import Final

import click

from holdfast import __version__
from holdfast.commands.deferred import Deferred

# Loaded when used: the start of one command does not pay for the others.
_DEFERRED: Final = {
    "board": "commands.board",
    "config": "commands.config",
    "cp": "commands.cp",
    "dispatch": "commands.dispatch",
    "doctor": "commands.doctor",
    "down": "commands.down",
    "exec": "commands.exec",
    "handoff": "commands.handoff",
    "mcp": "commands.mcp",
    "open": "commands.open",
    "serve": "commands.serve",
    "status": "commands.status",
    "task": "commands.task",
    "up": "commands.up",
    "web": "commands.web",
    "worker": "commands.worker",
}


@click.group(cls=Deferred, deferred=_DEFERRED, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Run coding agents and their commands, here or elsewhere, and lose nothing they did."""


def main() -> None:
    """Entry point."""
    cli()
