"""The options about a registry that `serve` and `forward` share."""

from typing import Final

import click

REMOTE_OPTIONS: Final = (
    click.option("--environment-id", metavar="ID", help="With --remote: the id by which clients ask for us."),
    click.option(
        "--remote-token-file", metavar="PATH", help="With --remote: file that holds the registry's token."
    ),
    click.option(
        "--executor-credential-stdin",
        "credential_stdin",
        is_flag=True,
        help="With --remote: the token comes on standard input, as lines of JSON; its end ends us.",
    ),
    click.option(
        "--exit-on-stdin-close", is_flag=True, help="With --remote: end when standard input is closed."
    ),
)
