"""What is promised about the bytes of a file when something goes wrong half-way."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pybase64
import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.files import contents
from tests.support.descriptors import none_left_open


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[int]:
    """An open directory; whoever leaves another descriptor behind fails."""
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    with none_left_open():
        yield fd
    os.close(fd)


def overwrite(path: Path, data: bytes, *, regular_only: bool = False) -> None:
    fd = os.open(path, contents.WRITE_FLAGS)
    try:
        contents.overwrite(fd, data, regular_only=regular_only)
    finally:
        os.close(fd)


def encoded(path: Path) -> msgspec.Raw:
    fd = os.open(path, contents.READ_FLAGS)
    try:
        return contents.encode(fd)
    finally:
        os.close(fd)


def failing(code: int) -> object:
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 768 * 1024 - 1, 768 * 1024, 768 * 1024 + 1, 2_000_003])
def test_a_file_of_any_size_is_encoded_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    assert bytes(encoded(tmp_path / "f")) == b'{"dataBase64":"%s"}' % pybase64.b64encode(data)


def test_short_reads_do_not_break_the_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    whole = os.readv
    monkeypatch.setattr(os, "readv", lambda fd, buffers: whole(fd, [buffers[0][:4]]))
    assert bytes(encoded(tmp_path / "f")) == b'{"dataBase64":"%s"}' % pybase64.b64encode(b"0123456789")


def test_a_file_beyond_the_limit_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(contents.MAX_READ_BYTES + 1)
    monkeypatch.setattr(os, "readv", lambda fd, buffers: pytest.fail("read it"))
    with pytest.raises(InvalidRequest, match="file is too large to read: limit is 536870912 bytes"):
        encoded(tmp_path / "huge")


def test_a_file_that_grows_past_the_limit_while_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_READ_BYTES", 10)
    with pytest.raises(InvalidRequest):
        encoded(Path("/proc/self/status"))  # says that it is empty


def test_a_new_file_has_no_name_until_it_is_complete(
    tmp_path: Path, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    whole = os.write

    def watched(fd: int, data: bytes) -> int:
        written = whole(fd, data)
        seen.append(os.listdir(tmp_path))
        return written

    monkeypatch.setattr(os, "write", watched)
    contents.create(parent, "f", b"x")
    assert seen == [[]]
    assert (tmp_path / "f").read_bytes() == b"x"


def test_a_new_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        contents.create(parent, "f", b"x")
    assert os.listdir(tmp_path) == []


def test_a_name_taken_meanwhile_is_overwritten_not_replaced(tmp_path: Path, parent: int) -> None:
    (tmp_path / "f").write_bytes(b"before and longer")
    inode = (tmp_path / "f").stat().st_ino
    contents.create(parent, "f", b"x")
    assert ((tmp_path / "f").read_bytes(), (tmp_path / "f").stat().st_ino) == (b"x", inode)


def test_a_new_file_is_filled_in_place_where_nameless_files_are_unknown(
    tmp_path: Path, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.open

    def without_tmpfile(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == ".":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return whole(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", without_tmpfile)
    contents.create(parent, "f", b"x")
    monkeypatch.undo()
    assert (tmp_path / "f").read_bytes() == b"x"


@pytest.mark.parametrize("data", [b"", b"short", b"a longer text than before", b"x" * 100_000])
def test_overwriting_leaves_exactly_the_new_bytes(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(b"before, some text")
    overwrite(tmp_path / "f", data)
    assert (tmp_path / "f").read_bytes() == data


def test_a_full_disk_does_not_cost_the_old_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"precious")

    def half_way(fd: int, offset: int, length: int) -> None:
        os.ftruncate(fd, 5000)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", half_way)
    with pytest.raises(OSError, match="No space"):
        overwrite(tmp_path / "f", b"x" * 100_000)
    assert (tmp_path / "f").read_bytes() == b"precious"


def test_a_file_system_that_cannot_reserve_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EOPNOTSUPP))
    overwrite(tmp_path / "f", b"x" * 100_000)
    assert (tmp_path / "f").read_bytes() == b"x" * 100_000


def test_what_is_no_regular_file_is_written_to_or_refused() -> None:
    overwrite(Path("/dev/null"), b"x")
    with pytest.raises(InvalidRequest):
        overwrite(Path("/dev/null"), b"x", regular_only=True)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").touch()
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:3]))
    overwrite(tmp_path / "f", b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456789"
