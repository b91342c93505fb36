"""`holdfast web`: parse, serve, print."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import AnswerCommand, json_option, need_extra, say
from holdfast.commands.store import store_option, user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@click.command(cls=AnswerCommand)
@click.option(
    "--board",
    "boards",
    multiple=True,
    metavar="NAME",
    help="Show only this board [default: all]. Can be repeated.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port; 0 picks a free one [default: 4653, or a free one if that is taken].",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="IP",
    help="The address; only a loopback address is accepted.",
)
@home_option
@store_option
@json_option
def web(boards: tuple[str, ...], port: int | None, host: str, home: Path, address: str) -> None:
    """Serve the dashboard: boards in a browser.

    Open the address that is printed.

    It listens on this machine only. The printed address holds a token that changes at each start.
    `holdfast open` opens the page by a link that works once and sets a cookie, so a bookmark works from then
    on. To use it from elsewhere, forward its port with ssh.

    \b
    Examples:
      holdfast web
      holdfast web --port 8080
    """
    from holdfast import log

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))

    def announce(url: str) -> None:
        say({"kind": "web", "address": url, "text": [url]})
        sys.stdout.flush()

    def note(words: str) -> None:
        click.echo(f"holdfast: {words}", err=True)

    try:
        asyncio.run(_serve(dashboard(address, home, announce, note, boards=boards, host=host, port=port)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return  # ended on request


async def _serve(serving: "Coroutine[None, None, None]") -> None:
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("asyncio.run makes a task")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await serving


def dashboard(
    address: str,
    home: Path,
    announce: "Callable[[str], None]",
    note: "Callable[[str], None]",
    *,
    boards: tuple[str, ...] = (),
    first: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> "Coroutine[None, None, None]":
    """The dashboard as a coroutine. `note` is called with the reason if its port is not the usual one.

    Raises:
        StartupError: a required package is not installed.
    """
    with need_extra("web", "the dashboard", "starlette", "uvicorn"):
        from holdfast.web.server import DashboardOptions, serve
    from holdfast.dispatch.installed import find_installed
    from holdfast.web.entrance import PORT

    profiles = tuple(sorted(find_installed(home, os.environ)))
    number, fallback = (PORT, True) if port is None else (port, False)
    options = DashboardOptions(
        address,
        home,
        user_name(),
        boards,
        profiles,
        host,
        number,
        first=first or next(iter(boards), None),
        fallback=fallback,
    )
    return serve(options, announce, note)
