"""`holdfast board` and `holdfast task` as processes: what they print, and how they exit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.board.store import open_store
from holdfast.board.transitions import Actor, Move, Status, moves
from holdfast.commands.task_change import MOVES
from holdfast.commands.task_look import STATUSES, STOPPED
from tests.support.boards import claimed

WAIT_S = 60

pytestmark = pytest.mark.timeout(300)  # dozens of processes, each of which starts an interpreter


class Board:
    """Commands on one store."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "HOLDFAST_STORE": self.address}
        command = [sys.executable, "-m", "holdfast", *args]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    def answer(self, *args: str, code: int = 0) -> dict[str, object]:
        done = self.run(*args, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        assert found["schemaVersion"] == 1
        return found

    def tasks(self, *args: str) -> list[dict[str, object]]:
        found = self.answer("task", "list", "--board", "b", *args)["tasks"]
        assert isinstance(found, list)
        return found

    def task(self, *args: str) -> dict[str, object]:
        found = self.answer("task", *args)["task"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def board(address: str) -> Board:
    return Board(address)


def test_a_task_goes_through_its_life_on_the_command_line(board: Board) -> None:
    board.answer("board", "create", "b", "--title", "Demo", "--max-running", "1")
    parent = board.task(
        "create", "first", "--board", "b", "--assignee", "coder", "--key", "k", "--priority", "3"
    )
    assert (
        board.task("create", "first", "--board", "b", "--assignee", "coder", "--key", "k", "--priority", "3")
        == parent
    )
    child = board.task("create", "second", "--board", "b", "--parent", str(parent["id"]))
    assert child["status"] == "todo"
    with open_store(board.address) as store:
        _, run = claimed(store, str(parent["id"]))
        assert board.answer("task", "why", str(child["id"]))["why"] == {
            "task": child["id"],
            "status": "todo",
            "reason": f"waits for {parent['id']} (running)",
        }
        store.complete(run.ref, "e", "made it")
    assert [each["id"] for each in board.tasks("--status", "ready")] == [child["id"]]
    board.answer("task", "comment", str(child["id"]), "hello")
    assert board.task("block", str(child["id"]), "blue?", "--option", "yes", "--for", "ann")["options"] == [
        "yes"
    ]
    assert board.task("unblock", str(child["id"]))["status"] == "ready"
    assert board.task("move", str(child["id"]), "schedule", "--in", "1h")["status"] == "scheduled"
    assert board.task("complete", str(child["id"]), "--result", "by hand")["result"] == "by hand"
    shown = board.run("task", "show", str(parent["id"])).stdout
    assert "made it" in shown
    assert "completed" in board.run("task", "runs", str(parent["id"])).stdout
    assert "done" in board.run("board", "stats", "b").stdout
    assert "Demo" in board.run("board", "show", "b").stdout
    assert board.run("board", "list").stdout.split() == ["b", "Demo"]


def test_exit_codes_and_errors_are_the_same_for_people_and_programs(board: Board, tmp_path: Path) -> None:
    assert board.answer("board", "list", code=3)["error"]
    board.answer("board", "create", "b")
    task = str(board.task("create", "x", "--board", "b")["id"])
    cases = {
        1: ("task", "move", task, "archive"),
        2: ("task", "list", "--board", "b", "--limit", "0"),
        3: ("task", "show", "t_nothing"),
        4: ("board", "create", "b"),
        5: ("board", "list", "--store", f"postgresql:///x?host={tmp_path}"),
    }
    for code, args in cases.items():
        error = board.answer(*args, code=code)["error"]
        assert isinstance(error, dict)
        assert error["exit"] == code
        plain = board.run(*args)
        assert plain.returncode == code
        assert plain.stdout == ""
        assert str(error["message"]) in plain.stderr
    assert board.answer("task", "list", code=2)["error"]


def test_a_link_is_made_and_removed_and_a_cycle_refused(board: Board) -> None:
    board.answer("board", "create", "b")
    first, second = (str(board.task("create", name, "--board", "b")["id"]) for name in ("one", "two"))
    assert board.task("link", first, second)["status"] == "todo"
    board.answer("task", "link", second, first, code=1)
    assert board.task("link", first, second, "--remove")["status"] == "ready"
    assert board.task("cancel", first, "--reason", "no need")["reason"] == "no need"


def test_a_store_is_backed_up_and_restored(board: Board, tmp_path: Path) -> None:
    board.answer("board", "create", "b")
    task = board.task("create", "kept", "--board", "b")
    file = str(tmp_path / "out.jsonl")
    board.answer("board", "backup", file)
    board.answer("board", "restore", file, code=4)
    other = Board(str(tmp_path / "other.db"))
    other.answer("board", "restore", file)
    assert other.tasks() == [task]


def test_a_title_does_not_command_the_terminal(board: Board) -> None:
    board.answer("board", "create", "b")
    board.task("create", "red \x1b[31m", "--board", "b")
    assert "\x1b" not in board.run("task", "list", "--board", "b").stdout


def test_the_command_line_offers_the_statuses_and_moves_that_there_are() -> None:
    assert list(STATUSES) == list(Status)
    offered = {Move(move) for move in MOVES}
    assert offered == {move for status in Status for move in moves(status, Actor.PERSON)}
