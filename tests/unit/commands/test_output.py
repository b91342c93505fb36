"""What we say to type can be typed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.commands import output
from holdfast.commands.output import pasteable, pasteable_line
from holdfast.errors import NotFound


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    output._own_name.cache_clear()
    yield
    output._own_name.cache_clear()


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A `holdfast` that is run by its path."""
    program = tmp_path / "a b" / "holdfast"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return f"'{program}'"


def test_on_the_path_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "holdfast").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pasteable("holdfast up, or holdfast web") == "holdfast up, or holdfast web"


def test_elsewhere_the_whole_path_is_said(missing: str) -> None:
    assert pasteable("holdfast up, or holdfast web") == f"{missing} up, or {missing} web"


def test_the_name_and_paths_are_left_alone(missing: str) -> None:
    for text in ("install holdfast-agents", "holdfast is missing", "see /opt/holdfast task", "myholdfast up"):
        assert pasteable(text) == text


def test_as_a_module_it_is_named_as_one(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/holdfast/__main__.py"])
    assert pasteable("holdfast up") == f"{sys.executable} -P -m holdfast up"


def test_only_lines_that_advise_are_changed(missing: str) -> None:
    assert pasteable_line("  try: holdfast open") == f"  try: {missing} open"
    assert pasteable_line("holdfast task retry t_1") == f"{missing} task retry t_1"
    assert pasteable_line("the body: run holdfast task list") == "the body: run holdfast task list"


def test_what_is_wrong_is_one_line_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command("c", cls=output.AnswerCommand)
    @click.argument("which", type=click.Choice(["yes", "no"]))
    def command(which: str) -> None: ...

    with pytest.raises(SystemExit, match="2"):
        command(["--", *()], standalone_mode=False)
    assert capsys.readouterr().err == "holdfast: Missing argument '{yes|no}'. Choose from: yes, no\n"


def test_what_was_pasted_by_mistake_does_not_hide_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        output.fail(NotFound(f"there is no task {'A' * 100_000} here"))
    told = capsys.readouterr().err
    assert len(told) < 5000
    assert told.startswith("holdfast: there is no task AAA")
    assert told.endswith("AAA here\n")
