"""Only regular files are read, and never more than asked for."""

import os
from pathlib import Path

import pytest

from holdfast.server.codex.regular import read_regular


def test_a_small_file_comes_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert read_regular(str(tmp_path / "file"), 3) == b"abc"


def test_a_large_file_comes_with_one_byte_too_many(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert read_regular(str(tmp_path / "file"), 3) == b"abcd"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert read_regular(str(tmp_path), 3) is None


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_regular(str(tmp_path / "fifo"), 3) is None


def test_a_fifo_that_replaces_the_file_meanwhile_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    seen = os.stat(tmp_path / "file")
    (tmp_path / "file").unlink()
    os.mkfifo(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda _path: seen)
    assert read_regular(str(tmp_path / "file"), 3) is None


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(str(tmp_path / "file"), 3)
