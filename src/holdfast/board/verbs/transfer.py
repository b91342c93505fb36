"""Export a whole store as lines of JSON, import it into another, and check a store.

{"holdfast": "board", "schema": 5}
{"table": "boards", "row": {...}}
...
{"end": true, "rows": 17, "sha256": "..."}       over all lines before it
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.database.database import Transaction, Value
from holdfast.board.rules.rows import Board, Comment, File, Run, Task, TaskEvent, TaskLink, TaskMessage
from holdfast.errors import Conflict, InvalidRequest

S = TypeVar("S", bound=msgspec.Struct)

SCHEMA: Final = 5
MAX_LINE: Final = 8 << 20  # bytes: the largest row is a file, in base64
_BATCH: Final = 500  # rows read at once
_BATCH_OF_FILES: Final = 4  # likewise, where each can be large
_BINARY: Final = "data"  # the one column that is neither text nor a number

# In an order in which rows may refer to earlier ones; the keys give the order of the rows.
_TABLES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "boards": (("slug",), Board.__struct_fields__),
    "tasks": (("id",), Task.__struct_fields__),
    "links": (("parent", "child"), TaskLink.__struct_fields__),
    "runs": (("id",), Run.__struct_fields__),
    "files": (("id",), (*File.__struct_fields__, _BINARY)),
    "comments": (("task_id", "number"), Comment.__struct_fields__),
    "messages": (("task_id", "number"), TaskMessage.__struct_fields__),
    "answers": (("scope", "name"), ("scope", "name", "question", "answer", "at_ms")),
    "caps": (("board", "scope", "name"), ("board", "scope", "name", "most")),
    "events": (("board", "seq"), TaskEvent.__struct_fields__),
}
# Columns added by later schemas: an export of an earlier one lacks them, and the database fills them in.
_ADDED: Final[dict[int, dict[str, set[str]]]] = {
    2: {
        "boards": {"paused", "archived"},
        "tasks": {"workspace_kind", "workspace", "max_runtime_s", "report_only"},
        "runs": {"workspace", "session"},
    },
    3: {
        "tasks": {"reviewer", "checks", "pool", "max_tokens", "max_cost", "acknowledged_ms"},
        "runs": {"tokens", "cost", "turns", "stuck", "pool"},
        "comments": {"path", "line"},
    },
    5: {"tasks": {"environment"}, "runs": {"environment"}},
}
_WRONG: Final = {
    "wrong_counters": "its open parents are counted wrongly",
    "wrong_links": "what it waits for does not agree with its parent",
    "wrong_runs": "the task and its run do not agree",
    "wrong_events": "events are missing",
    "wrong_files": "a file belongs to another task's run",
}


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    holdfast: str
    schema: int


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    table: str
    row: dict[str, str | int | None]


class _End(msgspec.Struct, forbid_unknown_fields=True):
    end: bool
    rows: int
    sha256: str


def faults(tx: Transaction) -> list[str]:
    """Recount everything; return the faults found."""
    return [f"{row['id']}: {text}" for query, text in _WRONG.items() for row in tx.all(query)]


def export_lines(tx: Transaction, write: Callable[[bytes], object]) -> int:
    """Write every line; return the number of rows. All rows are from one transaction, thus of one moment."""
    digest, count = hashlib.sha256(), 0

    def put(value: msgspec.Struct) -> None:
        line = msgspec.json.encode(value) + b"\n"
        digest.update(line)
        write(line)

    put(_Head("board", SCHEMA))
    for table, row in _rows(tx):
        put(_Line(table, row))
        count += 1
    put(_End(True, count, digest.hexdigest()))
    return count


def import_lines(tx: Transaction, lines: Iterable[bytes]) -> int:
    """Fill an empty store; return the number of rows.

    Nothing is kept unless the lines are complete and consistent.

    Raises:
        Conflict: the store is not empty.
        InvalidRequest: the lines are cut off, changed, or of another kind.
    """
    if tx.all("board_list"):
        raise Conflict("there are boards in this store", remedy="import into a new store")
    source = iter(lines)
    first = next(source, b"")
    digest = hashlib.sha256(first)
    head = _decode(first, _Head)
    if head.holdfast != "board" or not 1 <= head.schema <= SCHEMA:
        raise InvalidRequest("this is no export of a board that this Holdfast reads")
    for count, line in enumerate(source):
        if line.startswith(b'{"end"'):
            end = _decode(line, _End)
            if next(source, None) is not None or end.rows != count or end.sha256 != digest.hexdigest():
                break
            if wrong := faults(tx):
                raise InvalidRequest(f"the export is not sound: {wrong[0]}")
            return count
        digest.update(line)
        _insert(tx, _decode(line, _Line), head.schema)
    raise InvalidRequest("the export was cut off or changed", remedy="use another copy")


def _rows(tx: Transaction) -> Iterator[tuple[str, dict[str, str | int | None]]]:
    for table, (keys, columns) in _TABLES.items():
        listed, order = ", ".join(columns), ", ".join(keys)
        after = f" WHERE ({order}) > ({', '.join(f':{key}' for key in keys)})"
        values: dict[str, Value] = {}
        batch = _BATCH_OF_FILES if table == "files" else _BATCH
        while True:
            text = f"SELECT {listed} FROM {table}{after if values else ''} ORDER BY {order} LIMIT {batch}"  # noqa: S608
            rows = [{name: _plain(value) for name, value in row.items()} for row in tx.select(text, values)]
            yield from ((table, row) for row in rows)
            if len(rows) < batch:
                break
            values = {key: rows[-1][key] for key in keys}


def _insert(tx: Transaction, line: _Line, schema: int) -> None:
    _, known = _TABLES.get(line.table, ((), ()))
    missing = {
        name for added, tables in _ADDED.items() if added > schema for name in tables.get(line.table, ())
    }
    columns = [name for name in known if name not in missing]
    if set(line.row) != set(columns) or not columns:
        raise InvalidRequest(f"{line.table!r} is no table of a board, or has other columns")
    values: dict[str, Value] = dict(line.row)
    if _BINARY in values:
        values[_BINARY] = _file(line.row)
    marks = ", ".join(f":{name}" for name in columns)
    tx.select(f"INSERT INTO {line.table} ({', '.join(columns)}) VALUES ({marks})", values)  # noqa: S608


def _file(row: dict[str, str | int | None]) -> bytes:
    try:
        data = base64.b64decode(str(row[_BINARY]), validate=True)
    except ValueError:
        raise InvalidRequest("a file in the export is no base64") from None
    if hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise InvalidRequest(f"the file {row['id']} in the export was changed", remedy="use another copy")
    return data


def _plain(value: object) -> str | int | None:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise AssertionError("every column is text, a whole number or bytes")


def _decode(line: bytes, kind: type[S]) -> S:
    try:
        return decoding.decode(line, kind)
    except msgspec.MsgspecError:
        raise InvalidRequest(
            "this is no export of a board, or it is damaged", remedy="use another copy"
        ) from None
