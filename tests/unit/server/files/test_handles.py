"""File handles: blocks by position, limits, and no descriptor used after it was closed."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pybase64
import pytest

from holdfast.errors import InvalidRequest, NotFound, OperationFailed
from holdfast.server.files.handles import MAX_BLOCK_BYTES, FileHandles
from holdfast.wire.files import HandleParams, HandleResult, OpenParams, ReadBlockParams, WriteBlockParams
from holdfast.wire.paths import PathUri
from holdfast.wire.structs import Empty
from tests.support.descriptors import none_left_open
from tests.support.patience import patient


@pytest.fixture
def handles() -> Iterator[FileHandles]:
    """Handles that must have given back every descriptor in the end."""
    with none_left_open():
        made = FileHandles()
        yield made
        made.close_all()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "f").write_bytes(b"hello")
    return tmp_path / "f"


def opening(path: Path, handle_id: str = "h") -> OpenParams:
    return OpenParams(handle_id, PathUri.from_native(str(path)))


def replacing(path: Path, handle_id: str = "w") -> OpenParams:
    return OpenParams(handle_id, PathUri.from_native(str(path)), mode="replace")


def read(handles: FileHandles, offset: int, length: int, handle_id: str = "h") -> tuple[bytes, bool]:
    raw = handles.read_block(ReadBlockParams(handle_id, offset, length))
    answer = msgspec.json.decode(raw, type=dict[str, str | bool])
    chunk, eof = answer["chunk"], answer["eof"]
    assert isinstance(chunk, str)
    assert isinstance(eof, bool)
    return pybase64.b64decode(chunk, validate=True), eof


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 5, (b"hello", False)),
        (0, 6, (b"hello", True)),
        (3, 1, (b"l", False)),
        (5, 1, (b"", True)),
        (100, 1, (b"", True)),
        (1, MAX_BLOCK_BYTES, (b"ello", True)),
    ],
)
def test_the_end_shows_only_when_fewer_bytes_came_back(
    handles: FileHandles, path: Path, offset: int, length: int, expected: tuple[bytes, bool]
) -> None:
    assert handles.open(opening(path)) == HandleResult("h")
    assert read(handles, offset, length) == expected


def test_a_file_of_exactly_one_block_ends_correctly(handles: FileHandles, tmp_path: Path) -> None:
    data = os.urandom(MAX_BLOCK_BYTES)
    (tmp_path / "f").write_bytes(data)
    handles.open(opening(tmp_path / "f"))
    assert read(handles, 0, MAX_BLOCK_BYTES) == (data, False)
    assert read(handles, MAX_BLOCK_BYTES, MAX_BLOCK_BYTES) == (b"", True)


def test_blocks_may_be_read_in_any_order(handles: FileHandles, path: Path) -> None:
    handles.open(opening(path))
    assert [read(handles, offset, 2)[0] for offset in (3, 0, 2, 3)] == [b"lo", b"he", b"ll", b"lo"]


def test_short_reads_are_continued(handles: FileHandles, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handles.open(opening(path))
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: whole(fd, min(length, 2), offset))
    assert read(handles, 0, 5) == (b"hello", False)
    assert read(handles, 0, 9) == (b"hello", True)


@pytest.mark.parametrize("length", [0, MAX_BLOCK_BYTES + 1])
def test_a_bad_block_length_is_refused_and_the_handle_stays(
    handles: FileHandles, path: Path, length: int
) -> None:
    handles.open(opening(path))
    with pytest.raises(InvalidRequest, match="file read block length must be between 1 and 1048576"):
        read(handles, 0, length)
    assert read(handles, 0, 5) == (b"hello", False)


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_failing_read_closes_the_handle(handles: FileHandles, path: Path, offset: int) -> None:
    handles.open(opening(path))
    with pytest.raises(InvalidRequest, match=r"Invalid argument \(os error 22\)"):
        read(handles, offset, 1)
    with pytest.raises(NotFound, match="unknown file handle `h`"):
        read(handles, 0, 1)


def test_reading_goes_on_after_the_path_is_replaced_or_removed(handles: FileHandles, path: Path) -> None:
    handles.open(opening(path))
    (path.parent / "other").write_bytes(b"other")
    (path.parent / "other").replace(path)
    assert read(handles, 0, 5) == (b"hello", False)
    path.unlink()
    assert read(handles, 0, 5) == (b"hello", False)


def test_only_regular_files_are_opened_and_a_refusal_frees_the_name(
    handles: FileHandles, tmp_path: Path, path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    for params in (
        opening(tmp_path),
        opening(tmp_path / "fifo"),
        replacing(tmp_path / "fifo"),
        replacing(Path("/dev/null")),
    ):
        with pytest.raises(InvalidRequest, match="is not a file"):
            handles.open(params)
    os.close(reader)
    with pytest.raises(InvalidRequest, match="'file:///C:/x' is invalid on 'linux'"):
        handles.open(OpenParams("h", PathUri.parse("file:///C:/x")))
    for wrong in (replacing(tmp_path), replacing(tmp_path / "fifo")):
        with pytest.raises(OperationFailed):
            handles.open(wrong)
    for missing in (opening(tmp_path / "no"), replacing(tmp_path / "no" / "f")):
        with pytest.raises(NotFound):
            handles.open(missing)
    assert handles.open(opening(path)) == HandleResult("h")


def test_replace_empties_in_place_at_once_and_writes_by_position(handles: FileHandles, path: Path) -> None:
    inode = path.stat().st_ino
    (path.parent / "link").symlink_to("f")
    handles.open(replacing(path.parent / "link"))
    assert path.read_bytes() == b""
    assert handles.write_block(WriteBlockParams("w", 3, b"ab")) == Empty()
    assert path.read_bytes() == b"\0\0\0ab"
    handles.write_block(WriteBlockParams("w", 0, b"xyz"))
    assert (path.read_bytes(), path.stat().st_ino) == (b"xyzab", inode)


def test_short_writes_are_continued(
    handles: FileHandles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles.open(replacing(path))
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:3], offset))
    handles.write_block(WriteBlockParams("w", 1, b"0123456789"))
    assert path.read_bytes() == b"\x000123456789"


def test_reading_a_write_handle_fails_and_closes_it(handles: FileHandles, path: Path) -> None:
    handles.open(replacing(path))
    with pytest.raises(OperationFailed):
        read(handles, 0, 1, "w")
    with pytest.raises(NotFound):
        handles.write_block(WriteBlockParams("w", 0, b"x"))


def test_writing_a_read_handle_fails_and_leaves_it_open(handles: FileHandles, path: Path) -> None:
    handles.open(opening(path))
    with pytest.raises(OperationFailed):
        handles.write_block(WriteBlockParams("h", 0, b"x"))
    assert read(handles, 0, 5) == (b"hello", False)


@pytest.mark.parametrize(
    ("offset", "chunk", "text"),
    [
        (0, b"", "file write block length must be between 1 and 1048576"),
        (0, b"x" * (MAX_BLOCK_BYTES + 1), "file write block length must be between 1 and 1048576"),
        (2**63 - 1, b"x", "file write range exceeds the signed 64-bit file offset limit"),
        (2**64 - 1, b"x", "file write range exceeds the signed 64-bit file offset limit"),
    ],
)
def test_bad_blocks_to_write_are_refused(handles: FileHandles, offset: int, chunk: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        handles.write_block(WriteBlockParams("unknown", offset, chunk))


def test_unknown_handles_are_not_found_but_close_quietly(handles: FileHandles) -> None:
    with pytest.raises(NotFound):
        read(handles, 0, 1)
    with pytest.raises(NotFound):
        handles.write_block(WriteBlockParams("h", 0, b"x"))
    assert handles.close(HandleParams("h")) == Empty()


def test_ids_are_unique_and_at_most_32_bytes(handles: FileHandles, path: Path) -> None:
    for handle_id in ("", "é" * 16):
        assert handles.open(opening(path, handle_id)) == HandleResult(handle_id)
        with pytest.raises(InvalidRequest, match=f"file handle `{handle_id}` already exists"):
            handles.open(opening(path, handle_id))
    long = "é" * 16 + "x"
    for call in (
        lambda: handles.open(opening(path, long)),
        lambda: read(handles, 0, 1, long),
        lambda: handles.write_block(WriteBlockParams(long, 0, b"x")),
        lambda: handles.close(HandleParams(long)),
    ):
        with pytest.raises(InvalidRequest, match="file handle ID must not exceed 32 bytes"):
            call()


def test_at_most_128_are_open_and_closing_frees_a_slot(handles: FileHandles, path: Path) -> None:
    for number in range(127):
        handles.open(opening(path, str(number)))
    handles.open(replacing(path, "127"))
    with pytest.raises(InvalidRequest, match="at most 128 file handles may be open per connection"):
        handles.open(opening(path.parent / "missing", "one more"))
    handles.close(HandleParams("5"))
    assert handles.open(opening(path, "one more")) == HandleResult("one more")


def test_a_close_during_a_read_waits_until_the_descriptor_is_unused(
    handles: FileHandles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles.open(opening(path))
    whole = os.pread

    def close_meanwhile(fd: int, length: int, offset: int) -> bytes:
        closer = threading.Thread(target=handles.close, args=[HandleParams("h")])
        closer.start()
        closer.join(timeout=patient(5))
        newcomer = os.open(os.devnull, os.O_RDONLY)  # takes the number if it is free
        try:
            return whole(fd, length, offset)
        finally:
            os.close(newcomer)

    monkeypatch.setattr(os, "pread", close_meanwhile)
    assert read(handles, 0, 5) == (b"hello", False)
    with pytest.raises(NotFound):
        read(handles, 0, 5)


def test_a_failing_read_does_not_close_a_newer_handle_of_the_same_name(
    handles: FileHandles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles.open(opening(path))

    def reopened_meanwhile(fd: int, length: int, offset: int) -> bytes:
        handles.close(HandleParams("h"))
        handles.open(opening(path))
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", reopened_meanwhile)
        with pytest.raises(OperationFailed):
            read(handles, 0, 5)
    assert read(handles, 0, 5) == (b"hello", False)


def test_a_file_opened_while_the_connection_ends_is_closed_again(
    handles: FileHandles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.fstat

    def ending_meanwhile(fd: int) -> os.stat_result:
        handles.close_all()
        return whole(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", ending_meanwhile)
        with pytest.raises(NotFound):
            handles.open(opening(path))
