"""Stores and exports of the first schema: they become what this one is, and lose nothing."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from holdfast.board.backup import backup, restore
from holdfast.board.database import database
from holdfast.board.database.sqlite import statements
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import NewTask, WorkspaceKind
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.errors import InvalidRequest
from tests.support.boards import claimed, made

# What the first release wrote for `create("b", NewTask(title="x"), key="k")`.
TASK: Final[dict[str, Any]] = {
    **{"id": "t_b6e38ff07c9a", "board": "b", "title": "x", "body": "", "assignee": "", "status": "ready"},
    **{"priority": 0, "created_by": "person", "created_by_run": None, "created_ms": 1700000000000},
    **{"status_ms": 1700000000000, "ended_ms": None, "open_parents": 0, "run_id": None, "generation": 0},
    **{"attempts": 0, "max_attempts": 3, "wake_ms": None, "question": None, "options": [], "waiting_for": ""},
    **{"reason": "", "result": None, "version": 1},
}
QUESTION: Final = "c63fd118cb57acb3420d8e7751e7b6d510cfa81933bca61a7c55c434f6dd2791"
ROWS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("boards", {"slug": "b", "title": "Old", "created_ms": 1, "last_seq": 1}),
    ("tasks", TASK | {"options": "[]"}),
    (
        "answers",
        {"scope": "board:b", "name": "k", "question": QUESTION, "answer": json.dumps(TASK), "at_ms": 1},
    ),
    (
        "events",
        {
            **{"board": "b", "seq": 1, "task_id": TASK["id"], "run_id": None, "kind": "created"},
            **{"actor": "person", "at_ms": 1, "payload": "{}"},
        },
    ),
]


def first_schema(address: str) -> None:
    """A store as the first release left it."""
    is_postgres = address.startswith("postgresql")
    [(_, script), *_] = database.migrations("postgres" if is_postgres else "sqlite")
    mark = "%({})s" if is_postgres else ":{}"
    inserts = [
        (
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(map(mark.format, row))})",  # noqa: S608
            row,
        )
        for table, row in ROWS
    ]
    if is_postgres:
        with psycopg.connect(address) as server:
            server.execute(script.encode())
            server.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
            server.execute("INSERT INTO schema_version VALUES (1)")
            for text, row in inserts:
                server.execute(text.encode(), row)
        return
    file = sqlite3.connect(address)
    with file:
        for statement in statements(script):
            file.execute(statement)
        for text, row in inserts:
            file.execute(text, row)
        file.execute("PRAGMA user_version = 1")
    file.close()


def test_a_store_of_the_first_schema_is_upgraded_in_place(address: str) -> None:
    first_schema(address)
    with open_store(address, create=False) as store:
        [board] = store.boards()
        assert (board.title, board.paused, board.archived) == ("Old", False, False)
        task = store.task(TASK["id"])
        assert (task.title, task.workspace_kind, task.report_only) == ("x", WorkspaceKind.SCRATCH, False)
        assert store.create("b", NewTask(title="x"), key="k").id == task.id
        _, run = claimed(store, task.id)
        store.attach(task.id, "a", b"1")
        assert store.complete(run.ref, "e", "ok").status is TaskStatus.DONE
        assert store.faults() == []
    with open_store(address, create=False) as again:
        assert again.file(task.id, None, "a") == b"1"


def test_a_copy_of_the_first_schema_is_restored(tmp_path: Path) -> None:
    first_schema(str(tmp_path / "old.db"))
    restore(tmp_path / "old.db", str(tmp_path / "new.db"))
    with open_store(str(tmp_path / "new.db")) as store:
        assert store.task(TASK["id"]).title == "x"
        made(store)


def export(path: Path, rows: list[tuple[str, dict[str, Any]]], schema: int) -> Path:
    lines = [json.dumps({"holdfast": "board", "schema": schema})]
    lines += [json.dumps({"table": table, "row": row}) for table, row in rows]
    body = "".join(f"{line}\n" for line in lines).encode()
    end = {"end": True, "rows": len(rows), "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps(end, separators=(",", ":")).encode() + b"\n")
    return path


def test_an_export_of_the_first_schema_is_read(address: str, tmp_path: Path) -> None:
    restore(export(tmp_path / "old.jsonl", ROWS, 1), address)
    with open_store(address) as store:
        assert store.task(TASK["id"]).workspace == ""
        assert store.create("b", NewTask(title="x"), key="k").id == TASK["id"]
        assert store.faults() == []


def test_a_run_that_failed_by_a_fault_of_ours_is_kept_in_a_store_of_any_age(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table may be made anew: what refers to a run still does, and what was kept as `infra` is read."""
    steps = {dialect: database.migrations(dialect)[:3] for dialect in ("sqlite", "postgres")}
    with monkeypatch.context() as before:
        before.setattr(database, "migrations", lambda dialect, _: steps[dialect])
        before.setattr(database, "_load_queries", _without_environments(database._load_queries))
        with open_store(address) as store:
            store.create_board("b")
            old, first = claimed(store, made(store, max_attempts=1).id)
            store.comment(old.id, "look")
            store.fail(first.ref, FailureKind.INFRA, error="internal error: x")
            held, running = claimed(store, made(store, max_attempts=1).id)
            with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
                store.fail(running.ref, FailureKind.INTERNAL, error="internal error: x")
    with open_store(address) as store:
        assert store.run(first.id).ending == "failed(infra)"
        store.fail(running.ref, FailureKind.INTERNAL, error="internal error: x")
        assert store.run(running.id).ending == "failed(internal)"
        assert store.task(held.id).status is TaskStatus.FAILED
        assert store.faults() == []


def _without_environments(load: Callable[[Path], dict[str, str]]) -> Callable[[Path], dict[str, str]]:
    """The queries as they were before tasks and runs had one."""
    own = re.compile(
        r",\s+:?environment(?=\)|;)|environment = :environment, | AND environment (?:= :environment|<> '')"
    )
    told = re.compile(r"\benvironment(?= AS|, count| FROM)")
    return lambda sql: {
        name: told.sub("''" if " AS name" in text else "'' AS environment", own.sub("", text))
        for name, text in load(sql).items()
    }


def exported(tmp_path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The rows of an export of today, with a file among them."""
    with open_store(str(tmp_path / "board.db")) as store:
        store.create_board("b")
        store.attach(made(store).id, "a", b"hello")
        backup(store, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    return [(line["table"], line["row"]) for line in lines[1:-1]]


@pytest.mark.parametrize("schema", [1, 2, 3, 4, 5, 6])
def test_an_export_says_truly_of_which_schema_it_is(tmp_path: Path, schema: int) -> None:
    rows = ROWS if schema in (3, 4, 5) else exported(tmp_path)  # what is later has other columns
    with pytest.raises(InvalidRequest):
        restore(export(tmp_path / "other.jsonl", rows, schema), str(tmp_path / "new.db"))


def test_a_file_that_was_changed_in_an_export_is_refused(tmp_path: Path) -> None:
    rows = exported(tmp_path)
    restore(export(tmp_path / "same.jsonl", rows, 5), str(tmp_path / "same.db"))
    for table, row in rows:
        if table == "files":
            row["data"] = "aGVsbG8h"
    with pytest.raises(InvalidRequest):
        restore(export(tmp_path / "changed.jsonl", rows, 5), str(tmp_path / "new.db"))
