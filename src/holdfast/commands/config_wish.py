"""What the commands of `holdfast config` have in common: the options, the order they make, what is shown."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from holdfast.commands.pasting import pasteable
from holdfast.errors import HoldfastError, UsageError, face

if TYPE_CHECKING:
    from holdfast.agentconfig.decision import AgentName
    from holdfast.agentconfig.files import Edited
    from holdfast.agentconfig.order import EditPlan, Order
    from holdfast.agentconfig.settings import ConfigDrift

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """What was wished for, the same for all."""
    for option in reversed(
        (
            click.option(
                "--home", type=_DIRECTORY, help="Your own configuration directory.  [default: the agent's]"
            ),
            click.option("--task-home", type=_DIRECTORY, help="A home for one task; no link is followed."),
            click.option("--cwd", type=_DIRECTORY, help="Where the agent works.  [default: here]"),
            click.option(
                "--network",
                metavar="none|full|HOST",
                multiple=True,
                help="What commands may reach; repeat for more hosts.  [default: none]",
            ),
            click.option(
                "--writes",
                type=click.Choice(["nothing", "workspace", "git", "everything"]),
                default="workspace",
                show_default=True,
                help="What commands may change; git means the workspace and its commits.",
            ),
            click.option(
                "--writable",
                metavar="PATH",
                type=_DIRECTORY,
                multiple=True,
                help="Also let commands write PATH. Can be repeated.",
            ),
            click.option(
                "--board", metavar="DIR", type=_DIRECTORY, help="Also let a worker write its board's files."
            ),
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
                help="Trust a repository whose files you have read. Can be repeated.",
            ),
            click.option(
                "--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema."
            ),
        )
    ):
        command = option(command)
    return command


def order(
    agent: "AgentName",
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
    from holdfast.agentconfig.ownfile import own_home

    if home is not None and task_home is not None:
        raise UsageError("--home and --task-home cannot be used together", remedy="leave one of them out")
    own = home or own_home(agent)
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


def show(planned: "EditPlan", *, as_json: bool, done: str) -> None:
    if as_json:
        click.echo(json.dumps(planned.report()))
        return
    decision = planned.decision
    click.echo(f"{decision.severity}: {decision.mode} ({decision.row})")
    click.echo(f"  because: {decision.reason}")
    for note in decision.notes:
        click.echo(f"  mind: {note}")
    for remedy in decision.remedies:
        click.echo(f"  try: {pasteable(remedy)}")
    for layer in planned.layers:
        click.echo(f"  the repository brings {layer}")
    for conflict in planned.conflicts:
        click.echo(f"  line {conflict.line}: {conflict.kind}: {conflict.detail}")
    if planned.launch:
        click.echo(f"  launch: {planned.launch}")
    lines = planned.diff()
    click.echo(f"{planned.path}: {done if lines else 'nothing changes'}")
    for line in lines:
        click.echo(line)


def compared(
    planned: "EditPlan", found: "list[ConfigDrift]", unseen: tuple[str, ...], *, agent: str, as_json: bool
) -> NoReturn:
    """Say what differs and what could not be told; 1 if anything does."""
    if as_json:
        tree = {
            "schemaVersion": 1,
            "decision": planned.decision.report(),
            "differences": [each.report() for each in found],
            "notVerified": list(unseen),
        }
        click.echo(json.dumps(tree))
        sys.exit(1 if found else 0)
    for difference in found:
        click.echo(f"differs: {difference}")
    click.echo(
        f"{len(found)} values are not in force; try: holdfast config {agent} apply, with the same options"
        if found
        else f"{planned.decision.mode}: all values are in force"
    )
    for each in unseen:
        click.echo(f"  not verified: {each}")
    if planned.launch:
        click.echo(f"  only in a launch such as: {planned.launch}")
    sys.exit(1 if found else 0)


def removed(edited: "Edited", *, as_json: bool) -> None:
    """Say what became of the file."""
    if as_json:
        click.echo(json.dumps({"schemaVersion": 1, "file": str(edited.path), "changed": edited.changed}))
    else:
        click.echo(f"{edited.path}: {'removed' if edited.changed else 'nothing of ours is in it'}")


def fail(exc: HoldfastError) -> NoReturn:
    click.echo(f"holdfast: {exc}", err=True)
    if exc.remedy:
        click.echo(f"  try: {pasteable(exc.remedy)}", err=True)
    sys.exit(face(exc).exit)
