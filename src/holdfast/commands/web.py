"""`holdfast web`: parse, serve, print."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.boarding import Verb, json_option, me, refuse, say, store_option
from holdfast.commands.homeoption import home_option
from holdfast.errors import HoldfastError, StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@click.command(cls=Verb)
@click.option(
    "--board", "boards", multiple=True, metavar="NAME", help="Only this one [default: all]. Can be repeated."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where it listens [default: a free one]."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="IP", help="Of loopback, no other.")
@home_option
@store_option
@json_option
def web(boards: tuple[str, ...], port: int, host: str, home: Path, address: str, as_json: bool) -> None:
    """Show boards in a browser: open the address that is printed.

    It listens on this machine only, and the address holds a token that is made at each start. To look at it
    from elsewhere, forward its port with ssh.
    """
    from holdfast import log

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))

    def announce(url: str) -> None:
        say({"kind": "web", "address": url, "text": [url]}, as_json=as_json)
        sys.stdout.flush()

    try:
        asyncio.run(_serve(address, home.absolute(), boards, host, port, announce))
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)
    except (asyncio.CancelledError, KeyboardInterrupt):
        return  # told to go


async def _serve(
    address: str, home: Path, boards: tuple[str, ...], host: str, port: int, announce: "Callable[[str], None]"
) -> None:
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("asyncio.run makes a task")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await dashboard(address, home, announce, boards=boards, host=host, port=port)


def dashboard(
    address: str,
    home: Path,
    announce: "Callable[[str], None]",
    *,
    boards: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    port: int = 0,
) -> "Awaitable[None]":
    """The dashboard, to be waited for.

    Raises:
        StartupError: what it needs is not installed.
    """
    try:
        from holdfast.web.server import Options, serve
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise StartupError("the dashboard is not installed", remedy="pip install 'holdfast[web]'") from None
    from holdfast.dispatch.installed import installed

    profiles = tuple(sorted(installed(home, os.environ)))
    return serve(Options(address, home, me(), boards, profiles, host, port), announce)
