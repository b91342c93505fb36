"""One --home for every command that has to do with daemons or workers, and the board that is in it."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import cli
from holdfast.commands.clickoptions import home_option
from holdfast.commands.store import store_option

TOP = ("dispatch", "down", "mcp", "open", "status", "up", "web")


def commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in (*TOP, "worker")}
    worker = found.pop("worker")
    assert isinstance(worker, click.Group)
    more = {f"worker {name}": worker.get_command(context, name) for name in worker.list_commands(context)}
    return {name: command for name, command in (found | more).items() if command is not None}


def test_every_command_about_daemons_and_workers_takes_a_home() -> None:
    found = commands()
    assert set(TOP) < set(found)
    without = [name for name, one in found.items() if "--home" not in {o for p in one.params for o in p.opts}]
    assert without == []


@click.command()
@store_option
@home_option
def shown(home: Path, address: str) -> None:
    click.echo(f"{home}\n{address}")


@pytest.mark.parametrize(
    ("words", "home", "address"),
    [
        (["--home", "below"], "{here}/below", "{here}/below/board.db"),
        (["--store", "x.db", "--home", "/srv/h"], "/srv/h", "x.db"),
        ([], "/elsewhere", "/elsewhere/board.db"),
    ],
)
def test_a_home_is_absolute_and_the_board_is_in_it_unless_it_is_named(
    words: list[str], home: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"HOLDFAST_HOME": "/elsewhere", "HOLDFAST_STORE": None})
    said = runner.invoke(shown, words).output.split()
    assert said == [home.format(here=tmp_path), address.format(here=tmp_path)]
