"""The board in one SQLite file, for the processes of one host.

The file is only ever opened by SQLite: closing a descriptor of our own would release SQLite's locks. A writer
that finds the file locked tries again within a few milliseconds. SQLite's own pauses grow to a tenth of a
second, which under load leaves the file idle while all writers sleep.

A connection that was opened while the file was read-only stays so for ever, whatever happens to the file; and
so do all others of this process, because they share one view of the log. So when the storage of one
connection failed, all connections of this process to that file are closed, and opened again when they are
used.
"""

import contextlib
import os
import select
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from holdfast.board.database import database
from holdfast.board.database.database import BOARD, Clock, Row, Schema, Transaction, Value, steady_clock
from holdfast.board.rules.assign import ClockReading
from holdfast.errors import Conflict, HoldfastError, NotFound, OperationFailed, StoreDamaged, Unreachable

if TYPE_CHECKING:
    from holdfast.sandbox.kernel.inotify import Inotify


POLL_S: Final = 0.05  # between checks of the number of the newest commit, which is a read of shared memory
SETTLE_S: Final = 0.5  # after a write, until it is committed; the next check finds a slower one


class FileWrites:
    """Notices writes to the file of a store by inotify, so that the file need not be polled all the time.

    A commit becomes visible a moment after it was written: when it is on the disk. So after a write, the file
    is polled for a while. Where inotify is not available (no watch left, another file system, no Linux), it
    is polled all the time. An instance belongs to the thread that waits, and watches from the first wait on.
    """

    def __init__(self, path: str) -> None:
        self._folder, name = os.path.split(os.path.realpath(path))
        self._names = {os.fsencode(name), os.fsencode(f"{name}-wal")}
        self._inotify: Inotify | None = None
        self._tried = False
        self._until = 0.0  # poll often until then

    def wait(self, timeout_s: float) -> None:
        """Wait until there may be a change to see, or for this long."""
        now, watched = time.monotonic(), self._watch()
        if watched is None:
            time.sleep(min(POLL_S, timeout_s))
        elif now < self._until:
            self._hear(watched, min(POLL_S, timeout_s))
        else:
            until = now + timeout_s
            while time.monotonic() >= self._until and (left := until - time.monotonic()) > 0:
                self._hear(watched, left)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _watch(self) -> "Inotify | None":
        if not self._tried:
            self._tried = True
            self._until = time.monotonic() + SETTLE_S  # writes before this were not reported
            if sys.platform == "linux":
                self._inotify = _open_watch(self._folder)
        return self._inotify

    def _hear(self, watched: "Inotify", timeout_s: float) -> None:
        poll = select.poll()  # unlike select, poll accepts any descriptor number
        poll.register(watched.fd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return
        found, lost = watched.read()
        if lost or any(name in self._names for _, name in found):
            self._until = time.monotonic() + SETTLE_S


def _open_watch(folder: str) -> "Inotify | None":
    from holdfast.sandbox.kernel.inotify import Inotify

    made = None
    try:
        made = Inotify(blocking=False)
        made.watch(folder, written=True)
    except OSError:
        if made is not None:
            made.close()
        return None
    return made


T = TypeVar("T")

BUSY_S: Final = 30.0  # how long a writer waits for others; the longest change of theirs is an import
PAUSE_S: Final = 0.003  # between tries, on average: with it, eight writers on two cores got the most done
CHECKPOINT_PAGES: Final = 1000
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# All open databases of this process, made by any caller.
_DATABASES: Final["WeakSet[SqliteDatabase]"] = WeakSet()
_DATABASES_LOCK: Final = threading.Lock()
# Faults of the underlying storage, which may end at any time.
_STORAGE: Final = {
    sqlite3.SQLITE_READONLY: "can only be read",
    sqlite3.SQLITE_FULL: "has no room on its disk",
    sqlite3.SQLITE_IOERR: "is on a disk that does not answer",
}
_MEMORY: Final = ":memory:"


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class SqliteDatabase:
    """One SQLite file. Raises NotFound when it does not exist and `create` is false."""

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        clock: Clock = wall_clock,
        steady: Clock = steady_clock,
        schema: Schema = BOARD,
    ) -> None:
        self.path = path
        self.schema = schema
        self._clock = clock
        self._steady = steady
        self._mark = Path(f"{path}.damaged")
        self._queries = database.queries(
            schema.sql, lock="", lock_free="", lock_board="", alone="SELECT 1", value=":{}"
        )
        self._seen = 0
        self._writes = FileWrites(path)
        if path != _MEMORY and not _is_there(path, schema):
            if not create:
                raise NotFound(f"there is no {schema.what} at {path}", remedy=schema.make)
            self._make_room()
        self.opened = False
        self._failed = False  # its storage failed, so it must be opened again
        self._lock = threading.RLock()  # held while the connection is used: others may have to close it
        with _translate_errors(self):
            self._connect()
        self.opened = True
        with _DATABASES_LOCK:
            _DATABASES.add(self)

    @property
    def address(self) -> str:
        return self.path

    @property
    def damaged(self) -> bool:
        return self.path != _MEMORY and self._mark.exists()

    def write(self, change: Callable[[Transaction], T]) -> T:
        if self.damaged:
            raise damage(self.path, self.schema)

        def once() -> T:
            with self._transaction("BEGIN IMMEDIATE") as transaction:
                answer = change(transaction)
                transaction.number_events()
                return answer

        with _translate_errors(self), self._lock:
            fresh = self._reopen()
            try:
                return once()
            except sqlite3.OperationalError as exc:
                if fresh or exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
                self.note_fault()
                if not self._reopen():
                    raise
            return once()  # perhaps only that connection could not write

    def read(self, look: Callable[[Transaction], T]) -> T:
        def once() -> T:
            with self._transaction("BEGIN") as transaction:
                return look(transaction)

        with _translate_errors(self), self._lock:
            self._reopen()
            return _patiently(once)  # a reader, too, waits while the file recovers from a crash

    def changed(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while True:
            with _translate_errors(self), self._lock:
                self._reopen()
                before, self._seen = self._seen, self._pragma("data_version")
            if self._seen != before:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._writes.wait(left)

    def copy_to(self, path: str) -> None:
        """Write a consistent copy to `path` while others use the store; overwrite what is there.

        The copy is on disk when this returns.
        """
        target = contextlib.closing(sqlite3.connect(path, timeout=BUSY_S))
        with _translate_errors(self), self._lock, target as copy:
            self._reopen()
            self._db.backup(copy)

    def faults(self) -> list[str]:
        """The faults that SQLite finds in the file; after any, the store becomes read-only."""
        try:
            with _translate_errors(self), self._lock:
                self._reopen()
                found = [str(row["integrity_check"]) for row in self._run("PRAGMA integrity_check(10)", {})]
                if found != ["ok"]:
                    self.note_damage()
                    return found
                broken = self._run("PRAGMA foreign_key_check", {})
        except StoreDamaged as exc:
            return [str(exc)]
        return [f"a row of {row['table']} names a {row['parent']} that is not there" for row in broken]

    def close(self) -> None:
        self._db.close()
        self._writes.close()

    def note_damage(self) -> None:
        """Leave a mark, so that other processes stop writing as well, and later ones never begin."""
        if self.path != _MEMORY:
            with contextlib.suppress(OSError):
                self._mark.touch(mode=0o600)

    def _make_room(self) -> None:
        try:
            Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise OperationFailed(
                f"cannot make a {self.schema.what} at {self.path}: {exc.strerror}"
            ) from None

    def note_fault(self) -> None:
        """Record that the storage failed: no existing connection to the file is used again."""
        for one in self._all():
            one._failed = True

    def _all(self) -> "list[SqliteDatabase]":
        """All databases of this process on this file, this one first."""
        if self.path == _MEMORY:
            return []
        with _DATABASES_LOCK:
            return [self, *(one for one in _DATABASES if one.path == self.path and one is not self)]

    def _let_go(self) -> None:
        """Close a connection with failed storage, unless it is in use: its user will meet the failure."""
        if self._lock.acquire(blocking=False):
            try:
                if self._failed:
                    self._db.close()
            finally:
                self._lock.release()

    def _connect(self) -> None:
        self._db = sqlite3.connect(
            self.path,
            isolation_level=None,
            timeout=0,
            cached_statements=256,
            check_same_thread=False,  # see _let_go
        )
        try:
            self._db.row_factory = _as_dict
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _reopen(self) -> bool:
        """Connect again if the storage failed; return whether that was done."""
        if not self._failed:
            return False
        for one in self._all():
            one._let_go()
        self._connect()
        self._failed, self._seen = False, 0  # a change may have been missed
        return True

    def _prepare(self) -> None:
        self._set("synchronous = FULL")
        self._set(f"wal_autocheckpoint = {CHECKPOINT_PAGES}")
        steps = database.migrations("sqlite", self.schema.sql)
        if _patiently(lambda: self._pragma("user_version")) != len(steps) and not self.damaged:
            self._migrate(steps)
        self._set("foreign_keys = ON")

    def _migrate(self, steps: Sequence[tuple[int, str]]) -> None:
        """Apply all missing steps or none. A table may be recreated, so references are checked at the end."""
        self._set("foreign_keys = OFF")  # the compiled-in default may be on; a transaction cannot change it
        self._set("journal_mode = WAL")
        _patiently(lambda: self._db.execute("BEGIN IMMEDIATE"))
        try:
            done = self._pragma("user_version")
            if done > len(steps):
                raise Conflict(f"{self.path} was made by a newer Holdfast", remedy="upgrade holdfast")
            for _, script in steps[done:]:
                for statement in statements(script):
                    self._db.execute(statement)
            if done and self._db.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise Conflict(f"{self.path} refers to rows that are not there", remedy="restore a backup")
            self._db.execute(f"PRAGMA user_version = {len(steps)}")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        if self.path != _MEMORY:
            os.chmod(self.path, 0o600)

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        _patiently(lambda: self._db.execute(begin))
        try:
            clock = ClockReading(self._clock(), self._steady())
            yield Transaction(self._run, self._queries, clock, _adapt)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _set(self, pragma: str) -> None:
        _patiently(lambda: self._db.execute(f"PRAGMA {pragma}"))  # any of them may meet a lock

    def _run(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        return self._db.execute(text, values).fetchall()

    def _pragma(self, name: str) -> int:
        return int(str(next(iter(self._run(f"PRAGMA {name}", {})[0].values()))))


def _is_there(path: str, schema: Schema) -> bool:
    """Whether the file exists.

    Raises OperationFailed if that cannot be determined: taking it for missing would lead to creating another
    one.
    """
    try:
        os.stat(path)
    except PermissionError as exc:
        raise OperationFailed(f"the {schema.what} at {path} cannot be opened: {exc.strerror}") from None
    except OSError:
        return False
    return True


def _adapt(text: str) -> str:
    return text.replace("FOLD(", "lower(")


def statements(script: str) -> list[str]:
    """The statements of a script one by one, so that all of them fit into one transaction."""
    found, lines = [], []
    for line in script.splitlines():
        lines.append(line)
        if sqlite3.complete_statement("\n".join(lines)):
            found.append("\n".join(lines))
            lines = []
    return found


def damage(path: str, schema: Schema = BOARD) -> StoreDamaged:
    return StoreDamaged(
        f"the {schema.what} at {path} is damaged and is only read", remedy=schema.restore.format(path)
    )


def _as_dict(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _patiently(attempt: Callable[[], T]) -> T:
    """Retry while another process holds the lock; raise the last error when the time is over."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > until:
                raise
        time.sleep(PAUSE_S * 2 * os.urandom(1)[0] / 255)  # random, so that writers do not retry in step


@contextlib.contextmanager
def _translate_errors(store: SqliteDatabase) -> Iterator[None]:
    """Translate SQLite's errors into ours; the original text stays in the chained exception."""
    try:
        yield
    except HoldfastError:
        raise
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGE:
            store.note_damage()
            raise damage(store.path, store.schema) from exc
        if code in _BUSY:
            raise Unreachable(
                f"the {store.schema.what} at {store.path} is busy", remedy="the same command again"
            ) from exc
        if code in _STORAGE or (code == sqlite3.SQLITE_CANTOPEN and store.opened):
            if code != sqlite3.SQLITE_FULL:  # a full disk does not harm the connection
                store.note_fault()
            words = _STORAGE.get(code, "cannot be opened any more")
            raise Unreachable(
                f"the {store.schema.what} at {store.path} {words}",
                remedy="look at its disk; it is tried again",
            ) from exc
        name = getattr(exc, "sqlite_errorname", "an unknown error")
        raise OperationFailed(f"SQLite cannot use {store.path}: {name}") from exc
    except OSError as exc:
        raise OperationFailed(f"cannot use {store.path}: {exc.strerror}") from exc
