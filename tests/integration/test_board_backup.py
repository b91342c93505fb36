"""Backups, exports and restores, and what happens to a file that is damaged."""

import os
import sqlite3
from pathlib import Path

import pytest

from holdfast.board.backup import backup, restore
from holdfast.board.database.database import Transaction
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.errors import Conflict, InvalidRequest, NotFound, StoreDamaged
from tests.support import postgres
from tests.support.boards import SettableClock, claimed, made


def busy_board(store: Store) -> None:
    """Something of every kind of row."""
    parent, run = claimed(store, made(store).id)
    made(store, "child", parent.id)
    store.run_comment(run.ref, "c", "half way")
    store.run_attach(run.ref, "a", "plot.png", bytes(range(256)))
    store.set_run(run.ref, workspace="/srv/t", session="s")
    store.complete(run.ref, "e", "ok", metadata={"n": 1})
    store.keep(run.id, "diff.patch", b"")
    missing, run = claimed(store, made(store, workspace_kind="dir", workspace="/srv/p", max_runtime_s=9).id)
    store.fail(run.ref, FailureKind.HANDOFF)
    store.move(missing.id, Move.RETRY, report_only=True)
    claimed(store, made(store, "another").id)
    store.create("b", NewTask(title="Ünïcode\u2028"), key="k")
    store.set_cap("b", "profile", "coder", 2)
    store.move(made(store).id, Move.BLOCK, question="?")
    for number in range(9):  # more than are read at once
        store.attach(missing.id, f"{number}", b"x" * number)
    store.create_board("old")
    store.archive_board("old")
    store.pause("b", True)


def content(store: Store) -> object:
    """Everything, as far as it can be seen."""
    found = sorted(store.page("b", limit=500).tasks, key=lambda task: task.id)
    return (
        store.boards(),
        [store.show(task.id) for task in found],
        store.events("b", limit=500),
        [
            (file, store.file(task.id, file.run_id, file.name))
            for task in found
            for file in [
                *store.attachments(task.id),
                *(f for run in store.runs(task.id) for f in store.kept_files(run.id)),
            ]
        ],
        store.capacity("b"),
    )


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return str(tmp_path / "home" / "board.db")


def test_an_export_fills_another_store_with_the_same(store: Store, tmp_path: Path, sqlite: str) -> None:
    busy_board(store)
    backup(store, tmp_path / "out.jsonl")
    assert restore(tmp_path / "out.jsonl", sqlite) is None
    with open_store(sqlite) as copy:
        assert content(copy) == content(store)
        assert copy.faults() == []
        assert copy.create("b", NewTask(title="Ünïcode\u2028"), key="k").title == "Ünïcode\u2028"


def test_an_export_of_sqlite_fills_postgres(sqlite: str, tmp_path: Path, postgres_server: str) -> None:
    target = postgres.fresh(postgres_server)
    with open_store(sqlite) as store:
        store.create_board("b")
        busy_board(store)
        backup(store, tmp_path / "out.jsonl")
        restore(tmp_path / "out.jsonl", target)
        with open_store(target) as copy:
            assert content(copy) == content(store)
            made(copy)
    with pytest.raises(Conflict):
        restore(tmp_path / "out.jsonl", target)


@pytest.mark.parametrize("harm", ["cut", "changed", "longer", "other", "empty"])
def test_an_export_that_is_not_whole_changes_nothing(
    sqlite: str, tmp_path: Path, harm: str, clock: SettableClock
) -> None:
    file = tmp_path / "out.jsonl"
    with open_store(sqlite, clock=clock) as store:
        store.create_board("b")
        busy_board(store)
        backup(store, file)
    lines = file.read_bytes().splitlines(keepends=True)
    harmed = {
        "cut": lines[:-1],
        "changed": [line.replace(b"half way", b"no way!!") for line in lines],
        "longer": [*lines, lines[1]],
        "other": [b'{"some":"thing"}\n'],
        "empty": [],
    }
    file.write_bytes(b"".join(harmed[harm]))
    target = str(tmp_path / "new.db")
    with pytest.raises(InvalidRequest):
        restore(file, target)
    with open_store(target) as copy:
        assert copy.boards() == []


def test_a_copy_is_made_while_a_writer_is_at_work(sqlite: str, tmp_path: Path) -> None:
    with open_store(sqlite) as store, open_store(sqlite) as writer:
        store.create_board("b")
        busy_board(store)
        before = content(store)

        def meanwhile(tx: Transaction) -> None:
            tx.all("board_list")
            backup(store, tmp_path / "copy.db")

        writer.database.write(meanwhile)
        made(writer)
    with open_store(str(tmp_path / "copy.db"), create=False) as copy:
        assert content(copy) == before
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_restore_replaces_only_when_told_to_and_throws_nothing_away(sqlite: str, tmp_path: Path) -> None:
    with open_store(sqlite) as store:
        store.create_board("b")
        backup(store, tmp_path / "copy.db")
        kept = made(store)
    with pytest.raises(Conflict):
        restore(tmp_path / "copy.db", sqlite)
    aside = restore(tmp_path / "copy.db", sqlite, replace=True)
    assert aside is not None
    with open_store(sqlite) as store, open_store(aside) as old:
        assert store.page("b").tasks == []
        assert old.task(kept.id) == kept
    with pytest.raises(NotFound):
        restore(tmp_path / "nothing.db", sqlite, replace=True)


def test_a_file_that_is_no_board_names_the_restore_command(sqlite: str, tmp_path: Path) -> None:
    with open_store(sqlite) as store:
        store.create_board("b")
        task = made(store)
        backup(store, tmp_path / "copy.db")
    Path(sqlite).write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(StoreDamaged) as refused:
        open_store(sqlite)
    assert "holdfast board restore" in (refused.value.remedy or "")
    assert restore(tmp_path / "copy.db", sqlite) is not None
    with open_store(sqlite) as store:
        assert store.task(task.id) == task
        made(store)


def test_a_file_with_a_broken_page_is_only_read_from_then_on(sqlite: str) -> None:
    with open_store(sqlite) as store:
        store.create_board("b")
        task = made(store, body="x" * 5000)
    with sqlite3.connect(sqlite) as plain:
        plain.execute("PRAGMA journal_mode = DELETE")
        [[page]] = plain.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
        [[size]] = plain.execute("PRAGMA page_size")
    plain.close()
    with open(sqlite, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))
    with open_store(sqlite) as store:
        assert store.faults() != []
        with pytest.raises(StoreDamaged):
            made(store)
        assert store.task(task.id).status is TaskStatus.READY
    with open_store(sqlite) as later, pytest.raises(StoreDamaged):
        later.set_cap("b", "board", "", 1)  # although no broken page is in its way


def test_a_damaged_copy_is_never_restored(sqlite: str, tmp_path: Path) -> None:
    with open_store(sqlite) as store:
        store.create_board("b")
        task = made(store)
    (tmp_path / "copy.db").write_bytes(b"x" * 10000)
    with pytest.raises(StoreDamaged):
        restore(tmp_path / "copy.db", sqlite, replace=True)
    with open_store(sqlite) as store:
        assert store.task(task.id) == task


def test_a_store_that_is_no_file_is_kept_as_lines(tmp_path: Path, postgres_server: str) -> None:
    with open_store(postgres.fresh(postgres_server)) as store, pytest.raises(InvalidRequest):
        backup(store, tmp_path / "copy.db")
