"""`holdfast mcp`: parse and serve."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import OneLine
from holdfast.commands.store import store_option, user_name
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from holdfast.handoff.sender import Sender


@click.command(cls=OneLine)
@click.option(
    "--run",
    "run_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The run.json of a worker: its tools report on that task.",
)
@click.option("--board", metavar="NAME", help="Serve tools for supervising; the default board of calls.")
@home_option
@store_option
def mcp(run_file: Path | None, board: str | None, home: Path, address: str) -> None:
    """Serve tools to an agent over MCP (stdio).

    In the workspace of a run, or with --run, they are a worker's tools: to read its task and to report on it.
    Otherwise, or with --board, they are a supervising agent's tools: for a board with all its tasks, and for
    the workers of this machine.

    \b
    Examples:
      holdfast mcp
      claude mcp add holdfast -- holdfast mcp --board crew
    """
    try:
        if run_file is not None and board is not None:
            raise UsageError("a worker reports on its own task: --run and --board cannot be used together")
        sender = None if board is not None else _sender(run_file)
        _serve(sender, address, board or "", home)
    except KeyboardInterrupt:
        pass


def _serve(sender: "Sender | None", address: str, board: str, home: Path) -> None:
    from holdfast.mcp.server import serve

    if sender is not None:
        from holdfast.mcp.reports import Reporting

        serve(Reporting(sender))
        return
    from holdfast.mcp.supervising import Supervising

    serve(Supervising(address, board=board, who=user_name(), home=home))


def _sender(run_file: Path | None) -> "Sender | None":
    from holdfast.handoff.sender import VARIABLE, Sender

    if run_file is not None:
        return Sender.find(environ={VARIABLE: str(run_file)})
    try:
        return Sender.find(environ=os.environ)
    except NotFound:
        return None
