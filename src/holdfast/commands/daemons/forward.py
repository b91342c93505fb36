"""`holdfast forward`: parse, call, print."""

import asyncio
import signal
from typing import Literal

import click

from holdfast.commands.clickoptions import combine
from holdfast.commands.daemons import serving
from holdfast.commands.daemons.remoteoptions import REMOTE_OPTIONS
from holdfast.commands.daemons.remoteserving import find_address
from holdfast.commands.exec import make_option
from holdfast.commands.output import fail
from holdfast.errors import HoldfastError

_LOGGING = [option for option in serving.SERVE if option.name.startswith("--log-")]


@click.command()
@click.option(
    "--connect", "destination", metavar="URL", required=True, help="The exec server: ws://HOST:PORT."
)
@click.option("--remote", metavar="URL", required=True, help="The registry to register at.")
@combine(*REMOTE_OPTIONS)
@combine(*map(make_option, _LOGGING))
def forward(
    *,
    destination: str,
    remote: str,
    environment_id: str | None,
    remote_token_file: str | None,
    credential_stdin: bool,
    agent_identity: bool,
    exit_on_stdin_close: bool,
    log_format: Literal["text", "json"],
    log_level: str,
) -> None:
    """Register an exec server elsewhere and relay clients to it.

    It registers as `holdfast serve --remote` does, and connects each admitted client to that server, which
    keeps the sessions and processes. It does not read their traffic.

    \b
    Examples:
      holdfast forward --connect ws://127.0.0.1:7000 --remote https://relay.example --environment-id box
    """
    from holdfast.server.remote.forwarding import check_destination

    try:
        url = check_destination(destination)
        address = find_address(
            remote,
            environment_id,
            serving.read_file("--remote-token-file", remote_token_file, bytes.decode),
            credential_stdin=credential_stdin,
            agent_identity=agent_identity,
            exit_on_stdin_close=exit_on_stdin_close,
        )
        serving.set_up_logs(log_format, log_level)
        from holdfast.server.edges.remoteedge import forward_remote

        asyncio.run(forward_remote(address, url, (signal.SIGTERM, signal.SIGINT)))
    except HoldfastError as exc:
        fail(exc)
