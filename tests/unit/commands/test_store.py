"""One --home for every command that is about one, the board that is in it, and both in what is printed."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import cli
from holdfast.commands import output
from holdfast.commands.clickoptions import home_option, note_typed
from holdfast.commands.output import pasteable
from holdfast.commands.store import place_options, store_option

# They are about no home: commands, machines and their names, and workers that are told where to report.
WITHOUT_HOME = {
    *("cp", "doctor", "doctor compare", "doctor explain", "doctor selfcheck", "exec", "forward"),
    *("environment add", "environment bridge", "environment remove"),
    *("handoff attach", "handoff block", "handoff comment", "handoff complete", "handoff create"),
    *("handoff heartbeat", "handoff link", "handoff review", "handoff show"),
}


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    """All below this group that do something, with the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, *words, name)
        if not isinstance(found, click.Group) or found.invoke_without_command:
            yield " ".join([*words, name]), found


def options(command: click.Command) -> set[str]:
    return {name for option in command.params for name in option.opts}


def test_every_command_about_a_home_takes_one() -> None:
    found = dict(commands(cli))
    assert {"task list", "board switch", "relay token add", "worker run", "up"} < set(found)
    assert {name for name, one in found.items() if "--home" not in options(one)} == WITHOUT_HOME


def test_what_is_printed_gets_only_options_that_are_there() -> None:
    """A command whose words get --home and --store has them."""
    wrong = []
    for name, one in commands(cli):
        if name.startswith("config "):  # its --home is the agent's
            continue
        context = click.Context(one)
        note_typed(context, "--home", "/h")
        note_typed(context, "--store", "/s")
        with context:
            words = pasteable(f"holdfast {name}").split()
        added = {word for word in words if word.startswith("--")}
        expected = options(one) & {"--store"} | (
            {"--home"} if {"--home", "--store"} <= options(one) else added
        )
        wrong += [name] if added != expected or not added <= options(one) else []
    assert wrong == []


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


@click.command()
@place_options
def advised(address: str) -> None:
    click.echo(pasteable("holdfast task list, holdfast open, holdfast dispatch status, holdfast exec"))


@pytest.mark.parametrize(
    ("words", "home", "store"),
    [
        ([], "", ""),
        (["--home", "a b"], " --home '{here}/a b'", ""),
        (["--store", "x.db"], "", " --store {here}/x.db"),
        (["--store", "postgresql://ann:a@b/c@db/x?password=d"], "", " --store 'postgresql://ann@db/x?'"),
    ],
)
def test_a_command_that_is_printed_names_the_home_and_the_store_that_were_typed(
    words: list[str], home: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_own_name", lambda: "holdfast")
    home, store = home.format(here=tmp_path), store.format(here=tmp_path)
    assert CliRunner(env={"HOLDFAST_STORE": "/elsewhere.db"}).invoke(advised, words).output.strip() == (
        f"holdfast task list{home}{store}, holdfast open{home}, holdfast dispatch status{home}, holdfast exec"
    )


def test_a_board_is_switched_and_found_in_the_home_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(
        env={"HOLDFAST_HOME": str(tmp_path / "usual"), "HOLDFAST_STORE": None, "HOLDFAST_BOARD": None}
    )
    for words in ("board create crew", "board switch crew", "task create Fix --triage", "task list"):
        said = runner.invoke(cli, [*words.split(), "--home", str(tmp_path / "other")])
        assert said.exit_code == 0, said.output
    assert "Fix" in said.output
    assert not (tmp_path / "usual").exists()


def test_a_profile_of_the_home_that_is_named_is_known_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_own_name", lambda: "holdfast")
    home = tmp_path / "other"
    runner = CliRunner(env={"HOLDFAST_HOME": str(tmp_path / "usual"), "HOLDFAST_STORE": None})
    assert runner.invoke(cli, ["board", "create", "crew", "--home", str(home)]).exit_code == 0
    (home / "worker-profiles.toml").write_text('[mine]\ncommand = ["true"]\n')
    said = runner.invoke(
        cli, ["task", "create", "Fix", "--board", "crew", "--assignee", "mine", "--home", str(home)]
    )
    assert f"  try: holdfast up --home {home} --board crew" in said.output
