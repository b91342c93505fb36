"""The command line: parse, call, print. It has no logic of its own."""

from typing import Final

import click

from holdfast import __version__
from holdfast.commands.clickoptions import SECTIONS, Deferred

# Loaded on use, so that the start of one command does not load the others.
_DEFERRED: Final = {
    "board": "commands.board",
    "config": "commands.config",
    "cp": "commands.cp",
    "dispatch": "commands.daemons.dispatch",
    "doctor": "commands.doctor",
    "down": "commands.daemons.down",
    "environment": "commands.environment",
    "exec": "commands.exec",
    "forward": "commands.daemons.forward",
    "handoff": "commands.handoff",
    "mcp": "commands.mcp",
    "open": "commands.daemons.open",
    "relay": "commands.relay",
    "serve": "commands.daemons.serve",
    "status": "commands.daemons.status",
    "task": "commands.task.task",
    "up": "commands.daemons.up",
    "web": "commands.daemons.web",
    "worker": "commands.worker.worker",
}


@click.group(
    cls=Deferred,
    deferred=_DEFERRED,
    sections=SECTIONS[""],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Run coding agents and their commands in a sandbox that says what it enforced.

    \b
    Examples:
      holdfast exec -- npm test
      holdfast serve --listen ws://127.0.0.1:7000
      holdfast up
    """
