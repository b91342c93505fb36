"""The seam between the board's rules and a database: transactions and queries by name.

The rules are written once, over `Transaction`. A dialect brings the connection, the row locks and the
clock. A change is a function of a transaction: it may be run again when the database asks for that, so it
does nothing else.
"""

import functools
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.rules.assign import ClockReading
from holdfast.board.rules.rows import JsonObject

T = TypeVar("T")
Value: TypeAlias = str | int | bytes | None
Row: TypeAlias = dict[str, object]
Runner: TypeAlias = Callable[[str, Mapping[str, Value]], list[Row]]
Clock: TypeAlias = Callable[[], int]

SQL: Final = Path(__file__).parent / "sql"


class Schema(NamedTuple):
    """Which tables a database has: where their SQL lies, and what messages say of them."""

    sql: Path
    what: str  # "the board at ... is busy"
    make: str  # what to type where there is none
    restore: str  # what to do about a damaged one, with {} for its place
    versions: str  # the table with the number of the last migration, in PostgreSQL


BOARD: Final = Schema(
    SQL, "board", "holdfast board create NAME", "holdfast board restore BACKUP --store {}", "schema_version"
)


def steady_clock() -> int:
    """Nobody sets it, and it stands still while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000


class Transaction:
    """One consistent view of the board and, in a change, everything that happens or nothing."""

    def __init__(
        self, run: Runner, queries: Mapping[str, str], clock: ClockReading, adapt: Callable[[str], str]
    ) -> None:
        self.now_ms = clock.wall_ms
        self.clock = clock
        self._run = run
        self._adapt = adapt
        self._queries = queries
        self._events: list[dict[str, Value]] = []

    def all(self, query: str, /, **values: Value) -> list[Row]:
        return self._run(self._queries[query], values)

    def one(self, query: str, /, **values: Value) -> Row | None:
        """The first row, if there is any."""
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def row(self, query: str, /, **values: Value) -> Row:
        """The row that there always is."""
        found = self.one(query, **values)
        if found is None:
            raise AssertionError(f"{query} found nothing, and the transaction knows better")
        return found

    def select(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        """A query put together from constant pieces, for lists whose filters vary."""
        return self._run(self._adapt(text), values)

    def log(
        self,
        board: str,
        kind: str,
        actor: str,
        /,
        *,
        task: str | None,
        run: str | None = None,
        **payload: object,
    ) -> None:
        """An event of this change; it is numbered when the change is about to take effect."""
        text = msgspec.json.encode(payload).decode()
        event: dict[str, Value] = {"board": board, "task_id": task, "run_id": run, "kind": kind}
        self._events.append(event | {"actor": actor, "at_ms": self.now_ms, "payload": text})

    def number_events(self) -> set[str]:
        """Give the events their numbers, last of all: from here to the commit a board's changes are in line.

        Answers which boards have changed.
        """
        boards = {str(event["board"]) for event in self._events}
        for board in sorted(boards):
            mine = [event for event in self._events if event["board"] == board]
            row = self.row("next_seq", board=board, count=len(mine))
            first = int(str(row["last_seq"])) - len(mine) + 1
            for seq, event in enumerate(mine, first):
                self.all("event_add", seq=seq, **event)
        return boards


class Database(Protocol):
    """One connection, used by one thread."""

    @property
    def address(self) -> str: ...

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Carry out a change; when this returns it has taken effect and survives a crash.

        Raises:
            Unreachable: the database is down or busy for too long.
            StoreDamaged: it is broken, and nothing is written.
        """
        ...

    def read(self, look: Callable[[Transaction], T]) -> T: ...

    def changed(self, timeout_s: float) -> bool:
        """A hint that somebody may have changed something since the last call; look to be sure."""
        ...

    def faults(self) -> list[str]:
        """What the database itself finds wrong; empty when it is sound."""
        ...

    def close(self) -> None: ...


def row_of(kind: type[T], row: Row) -> T:
    """A row as its struct. Members that are kept as JSON are decoded."""
    for name in _JSON_COLUMNS.keys() & row.keys():
        row[name] = decoding.decode(str(row[name]), _JSON_COLUMNS[name])
    return decoding.convert(row, kind, strict=False)


_JSON_COLUMNS: Final[Mapping[str, type]] = {
    "options": list[str],
    "checks": list[str],
    "metadata": JsonObject,
    "payload": JsonObject,
}


# Of a row of tasks. Nothing is added up for a task without a budget.
_SPENT: Final = """(
    (max_tokens IS NOT NULL
        AND max_tokens <= (SELECT coalesce(sum(tokens), 0) FROM runs WHERE task_id = tasks.id))
    OR (max_cost IS NOT NULL
        AND max_cost <= (SELECT coalesce(sum(cost), 0) FROM runs WHERE task_id = tasks.id)))"""


def queries(
    sql: Path, *, lock: str, lock_free: str, lock_board: str, alone: str, value: str
) -> dict[str, str]:
    """All queries in a dialect; `value` is how it marks one, with {} for the name."""
    found = {}
    for name, text in _load_queries(sql).items():
        words = {
            "SPENT": _SPENT,
            "LOCK FREE ROWS": lock_free,
            "LOCK ROWS": lock,
            "LOCK BOARD": lock_board,
            "ALONE": alone,
        }
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        found[name] = with_values(text, value)
    return found


def with_values(text: str, value: str) -> str:
    return re.sub(r":([a-z_][a-z_0-9]*)", lambda match: value.format(match[1]), text)


def migrations(dialect: str, sql: Path = SQL) -> list[tuple[int, str]]:
    """Numbered from one, oldest first."""
    files = sorted((sql / dialect).glob("*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text("utf-8")) for file in files]


@functools.cache
def _load_queries(sql: Path) -> dict[str, str]:
    parts = re.split(r"^-- name: (\w+)\n", (sql / "queries.sql").read_text("utf-8"), flags=re.MULTILINE)
    return {name: text.strip().rstrip(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)}
