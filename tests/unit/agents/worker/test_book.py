"""Files of a worker on a disk that does not take everything."""

import errno
import os
from pathlib import Path

import pytest

from holdfast.agents.worker.book import Log, LogReader, NumberFile


class Full:
    """A disk with room for so many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self._write, self._pwrite = os.write, os.pwrite
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = self._write(fd, data[: self.room])
        self.room -= done
        return done

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        if not self.room:
            raise OSError(errno.EROFS, "Read-only file system")
        return self._pwrite(fd, data, at)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(monkeypatch)


def test_what_a_full_disk_does_not_take_is_written_when_it_does(tmp_path: Path, disk: Full) -> None:
    log = Log(tmp_path / "log", 100)
    log.append(b"one ")
    disk.room = 2
    log.append(b"two ")
    log.append(b"three ")
    assert (log.owes, (tmp_path / "log").read_bytes()) == (True, b"one tw")
    disk.room = 1 << 20
    log.flush()
    assert (log.owes, (tmp_path / "log").read_bytes()) == (False, b"one two three ")
    log.append(b"four")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one two three four"


def test_no_more_is_owed_than_the_file_would_hold(tmp_path: Path, disk: Full) -> None:
    log = Log(tmp_path / "log", 10)
    disk.room = 0
    for number in range(100):
        log.append(b"%02d" % number)
    disk.room = 1 << 20
    log.flush()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"9596979899"


def test_a_file_that_is_as_large_as_it_may_be_becomes_the_one_before(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", 4)
    for data in (b"abc", b"de"):
        log.append(data)
    log.close()
    assert [(tmp_path / name).read_bytes() for name in ("log.1", "log")] == [b"abc", b"de"]


def test_another_error_of_the_disk_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")

    log = Log(tmp_path / "log", 4)
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.append(b"x")


def test_a_number_that_cannot_be_written_stays_what_it_was(tmp_path: Path, disk: Full) -> None:
    number = NumberFile(tmp_path / "read")
    number.set(7)
    disk.room = 0
    number.set(8)
    number.close()
    assert NumberFile(tmp_path / "read").value == 7


def test_a_log_is_read_as_it_grows_and_across_its_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    reader = LogReader(path)
    try:
        assert reader.read(100) == b""
        log = Log(path, 10)
        log.append(b"12345")
        assert reader.read(100) == b"12345"
        assert reader.read(100) == b""
        log.append(b"67890")
        log.append(b"abc")  # does not fit: a new file
        assert reader.read(100) == b"67890"
        assert reader.read(100) == b"abc"
        assert reader.read(100) == b""
        log.close()
    finally:
        reader.close()
