"""Commands that are loaded when they are used."""

import click
import pytest

from holdfast.commands.clickoptions import Deferred


def group() -> Deferred:
    made = Deferred("g", deferred={"task": "commands.task.task", "cp": "commands.cp"})
    made.add_command(click.Command("near"))
    return made


def test_all_commands_are_listed_and_none_is_loaded_for_that() -> None:
    made = group()
    assert made.list_commands(click.Context(made)) == ["cp", "near", "task"]
    assert list(made.commands) == ["near"]


def test_a_command_is_loaded_once_when_it_is_asked_for() -> None:
    made = group()
    context = click.Context(made)
    found = made.get_command(context, "task")
    assert isinstance(found, click.Group)
    assert found is made.get_command(context, "task")
    assert sorted(made.commands) == ["near", "task"]


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    made = group()
    with pytest.raises(click.UsageError, match=r"No such command 'tsk'. Did you mean 'task'\?"):
        made.resolve_command(click.Context(made), ["tsk"])
    assert list(made.commands) == ["near"]
    with pytest.raises(click.UsageError, match=r"No such command 'nothing'.$"):
        made.resolve_command(click.Context(made), ["nothing"])


def test_what_there_is_not_is_not_found() -> None:
    made = group()
    assert made.get_command(click.Context(made), "nothing") is None
