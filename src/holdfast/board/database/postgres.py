"""The board in PostgreSQL, for the processes of several hosts.

Changes lock the rows they read, in the order tasks, then the board. A claim locks the board first and skips
tasks that are locked by another transaction, so it never waits for one. If two changes still deadlock, the
server aborts one, and it is run again. The clock is the server's. Listeners are notified of changes after
these took effect; many changes at once may be one notification.
"""

import contextlib
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from holdfast.board.database import database
from holdfast.board.database.database import BOARD, Clock, Row, Schema, Transaction, Value, steady_clock
from holdfast.board.rules.assign import ClockReading
from holdfast.errors import Conflict, HoldfastError, NotFound, OperationFailed, Unreachable

T = TypeVar("T")

CONNECT_S: Final = 10
LOCK_MS: Final = 30_000  # how long a change waits for a lock
STALLED_MS: Final = 20_000  # how long a change of a host that hangs or is cut off may hold the board
TRIES: Final = 20  # of a change that conflicts with others
# A network that drops all packets is noticed in half a minute, not after the kernel's default of two hours.
_ALIVE: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
CHANNEL: Final = "holdfast_board"
TELL_S: Final = 0.02  # minimum time between two notifications by one connection
SETTLE_S: Final = 0.03  # longer than TELL_S, so that changes a notifier held back meanwhile are visible
UNTOLD_S: Final = 5.0  # how often a listener checks itself: a process may die between change and notification
_MIGRATING: Final = 0x686F6C64  # the advisory lock of the process that creates the tables
_AGAIN: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
# A commit with NOTIFY holds a lock of the whole instance. So it is a transaction of its own that does not
# wait for the disk, and it holds up no change.
_TELL: Final = f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}; COMMIT"
_CHANGES: Final = "SELECT coalesce(sum(last_seq), 0) AS changes FROM boards"
_NOW: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now"
_MADE: Final = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = %(name)s"
_VALUE: Final = "%({})s"


class PostgresDatabase:
    """Raises Unreachable when no server answers, NotFound when it has no board and `create` is false."""

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        clock: Clock | None = None,
        steady: Clock = steady_clock,
        schema: Schema = BOARD,
    ) -> None:
        self._url = url
        self._schema = schema
        self._clock = clock
        self._steady = steady
        self._listening = False
        self._told_at = -math.inf  # when we last sent a notification
        self._looked_at = -math.inf  # when the listener last checked for itself, and what it saw
        self._changes = ""
        self._queries = database.queries(
            schema.sql,
            lock="FOR UPDATE",
            lock_free="FOR UPDATE SKIP LOCKED",
            lock_board="FOR NO KEY UPDATE",  # lets other transactions insert rows that reference the board
            alone="SELECT pg_advisory_xact_lock(hashtext('holdfast links ' || :board))",
            value=_VALUE,
        )
        self._db = self._connect()
        try:
            with _translate_errors():
                self._prepare(create=create)
        except BaseException:
            self._db.close()
            raise

    @property
    def address(self) -> str:
        """The URL without credentials and parameters."""
        return re.sub(r"//[^/@]*@", "//", self._url.partition("?")[0])

    def write(self, change: Callable[[Transaction], T]) -> T:
        changed: set[str] = set()

        def once() -> T:
            nonlocal changed
            begin = f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {STALLED_MS}"
            with self._transaction(begin) as transaction:
                answer = change(transaction)
                changed = transaction.number_events()
                return answer

        answer = self._retry(once)
        if changed:
            self._tell()
        return answer

    def read(self, look: Callable[[Transaction], T]) -> T:
        def once() -> T:
            with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as transaction:
                return look(transaction)

        return self._retry(once)

    def changed(self, timeout_s: float) -> bool:
        with _translate_errors():
            if not self._listening:
                self._run(f"LISTEN {CHANNEL}", {})
                self._listening = True
                self._look()
                return True  # changes from before we listened
            if any(True for _ in self._db.notifies(timeout=timeout_s, stop_after=1)):
                time.sleep(SETTLE_S)
                self._look()
                return True
            return time.monotonic() - self._looked_at >= UNTOLD_S and self._look()

    def faults(self) -> list[str]:
        return []  # the server checks its own files

    def close(self) -> None:
        self._db.close()

    def _tell(self) -> None:
        """Notify listeners of a change that has taken effect. It is a hint only, so a failure is ignored."""
        now = time.monotonic()
        if now - self._told_at < TELL_S:
            return
        self._told_at = now
        try:
            self._run(_TELL, {})
        except psycopg.Error:
            self._told_at = -math.inf
            self._db.close()

    def _look(self) -> bool:
        """Whether there was a change since the last look."""
        self._looked_at = time.monotonic()
        before, self._changes = self._changes, str(self._run(_CHANGES, {})[0]["changes"])
        return self._changes != before

    def _connect(self) -> psycopg.Connection[Row]:
        with _translate_errors():
            connection = psycopg.connect(
                make_conninfo("", **{**_ALIVE, **conninfo_to_dict(self._url)}),
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=CONNECT_S,
            )
            connection.execute(f"SET lock_timeout = {LOCK_MS}")
        return connection

    def _prepare(self, *, create: bool) -> None:
        steps = database.migrations("postgres", self._schema.sql)
        done, table = self._version(), self._schema.versions
        if done == len(steps):
            return
        if not done and not create:
            raise NotFound(f"there is no {self._schema.what} at {self.address}", remedy=self._schema.make)
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
            done = self._version()
            if done > len(steps):
                raise Conflict(f"{self.address} was made by a newer Holdfast", remedy="upgrade holdfast")
            for number, script in steps[done:]:
                self._db.execute(script.encode())
                self._db.execute(f"CREATE TABLE IF NOT EXISTS {table} (version BIGINT NOT NULL)".encode())
                self._db.execute(f"DELETE FROM {table}".encode())  # noqa: S608 - a name of ours
                self._db.execute(f"INSERT INTO {table} VALUES (%s)".encode(), (number,))  # noqa: S608

    def _version(self) -> int:
        # Not to_regclass: it may answer from a cache older than the lock that we have just waited for.
        if not self._run(_MADE, {"name": self._schema.versions}):
            return 0
        [row] = self._run(f"SELECT version FROM {self._schema.versions}", {})  # noqa: S608 - likewise
        return int(str(row["version"]))

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        self._run(begin, {})
        try:
            now = self._clock() if self._clock else int(str(self._run(_NOW, {})[0]["now"]))
            yield Transaction(self._run, self._queries, ClockReading(now, self._steady()), _adapt)
            self._run("COMMIT", {})
        except BaseException:
            if not self._db.closed:
                with contextlib.suppress(psycopg.Error):
                    self._run("ROLLBACK", {})
            raise

    def _retry(self, attempt: Callable[[], T]) -> T:
        fresh = self._db.closed
        if fresh:
            self._db, self._listening = self._connect(), False
        with _translate_errors():
            for number in range(TRIES):
                try:
                    return attempt()
                except psycopg.errors.ReadOnlySqlTransaction:
                    self._db.close()
                    if fresh:
                        raise
                    self._db, self._listening, fresh = self._connect(), False, True  # the primary, maybe
                except _AGAIN:
                    time.sleep(0.002 * number * random.random())  # noqa: S311 - only to get out of step
        raise Unreachable(f"others kept {self.address} busy", remedy="the same command again")

    def _run(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        cursor = self._db.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def _adapt(text: str) -> str:
    folded = re.sub(r"FOLD\((\w+)\)", r'lower(\1 COLLATE "C")', text)
    return database.with_values(folded, _VALUE)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate the server's errors into ours; the original text stays in the chained exception."""
    try:
        yield
    except (HoldfastError, psycopg.IntegrityError, *_AGAIN):
        raise
    except psycopg.errors.ReadOnlySqlTransaction as exc:  # it is a standby, or out of disk space
        raise Unreachable(
            "the PostgreSQL server can only be read", remedy="give the address of the primary server"
        ) from exc
    except psycopg.errors.LockNotAvailable as exc:
        raise Unreachable("the PostgreSQL server is busy", remedy="the same command again") from exc
    except (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout) as exc:
        raise Unreachable(
            "the PostgreSQL server does not answer", remedy="start it, or give the address of one that runs"
        ) from exc
    except psycopg.Error as exc:
        raise OperationFailed(f"PostgreSQL refuses: {type(exc).__name__}") from exc
