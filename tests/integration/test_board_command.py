"""`holdfast board` and `holdfast task` as processes: what they print, and how they exit."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import NewTask, WorkspaceKind
from holdfast.board.rules.transitions import Actor, Move, TaskStatus, moves
from holdfast.board.store import open_store
from holdfast.commands.task.change import MOVES
from holdfast.commands.task.look import STATUSES, STOPPED
from tests.support.board_command import Board
from tests.support.boards import claimed

pytestmark = pytest.mark.timeout(300)  # dozens of processes


@pytest.fixture
def board(sqlite_board: Board) -> Board:
    """The databases themselves are tested elsewhere, and one life goes through both."""
    return sqlite_board


def test_a_task_goes_through_its_life_on_the_command_line(address: str, tmp_path: Path) -> None:
    board = Board(address, tmp_path / "home")
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
    board.answer("task", "move", str(child["id"]), "unblock", "--in", "1h", code=2)
    board.answer("task", "move", str(child["id"]), "schedule", code=2)
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


def test_a_command_that_is_started_says_and_does_what_the_loaded_one_does(
    address: str, tmp_path: Path
) -> None:
    """The other tests here take the loaded one."""
    board = Board(address, tmp_path / "home")
    assert board.cold("board", "create", "b", "--title", "Demo", "--json").returncode == 0
    made = board.cold("task", "create", "first", "--board", "b", "--key", "k", "--json")
    assert json.loads(made.stdout)["task"] == board.task("create", "first", "--board", "b", "--key", "k")
    (board.cwd / ".holdfast.toml").write_text('board = "b"\n', "utf-8")
    for words in (
        ("--help",),
        ("task", "list"),
        ("task", "list", "--json"),
        ("task", "show", "t_nothing"),
        ("task", "list", "--limit", "0", "--json"),
        ("task", "nothing"),
        ("board", "list", "--store", f"postgresql:///x?host={tmp_path}"),
    ):
        cold, loaded = board.cold(*words), board.run(*words)
        assert (cold.returncode, cold.stdout, cold.stderr) == (
            loaded.returncode,
            loaded.stdout,
            loaded.stderr,
        ), words


def test_a_short_id_means_the_one_task_that_begins_so(address: str, tmp_path: Path) -> None:
    board = Board(address, tmp_path / "home")
    board.answer("board", "create", "b")
    ids = [str(board.task("create", f"task {n}", "--board", "b")["id"]) for n in range(2)]
    for given in (ids[0], ids[0][:-1], ids[0][2:], ids[0][2:-2]):
        assert board.answer("task", "why", given)["why"]["task"] == ids[0]  # type: ignore[index]
    board.answer("task", "link", ids[0][2:], ids[1][2:])
    assert board.task("create", "third", "--board", "b", "--parent", ids[1][2:])["status"] == "todo"
    assert "several" in str(board.answer("task", "why", "t_", code=2)["error"])
    board.answer("task", "why", "", code=3)
    board.answer("task", "why", "zz", code=3)


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
    other = Board(str(tmp_path / "other.db"), tmp_path / "other")
    other.answer("board", "restore", file)
    assert other.tasks() == [task]


def test_a_task_is_changed_without_being_moved(sqlite_board: Board, tmp_path: Path) -> None:
    sqlite_board.answer("board", "create", "b")
    task = str(
        sqlite_board.task(
            "create", "x", "--board", "b", "--workspace", f"dir:{tmp_path}", "--max-runtime", "5m"
        )["id"]
    )
    edited = sqlite_board.task(
        "edit", task, "--title", "y", "--max-runtime", "none", "--workspace", "scratch"
    )
    assert (edited["title"], edited["max_runtime_s"], edited["workspace_kind"]) == ("y", None, "scratch")
    assert sqlite_board.task("assign", task, "writer")["assignee"] == "writer"
    sqlite_board.answer("task", "edit", task, code=2)
    sqlite_board.answer("task", "edit", task, "--max-runtime", "soon", code=2)
    sqlite_board.answer("task", "edit", task, "--workspace", "nowhere", code=2)


def test_a_file_goes_to_a_task_and_comes_back(sqlite_board: Board, tmp_path: Path) -> None:
    sqlite_board.answer("board", "create", "b")
    task = str(sqlite_board.task("create", "x", "--board", "b")["id"])
    (tmp_path / "notes.txt").write_bytes(b"hello\n")
    for _ in range(2):
        sqlite_board.answer("task", "attach", task, str(tmp_path / "notes.txt"))
    assert sqlite_board.run("task", "file", task, "notes.txt").stdout == "hello\n"
    assert sqlite_board.answer("task", "file", task, "notes.txt")["content"] == "hello\n"
    assert "notes.txt" in sqlite_board.run("task", "show", task).stdout
    (tmp_path / "notes.txt").write_bytes(b"another\n")
    sqlite_board.answer("task", "attach", task, str(tmp_path / "notes.txt"), code=4)
    sqlite_board.answer("task", "attach", task, str(tmp_path / "nothing"), code=3)
    sqlite_board.answer("task", "file", task, "nothing", code=3)


def test_a_missing_report_is_asked_for_again(sqlite_board: Board) -> None:
    sqlite_board.answer("board", "create", "b")
    task = str(sqlite_board.task("create", "x", "--board", "b")["id"])
    sqlite_board.answer("task", "retry", task, code=1)
    with open_store(sqlite_board.address) as store:
        store.fail(claimed(store, task)[1].ref, FailureKind.HANDOFF)
    assert sqlite_board.task("retry", task, "--report-only")["report_only"] is True


def test_a_board_stands_still_and_is_put_away(sqlite_board: Board) -> None:
    sqlite_board.answer("board", "create", "b")
    sqlite_board.answer("board", "cap", "b", "2")
    sqlite_board.answer("board", "cap", "b", "1", "--profile", "coder", "--host", "h", code=2)
    sqlite_board.answer("board", "cap", "b", "3", "--pool", "gpu")
    capped = sqlite_board.answer("board", "cap", "b", "1", "--profile", "coder")["capacity"]
    assert capped == {"board": 2, "profiles": {"coder": 1}, "hosts": {}, "pools": {"gpu": 3}}
    task = str(sqlite_board.task("create", "x", "--board", "b", "--assignee", "coder")["id"])
    assert "no worker accepts it" in sqlite_board.run("task", "why", task).stdout
    sqlite_board.answer("board", "pause", "b")
    assert "paused" in sqlite_board.run("task", "why", task).stdout
    assert "paused" in sqlite_board.run("board", "show", "b").stdout
    sqlite_board.answer("board", "resume", "b")
    sqlite_board.answer("board", "archive", "b")
    assert sqlite_board.answer("board", "list")["boards"] == []
    assert "archived" in sqlite_board.run("board", "list", "--all").stdout
    sqlite_board.answer("task", "create", "y", "--board", "b", code=1)
    sqlite_board.answer("board", "archive", "b", "--undo")
    sqlite_board.task("create", "y", "--board", "b")


def test_a_title_does_not_command_the_terminal(board: Board) -> None:
    board.answer("board", "create", "b")
    board.task("create", "red \x1b[31m", "--board", "b")
    assert "\x1b" not in board.run("task", "list", "--board", "b").stdout


def test_a_task_that_nobody_would_take_is_made_with_a_warning(sqlite_board: Board) -> None:
    sqlite_board.run("board", "create", "b")
    unknown = sqlite_board.answer("task", "create", "x", "--board", "b", "--assignee", "nonesuch")
    assert unknown["warnings"] == ["warning: `nonesuch` is no worker profile here: the task waits"]
    idle = sqlite_board.run("task", "create", "x", "--board", "b", "--assignee", "script")
    assert "warning: no dispatcher works for the board b: the task waits" in idle.stderr
    assert "up --board b" in idle.stderr
    assert len(idle.stdout.splitlines()) == 1  # whose first word is the id, for scripts
    with open_store(sqlite_board.address) as store:
        store.offer("b", "here", ["script"])
    told = sqlite_board.answer("task", "create", "x", "--board", "b", "--assignee", "script")
    assert "warnings" not in told
    nobody = sqlite_board.answer("task", "create", "x", "--board", "b", "--triage")
    assert "warnings" not in nobody


def test_whoever_asks_which_board_is_told_which_there_are(sqlite_board: Board) -> None:
    asked = (("task", "list"), ("dispatch",))
    for words in asked:
        assert "there are" not in sqlite_board.run(*words).stderr  # there is no store, and none is made
    for name in ("b", "crew"):
        sqlite_board.run("board", "create", name)
    for words in asked:
        done = sqlite_board.run(*words)
        assert (done.returncode, "there are: b, crew" in done.stderr) == (2, True), done.stderr


def test_approved_work_of_a_worktree_says_where_it_is_and_how_to_take_it(sqlite_board: Board) -> None:
    repository = sqlite_board.home / "my project"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(repository))
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    sqlite_board.run("board", "create", "b")
    new = NewTask(
        title="it's done", assignee="x", workspace_kind=WorkspaceKind.WORKTREE, workspace=str(repository)
    )
    with open_store(sqlite_board.address) as store:
        _, run = claimed(store, store.create("b", new).id)
        task = store.request_review(run.ref, "e", "look")
    folder = sqlite_board.home / "board" / task.id
    subprocess.run([*git, "worktree", "add", "-q", "-b", f"holdfast/{task.id}", str(folder)], check=True)
    (folder / ".holdfast").mkdir()
    (folder / ".holdfast" / "run.json").write_text("{}")
    (folder / "made.txt").write_text("made")
    done = sqlite_board.run("task", "review", task.id, "--approve")
    assert f"the branch holdfast/{task.id}, in {folder}" in done.stdout
    commands = [line.strip()[2:] for line in done.stdout.splitlines() if line.strip().startswith("$ ")]
    assert len(commands) == 2
    names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in commands:
        subprocess.run(["sh", "-c", command], check=True, env=os.environ | names, capture_output=True)
    assert (repository / "made.txt").read_text() == "made"
    assert not (repository / ".holdfast").exists()


def test_the_command_line_offers_the_statuses_and_moves_that_there_are() -> None:
    assert list(STATUSES) == list(TaskStatus)
    assert set(STOPPED) < set(STATUSES)
    offered = {Move(move) for move in MOVES}
    assert offered == {move for status in TaskStatus for move in moves(status, Actor.PERSON)}
