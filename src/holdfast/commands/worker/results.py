"""Commands about the outcome of a worker: its result, a restart with one more grant, its end."""

import os
from typing import TYPE_CHECKING

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import OneLine, printable, show_data
from holdfast.commands.worker.connected import (
    complete_worker,
    grant_options,
    host_options,
    json_option,
    on_worker,
    print_report,
    to_json,
    with_workers,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.agents.sdk import Workers


@click.command(cls=OneLine)
@on_worker
async def result(workers: "Workers", id: str, as_json: bool) -> int:
    """Show what a worker answered.

    That is its text after its last tool call, or the content of its terminal.

    \b
    Example:
      holdfast worker result codex-1f2e3d
    """
    found = await (await workers.find(id)).result()
    if as_json:
        click.echo(to_json(found))
        return 0
    show_data((found.answer or found.screen).encode() + b"\n")
    return 0


@click.command(cls=OneLine)
@on_worker
async def diff(workers: "Workers", id: str, as_json: bool) -> int:
    """Print what changed where a worker works.

    Its directory is compared with its state before the worker started. If the worker was started again with a
    grant, the comparison is with the state before the first start. In a git work tree, files that a
    .gitignore names are only listed.

    \b
    Examples:
      holdfast worker diff codex-1f2e3d
      holdfast worker diff codex-1f2e3d | git apply --reverse
    """
    found = await (await workers.find(id)).diff()
    if as_json:
        click.echo(to_json(found))
        return 0
    show_data(found.diff.encode())
    if not found.diff:
        click.echo(f"nothing changed in {printable(found.cwd)} since {found.since} was started", err=True)
    return 0


@click.command(cls=OneLine)
@click.argument("id")
@click.option("--branch", metavar="NAME", help="Commit the changes to a new branch instead of writing files.")
@json_option
@home_option
@with_workers
async def apply(workers: "Workers", id: str, branch: str | None, as_json: bool) -> int:
    """Bring in what a worker on another machine changed.

    The changes go into the directory that was copied to that machine: all of them, or none if something that
    it changed has changed here too.

    \b
    Examples:
      holdfast worker apply codex-1f2e3d
      holdfast worker apply codex-1f2e3d --branch try-this
    """
    done = await (await workers.find(id)).apply(branch)
    if as_json:
        click.echo(to_json(done))
        return 0
    if done.branch is not None:
        click.echo(f"branch {printable(done.branch)} of {printable(done.directory)} is at {done.commit}")
        return 0
    for path in done.paths:
        click.echo(printable(path))
    for path in done.left_out:
        click.echo(f"left out: {printable(path)}", err=True)
    click.echo(f"{len(done.paths)} files of {printable(done.directory)} are as the worker left them")
    return 0


@click.command(cls=OneLine)
@click.argument("id")
@grant_options
@host_options
@click.option("--network", type=click.Choice(["on"]), help="Allow all network access.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key of its provider.")
@json_option
@home_option
@with_workers
async def grant(
    workers: "Workers",
    id: str,
    writable: tuple[str, ...],
    readable: tuple[str, ...],
    allow_host: tuple[str, ...],
    allow_net: tuple[str, ...],
    allow_private: bool,
    network: str | None,
    key_env: str | None,
    as_json: bool,
) -> int:
    """Start a worker again with one more grant.

    It is ended first if it still runs. The new one gets the same prompt, in the directory of the old one.

    \b
    Example:
      holdfast worker grant codex-1f2e3d --allow-write ~/.cache/pip
    """
    started = await (await workers.find(id)).grant(
        allow_write=writable,
        allow_read=readable,
        allow_host=allow_host,
        allow_net=allow_net,
        allow_private=allow_private,
        network=network is not None,
        key=os.environ.get(key_env or ""),
    )
    print_report(started.report, as_json=as_json)
    return 0


@click.command(cls=OneLine)
@click.argument("ids", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Stop every worker that runs.")
@click.option(
    "--grace",
    "grace_s",
    type=float,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Give it this long to end by itself.",
)
@json_option
@home_option
@with_workers
async def stop(
    workers: "Workers", ids: tuple[str, ...], everyone: bool, grace_s: float, as_json: bool
) -> int:
    """Stop workers and everything that they started.

    They are asked to end first, then killed, all at the same time.

    \b
    Examples:
      holdfast worker stop codex-1f2e3d
      holdfast worker stop --all
      holdfast worker cancel --all       (the same)
    """
    if bool(ids) == everyone:
        raise UsageError("say which workers", remedy="one or several ids, or --all")
    chosen = [await complete_worker(workers, id) for id in ids]
    if everyone:
        chosen = [report.id for report in await workers.list()]
    for report in await workers.stop(chosen, grace_s=grace_s):
        print_report(report, as_json=as_json)
    return 0


@click.command(cls=OneLine)
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="Remove those that ended longer ago.",
)
@click.option(
    "--keep",
    "kept_mib",
    type=click.IntRange(0),
    metavar="MIB",
    help="Remove the oldest until the rest fits in this many MiB.",
)
@click.option("--all", "everyone", is_flag=True, help="Remove all that have ended.")
@json_option
@home_option
@with_workers
async def prune(
    workers: "Workers", days: float | None, kept_mib: int | None, everyone: bool, as_json: bool
) -> int:
    """Remove what is left of workers that have ended.

    Their output, evidence, state and dead tmux panes. Without options it removes those that ended more than
    14 days ago, and the oldest beyond 1 GiB. The supervisor does that by itself once an hour.

    \b
    Examples:
      holdfast worker prune
      holdfast worker prune --older-than 2
      holdfast worker prune --all
    """
    kept_s = 0.0 if everyone else None if days is None else days * 24 * 3600
    gone = await workers.prune(kept_s=kept_s, kept_bytes=None if kept_mib is None else kept_mib << 20)
    if as_json:
        click.echo(to_json(gone))
        return 0
    for one in gone:
        click.echo(f"{one.id:<16} {one.size / (1 << 20):.1f} MiB")
    click.echo(f"{len(gone)} removed, {sum(one.size for one in gone) / (1 << 20):.1f} MiB")
    return 0
