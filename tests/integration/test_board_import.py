"""`holdfast board import-hermes`, from files as Hermes makes them, into both databases."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.board.hermes import hermesfile
from holdfast.board.hermes.intake import import_board
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.errors import Conflict, InvalidRequest, NotFound
from tests.support import warm
from tests.support.patience import patient

WAIT_S = patient(60)
SCHEMA = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT NOT NULL, body TEXT, assignee TEXT, status TEXT NOT NULL,
    priority INTEGER DEFAULT 0, created_by TEXT, created_at INTEGER NOT NULL, completed_at INTEGER,
    idempotency_key TEXT);
CREATE TABLE task_links (parent_id TEXT NOT NULL, child_id TEXT NOT NULL, PRIMARY KEY (parent_id, child_id));
CREATE TABLE task_comments (id INTEGER PRIMARY KEY, task_id TEXT, author TEXT, body TEXT, created_at INTEGER);
CREATE TABLE task_attachments (id INTEGER PRIMARY KEY, task_id TEXT, filename TEXT, stored_path TEXT);
"""  # without the tables of runs and events, as a file of an older version may be


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A board called `shop`, closed by whoever wrote it."""
    folder = tmp_path / "kanban" / "boards" / "shop"
    folder.mkdir(parents=True)
    (folder / "board.json").write_text('{"name": "The shop"}', "utf-8")
    with closing(sqlite3.connect(folder / "kanban.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
        insert(db, "t_parent", "done")
        insert(db, "t_child", "todo")
        db.execute("INSERT INTO task_links VALUES ('t_parent', 't_child')")
        db.execute("INSERT INTO task_comments VALUES (1, 't_child', 'ann', 'hello', 1700000000)")
        db.commit()
    return folder / "kanban.db"


def insert(db: sqlite3.Connection, task: str, status: str, key: str | None = None) -> None:
    db.execute(
        "INSERT INTO tasks (id, title, status, created_at, idempotency_key) VALUES (?, 'x', ?, 1700000, ?)",
        (task, status, key),
    )


def command(address: str, *arguments: str, code: int = 0) -> dict[str, object]:
    words = ["board", "import-hermes", *arguments, "--json"]
    env = {**os.environ, "HOLDFAST_STORE": address}
    done = warm.run(words, env=env, cwd=os.getcwd(), timeout=WAIT_S)
    assert done.returncode == code, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def brought(address: str, file: Path, board: str = "b") -> dict[str, dict[str, int]]:
    with open_store(address) as store:
        source = hermesfile.read(file)
        report = import_board(
            store, source, lambda row: hermesfile.attachment(file, row), board=board, who="me"
        )
        assert store.faults() == []
        return report.counts


def test_a_board_is_brought_in_by_its_folder_and_a_second_time_nothing_changes(
    address: str, file: Path
) -> None:
    first = command(address, str(file.parent))["import"]
    assert isinstance(first, dict)
    assert (first["board"], first["new_board"], first["dry_run"]) == ("shop", True, False)
    assert first["counts"]["tasks"] == {"done → done": 1, "todo → ready": 1}
    with open_store(address) as store:
        detail, events = store.show("t_child"), store.events("shop", after=0)
        assert [(link.parent, link.open) for link in detail.parents] == [("t_parent", False)]
        assert [(comment.author, comment.at_ms) for comment in detail.comments] == [
            ("ann", 1_700_000_000_000)
        ]
        assert store.stats("shop").board.title == "The shop"
        second = command(address, str(file), "--board", "shop")["import"]
        assert isinstance(second, dict)
        assert second["counts"]["tasks"] == {"here before": 2}
        assert store.events("shop", after=0) == events
        assert store.show("t_child") == detail


def test_a_rehearsal_makes_neither_a_board_nor_a_store(tmp_path: Path, file: Path) -> None:
    address = tmp_path / "none" / "board.db"
    found = command(str(address), str(file), "--dry-run")["import"]
    assert isinstance(found, dict)
    assert found["counts"]["tasks"] == {"done → done": 1, "todo → ready": 1}
    assert not address.parent.exists()
    with open_store(str(tmp_path / "board.db")) as store:
        command(str(tmp_path / "board.db"), str(file), "--dry-run")
        assert store.boards() == []


def test_a_later_import_brings_what_is_new_and_leaves_what_was_done_here(address: str, file: Path) -> None:
    brought(address, file)
    with open_store(address) as store:
        won = store.claim("b", worker="w", task="t_child")
        assert won is not None
        store.complete(won[1].ref, "e", "done here")
    with closing(sqlite3.connect(file)) as db:
        insert(db, "t_new", "ready")
        db.execute("INSERT INTO task_links VALUES ('t_child', 't_new')")
        db.execute("UPDATE tasks SET title = 'changed' WHERE id = 't_child'")
        db.commit()
    assert brought(address, file)["tasks"] == {
        "here before": 1,
        "here before, and changed in Hermes since": 1,
        "ready → ready": 1,
    }
    with open_store(address) as store:
        assert (store.task("t_child").title, store.task("t_child").result) == ("x", "done here")
        assert store.task("t_new").status is TaskStatus.READY  # its parent is done here


def test_an_imported_task_runs_here_and_its_children_follow(address: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE tasks SET status = 'ready' WHERE id = 't_parent'")
        db.commit()
    brought(address, file)
    with open_store(address) as store:
        assert store.task("t_child").status is TaskStatus.TODO
        won = store.claim("b", worker="w")
        assert won is not None
        assert won[0].id == "t_parent"
        store.complete(won[1].ref, "e", "ok")
        assert store.task("t_child").status is TaskStatus.READY
        assert store.faults() == []


def test_a_key_used_in_hermes_makes_no_second_task(address: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        insert(db, "t_keyed", "ready", "k")
        db.commit()
    brought(address, file)
    with open_store(address) as store:
        assert store.create("b", NewTask(title="x"), key="k").id == "t_keyed"
        with pytest.raises(Conflict):
            store.create("b", NewTask(title="something else"), key="k")


def test_a_file_at_rest_is_left_without_a_trace(tmp_path: Path, file: Path) -> None:
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    file.chmod(0o400)
    file.parent.chmod(0o500)
    try:
        brought(str(tmp_path / "board.db"), file)
        assert {path: path.read_bytes() for path in file.parent.iterdir()} == before
    finally:
        file.parent.chmod(0o700)


def test_what_is_still_in_the_log_of_a_writer_is_read_too(tmp_path: Path, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        insert(db, "t_fresh", "ready")
        db.commit()
        assert Path(f"{file}-wal").stat().st_size > 0
        assert brought(str(tmp_path / "board.db"), file)["tasks"]["ready → ready"] == 1


def test_an_attachment_comes_from_where_hermes_keeps_it_and_from_nowhere_else(
    tmp_path: Path, file: Path
) -> None:
    folder = file.parent / "attachments" / "t_child"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_bytes(b"read me")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (folder / "link").symlink_to(secret)
    with closing(sqlite3.connect(file)) as db:
        for number, path in enumerate([folder / "notes.txt", secret, folder / "link", folder / ".."], 1):
            db.execute("INSERT INTO task_attachments VALUES (?, 't_child', 'x', ?)", (number, str(path)))
        db.commit()
    counts = brought(str(tmp_path / "board.db"), file)["attachments"]
    assert sorted(counts.values()) == [1, 3]
    with open_store(str(tmp_path / "board.db")) as store:
        assert [found.name for found in store.attachments("t_child")] == ["notes.txt"]
        assert store.file("t_child", None, "notes.txt") == b"read me"


def test_two_boards_of_hermes_do_not_get_mixed_up(address: str, file: Path) -> None:
    brought(address, file, "one")
    with pytest.raises(InvalidRequest):
        brought(address, file, "two")
    with open_store(address) as store:
        assert [board.slug for board in store.boards()] == ["one"]


def test_a_file_that_is_none_of_hermes_is_refused_and_nothing_made(tmp_path: Path, file: Path) -> None:
    address = str(tmp_path / "board.db")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE something (x)")
        db.commit()
    damaged = tmp_path / "damaged.db"
    data = bytearray(file.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    damaged.write_bytes(data)
    (tmp_path / "text").write_text("no database at all, however long it may be" * 10, "utf-8")
    for path in (other, damaged, tmp_path / "text"):
        with pytest.raises(InvalidRequest):
            brought(address, path)
    with pytest.raises(NotFound):
        hermesfile.locate(tmp_path / "nothing")
    error = command(address, str(tmp_path / "nothing"), code=3)["error"]
    assert isinstance(error, dict)
    assert error["kind"] == "NotFound"
    with open_store(address) as store:
        assert store.boards() == []
