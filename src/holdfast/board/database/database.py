"""The seam between the board's rules and a database: transactions and queries by name.

The rules are written once, over `Transaction`. A dialect provides the connection, the row locks and the
clock. A change is a function of a transaction. It has no other effects, because it may be run again when the
database requires that.
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
    """Which tables a database has: where their SQL is, and the words for them in messages."""

    sql: Path
    what: str  # "the board at ... is busy"
    make: str  # what to type where there is none
    restore: str  # what to do about a damaged one, with {} for its place
    versions: str  # the table with the number of the last migration, in PostgreSQL


BOARD: Final = Schema(
    SQL, "board", "holdfast board create NAME", "holdfast board restore BACKUP --store {}", "schema_version"
)


def steady_clock() -> int:
    """Monotonic milliseconds: the clock cannot be set, and it stops while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000


class Transaction:
    """One consistent view of the board; a change takes effect as a whole or not at all."""

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
        """The first row of a query that always returns one."""
        found = self.one(query, **values)
        if found is None:
            raise AssertionError(f"{query} found nothing, and the transaction knows better")
        return found

    def select(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        """Run a query that is composed of constant pieces, for lists with varying filters."""
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
        """Add an event to this change; it gets its number just before the commit."""
        text = msgspec.json.encode(payload).decode()
        event: dict[str, Value] = {"board": board, "task_id": task, "run_id": run, "kind": kind}
        self._events.append(event | {"actor": actor, "at_ms": self.now_ms, "payload": text})

    def number_events(self) -> set[str]:
        """Number the events and return which boards have changed.

        This must come last: from here to the commit, the changes of a board wait for each other.
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
        """A hint that the store may have changed since the last call; read it to be sure."""
        ...

    def faults(self) -> list[str]:
        """The faults that the database itself finds; empty when it is sound."""
        ...

    def close(self) -> None: ...


def row_of(kind: type[T], row: Row) -> T:
    """Convert a row to its struct. Columns kept as JSON are decoded."""
    for name in _JSON_COLUMNS.keys() & row.keys():
        row[name] = decoding.decode(str(row[name]), _JSON_COLUMNS[name])
    return decoding.convert(row, kind, strict=False)


_JSON_COLUMNS: Final[Mapping[str, type]] = {
    "options": list[str],
    "checks": list[str],
    "metadata": JsonObject,
    "payload": JsonObject,
}


# A condition on a row of tasks. For a task without a budget no sums are computed.
_SPENT: Final = """(
    (max_tokens IS NOT NULL
        AND max_tokens <= (SELECT coalesce(sum(tokens), 0) FROM runs WHERE task_id = tasks.id))
    OR (max_cost IS NOT NULL
        AND max_cost <= (SELECT coalesce(sum(cost), 0) FROM runs WHERE task_id = tasks.id)))"""


def queries(
    sql: Path, *, lock: str, lock_free: str, lock_board: str, alone: str, value: str
) -> dict[str, str]:
    """All queries in a dialect; `value` is its placeholder format, with {} for the name."""
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
