"""`holdfast up`: everything with default settings. Parse, call, print."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.commands.clickoptions import choose_limits, home_option, host_options
from holdfast.commands.output import Answer, AnswerCommand, json_option, say
from holdfast.commands.store import store_option
from holdfast.local.linux import ON_LINUX, require_linux


@click.command(cls=AnswerCommand)
@click.option(
    "--board",
    default="main",
    show_default=True,
    metavar="NAME",
    help="The board; created if it does not exist.",
)
@click.option(
    "--listen",
    metavar="URL",
    help="Also serve clients such as codex at this address; ws://127.0.0.1:0 is a free port.",
)
@host_options
@click.option("--web/--no-web", "with_web", default=True, help="Serve the dashboard [default: yes].")
@click.option(
    "--web-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port of the dashboard; 0 picks a free one [default: 4653, or a free one if that is taken].",
)
@click.option(
    "--demo",
    is_flag=True,
    help="Create three tasks on a board `demo`, and show how they end.",
)
@click.option("--detach", is_flag=True, help="Run in the background; return once everything is ready.")
@click.option(
    "--install-service",
    is_flag=True,
    help="Start nothing; write a systemd user unit that runs this command, and say how to enable it.",
)
@home_option
@store_option
@json_option
@click.pass_context
def up(
    context: click.Context,
    /,
    min_free: int | None,
    max_load: float | None,
    detach: bool,
    install_service: bool,
    home: Path,
    **wanted: Any,
) -> Answer | None:
    """Start a board, a dispatcher and a dashboard.

    Ctrl-C, SIGTERM or a closed terminal end everything that it started, the workers too. Their tasks go back
    to the board, and the next `up` takes them on again. A second Ctrl-C hastens that. With --detach it runs
    in the background until `holdfast down`. A second `up` of a home changes nothing and reports where the
    first one is. Exit codes are those of `holdfast dispatch`.

    \b
    Examples:
      holdfast up
      holdfast up --demo
      holdfast up --detach
    """
    require_linux("holdfast up", ON_LINUX)
    if install_service:
        from holdfast.commands.daemons.service import install

        return install(home, _typed_options(context))
    from holdfast.commands.daemons import running

    if detach:
        return running.start_detached(home, _typed_options(context))
    from holdfast import log

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))
    options = running.UpOptions(home=home, limits=choose_limits(min_free, max_load), **wanted)
    asyncio.run(running.run(options, running.guard_output(_print)))
    return None


def _print(kind: str, text: list[str], **members: object) -> None:
    say({"kind": kind, **members, "text": text})
    sys.stdout.flush()


def _typed_options(context: click.Context) -> list[str]:
    """The typed options, without those about how to run `up`."""
    from click.core import ParameterSource

    words: list[str] = []
    for option in context.command.params:
        name, value = option.name or "", context.params.get(option.name or "")
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not typed or name in ("detach", "install_service", "as_json", "home"):
            continue
        if isinstance(value, bool):
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            words += [option.opts[0], str(value)]
    return words
