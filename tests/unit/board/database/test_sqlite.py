"""Who waits for a commit hears of it from the kernel, and looks by itself where that tells nothing."""

import threading
import time
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.board.database import sqlite
from holdfast.board.database.sqlite import FileWrites
from holdfast.board.store import open_store
from holdfast.sandbox.kernel import inotify
from tests.support.patience import patient

WAIT_S: Final = patient(30.0)


def settled(path: Path) -> FileWrites:
    """One that hears no echo of its own beginning any more."""
    writes = FileWrites(str(path))
    writes._watch()
    writes._until = 0.0
    return writes


def test_a_write_ends_the_wait_and_what_is_beside_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, slept = settled(tmp_path / "b.db"), threading.Event()

    def wait() -> None:
        writes.wait(WAIT_S)
        slept.set()

    monkeypatch.setattr(sqlite, "SETTLE_S", WAIT_S)
    heard = threading.Thread(target=wait)
    heard.start()
    (tmp_path / "other.log").write_text("x")
    assert not slept.wait(0.2)
    (tmp_path / "b.db-wal").write_text("x")
    assert slept.wait(WAIT_S)
    heard.join()
    writes.close()


def test_a_commit_of_another_is_told_without_looking_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted(self: FileWrites, timeout_s: float) -> None:
        nonlocal looks
        looks += 1
        real(self, timeout_s)

    real = FileWrites.wait
    path = str(tmp_path / "b.db")
    with open_store(path) as other, open_store(path) as mine:
        while mine.changed(0.0):
            pass
        mine.database._writes._watch()  # type: ignore[attr-defined]
        mine.database._writes._until = 0.0  # type: ignore[attr-defined]
        monkeypatch.setattr(FileWrites, "wait", counted)
        assert not mine.changed(0.5)
        assert looks == 1
        other.create_board("b")
        assert mine.changed(WAIT_S)


def test_where_the_kernel_tells_nothing_it_is_looked_at_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "no watch is left")

    waited: list[float] = []
    monkeypatch.setattr(inotify, "Inotify", refuse)
    monkeypatch.setattr(time, "sleep", waited.append)
    writes = FileWrites(str(tmp_path / "b.db"))
    writes.wait(WAIT_S)
    assert waited == [sqlite.POLL_S]
    writes.close()
