"""`holdfast config`: parse, call, print."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.errors import HoldfastError, UsageError, face

if TYPE_CHECKING:
    from holdfast.agentconfig.order import Order, Plan

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group()
def config() -> None:
    """Write a configuration for an agent that is really in force."""


@config.group()
def codex() -> None:
    """The Codex CLI: decide about its sandbox for this machine, and write that.

    Exit codes of all of these: 0 done; 1 what is in force differs (check); 2 the arguments or the file
    make no sense; 65 Codex refuses the file; 66 something named is not there; 71 it could not be
    written; 125 no safe decision is possible here, and nothing was written.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What was wished for, the same for all."""
    for option in reversed(
        (
            click.option("--home", type=_DIRECTORY, help="Your own CODEX_HOME.  [default: as Codex]"),
            click.option("--task-home", type=_DIRECTORY, help="A home for one task; no link is followed."),
            click.option("--cwd", type=_DIRECTORY, help="Where the agent works.  [default: here]"),
            click.option(
                "--network",
                metavar="none|full|HOST",
                multiple=True,
                help="What commands reach; a host can be repeated.  [default: none]",
            ),
            click.option(
                "--writes",
                type=click.Choice(["nothing", "workspace", "git", "everything"]),
                default="workspace",
                show_default=True,
                help="What commands change; git is the workspace and its commits.",
            ),
            click.option(
                "--writable", metavar="PATH", type=_DIRECTORY, multiple=True, help="Also. Can be repeated."
            ),
            click.option("--board", metavar="DIR", type=_DIRECTORY, help="Also, for a worker of a board."),
            click.option(
                "--boundary",
                type=click.Choice(["none", "user", "container", "vm"]),
                default="none",
                show_default=True,
                help="What you know to be around the agent; it is never guessed.",
            ),
            click.option(
                "--trusted",
                metavar="REPO",
                type=_DIRECTORY,
                multiple=True,
                help="You have read its .codex; it may change what is written here. Can be repeated.",
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON object with a stable schema."),
        )
    ):
        command = option(command)
    return command


@codex.command()
@_options
def plan(as_json: bool, **wished: Any) -> None:
    """Print the decision, its reason and the change; write nothing."""
    from holdfast.agentconfig import order
    from holdfast.agentconfig.decision import Severity

    try:
        planned = order.plan(_order(**wished))
    except HoldfastError as exc:
        _fail(exc)
    _show(planned, as_json=as_json, done="would change")
    sys.exit(125 if planned.decision.severity is Severity.REFUSED else 0)


@codex.command()
@_options
def apply(as_json: bool, **wished: Any) -> None:
    """Decide, and write it into config.toml; what was there is kept beside it."""
    from holdfast.agentconfig import order

    try:
        applied = order.apply(_order(**wished))
    except HoldfastError as exc:
        _fail(exc)
    _show(applied, as_json=as_json, done="changed")


@codex.command()
@_options
@click.option(
    "-c", "overrides", metavar="KEY=VALUE", multiple=True, help="As it will be given to codex at launch."
)
def check(as_json: bool, overrides: tuple[str, ...], **wished: Any) -> None:
    """Ask the real Codex for the values in force, and compare them with the decision."""
    from holdfast.agentconfig import order

    try:
        planned, found = order.check(_order(**wished), overrides)
    except HoldfastError as exc:
        _fail(exc)
    if as_json:
        tree = {
            "schemaVersion": 1,
            "decision": planned.decision.report(),
            "differences": [each.report() for each in found],
        }
        click.echo(json.dumps(tree))
    else:
        for each in found:
            click.echo(f"differs: {each}")
        click.echo(
            f"{len(found)} values are not in force; try: holdfast config codex apply, with the same options"
            if found
            else f"{planned.decision.mode}: all {len(planned.settings.items)} values are in force"
        )
    sys.exit(1 if found else 0)


@codex.command()
@_options
def remove(as_json: bool, **wished: Any) -> None:
    """Take out what apply wrote, and give back what that had displaced."""
    from holdfast.agentconfig import order

    try:
        edited = order.remove(_order(**wished))
    except HoldfastError as exc:
        _fail(exc)
    if as_json:
        click.echo(json.dumps({"schemaVersion": 1, "file": str(edited.path), "changed": edited.changed}))
    else:
        click.echo(f"{edited.path}: {'removed' if edited.changed else 'nothing of ours is in it'}")


def _order(
    *,
    home: Path | None,
    task_home: Path | None,
    cwd: Path | None,
    network: tuple[str, ...],
    writes: str,
    writable: tuple[Path, ...],
    board: Path | None,
    boundary: str,
    trusted: tuple[Path, ...],
) -> "Order":
    from holdfast.agentconfig.decision import Boundary, Writes
    from holdfast.agentconfig.order import Order

    if home is not None and task_home is not None:
        raise UsageError("--home and --task-home exclude each other", remedy="leave one of them out")
    own = home or Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    return Order(
        home=Path(os.path.abspath(task_home or own)),
        task=task_home is not None,
        cwd=Path(os.path.abspath(cwd or Path.cwd())),
        network=network,
        writes=Writes(writes),
        writable=writable,
        board=board,
        boundary=Boundary(boundary),
        trusted=trusted,
    )


def _show(planned: "Plan", *, as_json: bool, done: str) -> None:
    if as_json:
        click.echo(json.dumps(planned.report()))
        return
    decision = planned.decision
    click.echo(f"{decision.severity}: {decision.mode} ({decision.row})")
    click.echo(f"  because: {decision.reason}")
    for note in decision.notes:
        click.echo(f"  mind: {note}")
    for remedy in decision.remedies:
        click.echo(f"  try: {remedy}")
    for layer in planned.layers:
        click.echo(f"  the repository brings {layer}")
    for conflict in planned.conflicts:
        click.echo(f"  line {conflict.line}: {conflict.kind}: {conflict.detail}")
    if decision.flags:
        click.echo(f"  launch: codex exec {_quoted(decision.flags)}")
    lines = planned.diff()
    click.echo(f"{planned.path}: {done if lines else 'nothing changes'}")
    for line in lines:
        click.echo(line)


def _quoted(flags: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(flags)


def _fail(exc: HoldfastError) -> NoReturn:
    click.echo(f"holdfast: {exc}", err=True)
    if exc.remedy:
        click.echo(f"  try: {exc.remedy}", err=True)
    sys.exit(face(exc).exit)
