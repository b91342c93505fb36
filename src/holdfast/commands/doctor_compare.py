"""`holdfast doctor compare`: parse, call, print."""

import json
import signal
import sys

import click

from holdfast.commands.limits import Limits, limited
from holdfast.commands.oneline import OneLine, printable
from holdfast.commands.pasting import pasteable
from holdfast.errors import HoldfastError

_CANNOT_TELL = 2


@click.command(cls=OneLine, context_settings={"allow_interspersed_args": False})
@limited
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="End each run after this time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def compare(limits: Limits, timeout_s: float, as_json: bool, command: tuple[str, ...]) -> None:
    """Run a command plain and confined, and show what differs.

    THE COMMAND RUNS TWICE, with nothing to read: first without any sandbox, then with the limits that the
    options ask for, which are those of `holdfast exec`. The second run finds what the first one left. What
    surrounds it is looked at before: files, network, environment, identity, terminal, limits.

    Exit code 0: it was where it is without a sandbox, and behaved the same; 1: something differs; 2: that
    cannot be told, or nothing was run.

    \b
    Example:
      holdfast doctor compare -- npm test
    """
    from holdfast.doctor.compare import compare as edge
    from holdfast.doctor.compare import equivalence

    if command:
        click.echo("holdfast: the command runs twice: first WITHOUT a sandbox, then confined", err=True)
    try:
        done = edge.run(limits.wish(), command, timeout_s=timeout_s)
    except HoldfastError as exc:
        click.echo(f"holdfast: {printable(str(exc))}", err=True)
        if exc.remedy:
            click.echo(f"  try: {pasteable(printable(exc.remedy))}", err=True)
        sys.exit(_CANNOT_TELL)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    if as_json:
        click.echo(json.dumps(done.report()))
    else:
        for line in equivalence.lines(done.found):
            click.echo(printable(line))
        click.echo(f"confined by {done.enforcement.backend}")
    sys.exit(done.found.exit_code)
