"""Which board a command means, and that it says where it has that from."""

from pathlib import Path

import pytest

from tests.support.board_command import Board

pytestmark = pytest.mark.timeout(300)  # dozens of processes


@pytest.fixture
def boards(tmp_path: Path) -> Board:
    """A store with boards `one` to `four`."""
    made = Board(str(tmp_path / "board.db"), tmp_path / "home")
    for name in ("one", "two", "three", "four"):
        made.answer("board", "create", name)
    return made


def test_a_command_that_names_no_board_is_refused_where_nothing_else_does(boards: Board) -> None:
    boards.answer("task", "list", code=2)
    boards.answer("task", "create", "x", code=2)


def test_option_environment_project_and_switch_come_in_this_order(boards: Board) -> None:
    boards.answer("board", "switch", "one")
    assert boards.answer("task", "list")["boardUsed"] == {"name": "one", "from": "switched"}
    (boards.cwd / ".holdfast.toml").write_text('board = "two"\n', "utf-8")
    assert boards.answer("task", "list")["boardUsed"] == {"name": "two", "from": "project"}
    boards.cwd = boards.cwd / "below"
    boards.cwd.mkdir()
    assert boards.answer("task", "list")["boardUsed"] == {"name": "two", "from": "project"}
    boards.environment["HOLDFAST_BOARD"] = "three"
    assert boards.answer("task", "list")["boardUsed"] == {"name": "three", "from": "environment"}
    assert boards.task("create", "x", "--board", "four")["board"] == "four"
    assert "boardUsed" not in boards.answer("task", "list", "--board", "four")


def test_only_a_board_that_there_is_can_be_switched_to(boards: Board) -> None:
    boards.answer("board", "switch", "five", code=3)
    boards.answer("task", "list", code=2)


@pytest.mark.parametrize("text", ["board = 7\n", "board = [\n", "\x00\xff"])
def test_a_project_file_that_is_none_is_refused(boards: Board, text: str) -> None:
    (boards.cwd / ".holdfast.toml").write_text(text, "latin-1")
    boards.answer("task", "list", code=2)
