"""Read a board of Hermes from its file, by SQLite alone and read-only, even while Hermes uses it."""

import contextlib
import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.board.hermes.hermes import ID, HermesBoard, Row, text
from holdfast.board.rules.rows import MAX_FILE
from holdfast.errors import InvalidRequest, NotFound

NAME: Final = "kanban.db"
MAX_BYTES: Final = 1 << 30  # of the file, which is held in memory; 50,000 tasks take some 40 MiB
MAX_ABOUT: Final = 1 << 20  # of board.json
WAIT_S: Final = 30.0
_TABLES: Final = {  # with the order of the rows, which is that of the events
    "tasks": "created_at, id",
    "task_links": "parent_id, child_id",
    "task_comments": "id",
    "task_runs": "id",
    "task_events": "id",
    "task_attachments": "id",
    "kanban_notify_subs": "rowid",
}
_RECOVER: Final = "sqlite3 {} .recover | sqlite3 recovered.db, then import recovered.db"


def locate(path: Path) -> Path:
    """The path of the file; `path` may be its folder.

    Raises:
        NotFound: there is none.
    """
    file = path / NAME if path.is_dir() else path
    if not file.is_file():
        raise NotFound(
            f"there is no board of Hermes at {path}", remedy="name a kanban.db, or the folder it is in"
        )
    return file


def board_name(file: Path) -> str:
    """Hermes' name for the board: the folder of a named one, else `default`."""
    folder = file.resolve().parent
    return folder.name if file.name == NAME and folder.parent.name == "boards" else "default"


def read(file: Path) -> HermesBoard:
    """Everything on the board at one moment.

    Raises:
        InvalidRequest: the file is damaged, too large, or not a board of Hermes.
    """
    if file.stat().st_size > MAX_BYTES:
        raise InvalidRequest(f"{file} has more than {MAX_BYTES} bytes")
    with contextlib.closing(sqlite3.connect(":memory:")) as copy:
        copy.text_factory = lambda value: value.decode("utf-8", "replace")
        try:
            _snapshot(file, copy)
            [[sound]] = copy.execute("PRAGMA integrity_check(1)").fetchall()
            if sound != "ok":
                raise InvalidRequest(f"{file} is damaged: {sound}", remedy=_RECOVER.format(file))
            rows = {table: _rows(copy, table, order) for table, order in _TABLES.items()}
        except sqlite3.DatabaseError as exc:
            raise InvalidRequest(
                f"{file} cannot be read as a SQLite file, or is damaged", remedy=_RECOVER.format(file)
            ) from exc
    if rows["tasks"] is None:
        raise InvalidRequest(f"{file} has no table of tasks: it is no board of Hermes")
    about = _about(file)
    return HermesBoard(
        about.get("name", ""), about.get("default_workdir", ""), *(rows[table] or [] for table in _TABLES)
    )


def attachment(file: Path, row: Row) -> bytes | None:
    """An attachment's content, from where Hermes keeps it beside its board; None if absent or too large.

    The folder in the row is not trusted: a board must not make its reader copy files from elsewhere.
    """
    task, name = text(row, "task_id"), text(row, "stored_path").rpartition("/")[2]
    if not ID.fullmatch(task) or name in ("", ".", ".."):
        return None
    for folder in (file.parent / "attachments", file.parent / "kanban" / "attachments"):
        if (folder / task).is_symlink():
            continue
        with contextlib.suppress(OSError):
            fd = os.open(folder / task / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as opened:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    data = opened.read(MAX_FILE + 1)
                    return data if len(data) <= MAX_FILE else None
    return None


def _snapshot(file: Path, copy: sqlite3.Connection) -> None:
    """Copy the file as it is at one moment.

    A file at rest is opened as immutable, so that SQLite leaves no files beside it. If a writer began
    meanwhile, it is read again with normal locking.
    """
    address = f"file:{quote(os.fspath(file.resolve()))}?mode=ro"
    before = _rest(file)
    if before is not None:
        _copy(f"{address}&immutable=1", copy)
        if _rest(file) == before:
            return
    _copy(address, copy)


def _copy(address: str, copy: sqlite3.Connection) -> None:
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=WAIT_S)) as source:
        source.backup(copy)


def _rest(file: Path) -> tuple[int, int, int] | None:
    """What identifies the state of the file; None while it is in use."""
    if any(Path(f"{file}{suffix}").exists() for suffix in ("-wal", "-journal")):
        return None
    facts = file.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _rows(copy: sqlite3.Connection, table: str, order: str) -> list[Row] | None:
    """The rows of a table; None if it does not exist, as in files of older versions."""
    if not copy.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchall():
        return None
    cursor = copy.execute(f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608 - both are constants above
    names = [column[0] for column in cursor.description]
    return [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in cursor]


def _plain(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _about(file: Path) -> dict[str, str]:
    """The text fields of board.json beside the file; empty if it cannot be read."""
    try:
        with open(file.parent / "board.json", "rb") as about:
            said = json.loads(about.read(MAX_ABOUT))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    return {name: value for name, value in said.items() if isinstance(value, str)}
