"""The options about a registry: those shared by `serve` and `forward`, and those for a host that we dial."""

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
        help="With --remote: read tokens as JSON lines from standard input; exit when it closes.",
    ),
    click.option(
        "--use-agent-identity-auth",
        "agent_identity",
        is_flag=True,
        help="With --remote: show the agent identity in CODEX_ACCESS_TOKEN.",
    ),
    click.option(
        "--exit-on-stdin-close", is_flag=True, help="With --remote: end when standard input is closed."
    ),
)

DIRECT_OPTIONS: Final = (
    click.option(
        "--remote-transport",
        "transport",
        type=click.Choice(["noise", "direct"]),
        default="noise",
        show_default=True,
        help="With --remote: through a relay that cannot read (noise), or to a host that we dial (direct).",
    ),
    click.option("--aws-sigv4", is_flag=True, help="With direct, which needs it: sign with AWS keys."),
    click.option("--aws-profile", metavar="NAME", help="With direct: the AWS profile that has the keys."),
    click.option("--aws-region", metavar="REGION", help="With direct: the region that is signed for."),
    click.option("--aws-service", metavar="NAME", help="With direct: the service [default: execute-api]."),
)
