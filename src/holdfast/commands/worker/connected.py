"""Shared by the commands about workers: the connection to their supervisor, and a worker as a line."""

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from holdfast.commands.clickoptions import combine, complete_id, home_option
from holdfast.commands.output import INTERRUPTED, printable

if TYPE_CHECKING:
    import msgspec

    from holdfast.agents.sdk import Workers
    from holdfast.agents.supervisor.messages import WorkerReport

P = ParamSpec("P")

COLOURS: Final = {
    "starting": "blue",
    "running": "blue",
    "waiting": "yellow",
    "blocked": "red",
    "stalled": "red",
    "failed": "red",
    "completed": "green",
    "lost": "red",
}
EXITS: Final = {"completed": 0}  # of `run` and `wait`; all other ends exit with 1

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with a stable schema.")
grant_options = combine(
    click.option(
        "--allow-write",
        "writable",
        type=click.Path(resolve_path=True),
        multiple=True,
        help="Let it write PATH too. Can be repeated.",
    ),
    click.option(
        "--allow-read",
        "readable",
        type=click.Path(resolve_path=True),
        multiple=True,
        help="Let it read PATH although it is hidden, as credentials are. Can be repeated.",
    ),
)


host_options = combine(
    click.option(
        "--allow-host",
        metavar="HOST[:PORT]|URL",
        multiple=True,
        help="Let it reach this host too, by its name: api.example.com, *.example.org:443; a URL with "
        "methods before it allows such requests only: 'GET https://api.example.com/v1/'. Can be repeated.",
    ),
    click.option(
        "--allow-net",
        metavar="CLIENT",
        multiple=True,
        help="Let it reach the hosts that this client's settings on this machine name: pip, npm, cargo, go, "
        "apt, git, model. Can be repeated.",
    ),
    click.option("--allow-private", is_flag=True, help="Allow hosts at private addresses."),
)


def with_workers(
    command: Callable[Concatenate["Workers", P], Coroutine[Any, Any, int]],
) -> Callable[..., None]:
    """Make a command that connects to the supervisor, runs, and exits with the returned code."""

    @functools.wraps(command)
    def called(home: Path, *args: P.args, **kwargs: P.kwargs) -> None:
        from holdfast.agents.sdk import Workers

        async def run() -> int:
            async with Workers.connect(home) as workers:
                if "id" in kwargs:
                    kwargs["id"] = await complete_worker(workers, str(kwargs["id"]))
                return await command(workers, *args, **kwargs)

        try:
            sys.exit(asyncio.run(run()))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    return called


async def complete_worker(workers: "Workers", given: str) -> str:
    return complete_id(given, [report.id for report in await workers.list(ended=True)], "workers")


def on_worker(
    command: Callable[Concatenate["Workers", P], Coroutine[Any, Any, int]],
) -> Callable[..., None]:
    """Make a command about the worker with this id."""
    return click.argument("id")(json_option(home_option(with_workers(command))))


def print_report(report: "WorkerReport", *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(report))
        return
    click.echo(format_line(report), color=False if os.environ.get("NO_COLOR") else None)


def to_json(said: "msgspec.Struct | Sequence[msgspec.Struct]") -> str:
    import msgspec

    return msgspec.json.encode(said).decode()


def format_line(report: "WorkerReport") -> str:
    """Format a worker as one line: id, state, description."""
    what = report.failure or report.detail
    state = f"{report.state}({what})" if what else str(report.state)
    words = [click.style(f"{state:<24}", fg=COLOURS[report.state]), printable(report.about)]
    flags = f"[{', '.join(report.flags)}]" if report.flags else ""
    where = f" on {printable(report.host)}" if report.host is not None else ""
    return f"{report.id:<16} {' '.join(words)}{where} {flags}".rstrip()
