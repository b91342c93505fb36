"""A store whose storage fails for a while: it is told, nothing is lost, and it goes on by itself."""

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.database.sqlite import SqliteDatabase
from holdfast.board.rules.rows import NewTask
from holdfast.board.store import Store, open_store
from holdfast.errors import NotFound, OperationFailed, Unreachable
from tests.support import postgres
from tests.support.boards import made
from tests.support.patience import patient


class Disk:
    """What SQLite meets when it opens a file here. SQLite itself answers that it is read-only or full."""

    def __init__(self) -> None:
        self.read_only = False
        self.full = False
        self.broken = False
        self._connect = sqlite3.connect

    def connect(self, path: str, **options: Any) -> sqlite3.Connection:
        if self.broken:
            raise _error(sqlite3.SQLITE_CANTOPEN)
        if self.read_only:
            path = f"file:{path}?mode=ro"
        opened: sqlite3.Connection = self._connect(path, uri=self.read_only, **options)
        if self.full:
            opened.execute("PRAGMA max_page_count = 1")  # as many as there are
        return opened


def _error(code: int) -> sqlite3.OperationalError:
    exc = sqlite3.OperationalError("cannot")
    exc.sqlite_errorcode = code
    return exc


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(sqlite3, "connect", found.connect)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    address = str(tmp_path / "board.db")
    with open_store(address) as store:  # somebody has it open, so that its log and its index are there
        store.create_board("b")
        yield address


def test_one_that_was_read_only_when_it_was_opened_goes_on_when_it_is_not(path: str, disk: Disk) -> None:
    disk.read_only = True
    with open_store(path, create=False) as store:
        for _ in range(2):
            with pytest.raises(Unreachable, match="can only be read"):
                made(store)
        assert store.page("b").tasks == []
        disk.read_only = False
        task = made(store)
        assert store.task(task.id) == task


def test_one_that_can_only_be_read_for_a_while_goes_on(path: str, disk: Disk) -> None:
    """The connection that was there before finds out when it writes; the next is no better, until it is."""
    with open_store(path, create=False) as store:
        assert isinstance(store.database._db, sqlite3.Connection)  # type: ignore[attr-defined]
        store.database._db.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]
        disk.read_only = True
        with pytest.raises(Unreachable, match="can only be read"):
            made(store)
        disk.read_only = False
        assert made(store)


def test_another_of_this_process_that_nobody_uses_does_not_keep_it_read_only(tmp_path: Path) -> None:
    """They share one view of the log, which is that of whoever opened it first."""
    script = """
import os, sys
from holdfast.board.rules.rows import NewTask
from holdfast.board.store import open_store
from holdfast.errors import Unreachable
from pathlib import Path
from tests.support.board_faults import Disk, own_mounts
own_mounts()
disk = Disk(Path(sys.argv[1]), 1 << 24)
address = sys.argv[1] + "/board.db"
first = open_store(address)
first.create_board("b")
if os.fork():  # so that log and index stay when this one closes its own
    os.wait()
else:
    first.close()
    with disk.read_only():
        one, other = open_store(address, create=False), open_store(address, create=False)
        assert other.page("b").tasks == []
        try:
            one.create("b", NewTask(title="x"))
        except Unreachable:
            print("read-only")
    print(one.create("b", NewTask(title="x")).title, len(other.page("b").tasks))
"""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run([sys.executable, "-c", script, str(place)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("read-only\nx 1\n", "")


def test_one_that_is_full_tells_it_and_goes_on(path: str, disk: Disk) -> None:
    disk.full = True
    with open_store(path, create=False) as store:
        with pytest.raises(Unreachable, match="no room"):
            store.create("b", NewTask(title="x", body="y" * 60_000))
        assert store.page("b").tasks == []
        store.database._db.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]
        assert store.create("b", NewTask(title="x", body="y" * 60_000))
        assert store.faults() == []


def test_one_that_cannot_be_opened_again_is_tried_until_it_can(path: str, disk: Disk) -> None:
    disk.read_only = True
    with open_store(path, create=False) as store:
        disk.broken = True
        for _ in range(2):
            with pytest.raises(Unreachable):
                made(store)
            with pytest.raises(Unreachable):
                store.changed(0)
            with pytest.raises(Unreachable):
                store.boards()
        disk.read_only = disk.broken = False
        assert made(store)


def test_one_in_memory_is_never_opened_again(disk: Disk) -> None:
    with open_store(":memory:") as store:
        store.create_board("b")
        store.database._db.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]
        with pytest.raises(Unreachable):
            made(store)
        store.database._db.execute("PRAGMA query_only = OFF")  # type: ignore[attr-defined]
        assert made(store)


def test_one_that_is_not_there_is_still_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_store(str(tmp_path / "none.db"), create=False)


def test_one_that_cannot_be_looked_at_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, real = str(tmp_path / "board.db"), os.stat

    def refuse(path: Any, **more: Any) -> os.stat_result:
        if path == address:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, **more)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(OperationFailed, match=r"board.db cannot be opened: Permission denied"):
        open_store(address)


async def test_whoever_hears_of_changes_survives_a_disk_that_fails(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncStore.open(path) as store:
        failed, look = threading.Event(), SqliteDatabase._pragma

        def fail(self: SqliteDatabase, name: str) -> int:
            if name == "data_version" and not failed.is_set():
                failed.set()
                raise _error(sqlite3.SQLITE_IOERR)
            return look(self, name)

        monkeypatch.setattr(SqliteDatabase, "_pragma", fail)
        async with asyncio.timeout(patient(20.0)):
            await asyncio.to_thread(failed.wait)
            store.news.clear()
            await store.ask(Store.create, "b", NewTask(title="x"))
            await store.news.wait()


def test_a_server_that_could_only_be_read_when_it_was_opened_goes_on_when_it_cannot_only(
    postgres_server: str,
) -> None:
    address = postgres.fresh(postgres_server)
    with open_store(address) as store:
        store.create_board("b")
    with open_store(f"{address}%20-c%20default_transaction_read_only%3Don", create=False) as store:
        with pytest.raises(Unreachable, match="can only be read"):
            made(store)
        assert store.page("b").tasks == []
        store.database._url = address  # type: ignore[attr-defined]  # as if it had become the primary
        assert made(store)
