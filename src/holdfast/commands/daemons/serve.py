"""`holdfast serve`: parse, call, print."""

from typing import Any

import click

from holdfast.commands.clickoptions import combine
from holdfast.commands.daemons import serving
from holdfast.commands.daemons.remoteoptions import DIRECT_OPTIONS, REMOTE_OPTIONS
from holdfast.commands.daemons.remoteserving import choose_transport
from holdfast.commands.exec import make_option
from holdfast.commands.output import fail
from holdfast.errors import HoldfastError


def _is_typed(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


@click.command()
@combine(*map(make_option, serving.SERVE))
@click.option(
    "--concurrent-requests",
    "slots",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Requests handled at once on each connection; 1 is strictly in order.",
)
@click.option(
    "--ws-max-clock-skew-seconds",
    "skew_s",
    type=click.IntRange(min=0),
    default=serving.SKEW_S,
    show_default=True,
    help="Tolerance for the times in signed tokens.",
)
@click.option(
    "--hint/--no-hint", default=None, help="Say on standard error what to type next [default: on a terminal]."
)
@click.option(
    "--remote",
    metavar="URL",
    help="Do not listen; register at this registry, and serve the clients that it lets in through its relay.",
)
@combine(*REMOTE_OPTIONS, *DIRECT_OPTIONS)
@click.option(
    "--proxy-private-ips-via-upstream",
    "private_via_upstream",
    is_flag=True,
    help="Let the proxies of commands take this host's own proxy also to private addresses that are allowed.",
)
def serve(**given: Any) -> None:
    """Serve commands, files and HTTP to a client such as codex.

    Prints the address it listens on as one line on standard output. Point codex at it with
    CODEX_EXEC_SERVER_URL.

    \b
    Examples:
      holdfast serve --listen ws://127.0.0.1:7000
      CODEX_EXEC_SERVER_URL=ws://127.0.0.1:7000 codex
    """
    if given["remote"] is not None and _is_typed("listen"):
        raise click.UsageError("--remote listens nowhere: leave --listen out")
    names = ("transport", "aws_sigv4", "aws_profile", "aws_region", "aws_service")
    try:
        given["direct"] = choose_transport(*(given.pop(name) for name in names))
        serving.run(**given)
    except HoldfastError as exc:
        fail(exc)
