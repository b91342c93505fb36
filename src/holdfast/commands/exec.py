"""`holdfast exec`: parse, call, print."""

import sys

import click

from holdfast.commands.limits import Limits, limited
from holdfast.commands.oneline import OneLine
from holdfast.errors import HoldfastError


@click.command("exec", cls=OneLine, context_settings={"allow_interspersed_args": False})
@limited
@click.option(
    "--env",
    "where",
    metavar="NAME|URL",
    help="Run on another machine: an environment of environments.toml, or the address of a server. "
    "Directories and paths are those of that machine.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Watch its calls: a denial is then named exactly, and --json has all of them.",
)
@click.option("--print-plan", is_flag=True, help="Print what would be done and by whom; run nothing.")
@click.option(
    "--explain",
    metavar="PATH",
    multiple=True,
    help="Print which rule decides about this path; run nothing. Can be repeated.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print how it ended as one JSON object, last on standard error; plans and explanations on "
    "standard output.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec(
    limits: Limits,
    where: str | None,
    watch: bool,
    print_plan: bool,
    explain: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command in a sandbox, confined to this directory.

    Its exit code is the command's own; 125 if the sandbox could not be set up, 126 if the command is not
    executable, 127 if it is not found. What the sandbox denied is said at the end, with the option that
    allows it.

    \b
    Examples:
      holdfast exec -- npm test
      holdfast exec --allow-write ~/.npm --network on -- npm install
      holdfast exec --explain .git/config
    """
    import json
    from dataclasses import replace

    from holdfast import outcome, run

    told: outcome.Ending | outcome.Planned | outcome.Explained
    try:
        wish = replace(limits.wish(), watch=watch)
        if where is not None:
            from holdfast import remoterun

            remoterun.refuse_local_options(
                limits.local() | {"--watch": watch, "--print-plan": print_plan, "--explain": bool(explain)}
            )
            told = remoterun.execute(where, wish, command)
        elif print_plan:
            told = run.plan(wish)
        elif explain:
            told = run.explain(wish, explain)
        else:
            told = run.execute(wish, command)
    except HoldfastError as exc:
        told = outcome.failed(exc)
    for line in [json.dumps(told.report())] if as_json else told.lines():
        click.echo(line, err=isinstance(told, outcome.Ending))
    sys.exit(told.code)
