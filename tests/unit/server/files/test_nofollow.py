"""With followSymlinks false no component of a path may be a link."""

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed
from holdfast.server.files import files, nofollow
from holdfast.wire.files import CreateDirectoryParams, LinkAwareParams, RemoveParams, WriteFileParams
from holdfast.wire.paths import PathUri
from holdfast.wire.structs import Empty
from tests.support.descriptors import none_left_open

Operation = Callable[[PathUri], object]

OPERATIONS: dict[str, Operation] = {
    "read": lambda path: files.read_file(LinkAwareParams(path, follow_symlinks=False)),
    "write": lambda path: files.write_file(WriteFileParams(path, "aGk=", follow_symlinks=False)),
    "mkdir": lambda path: files.create_directory(CreateDirectoryParams(path, None, follow_symlinks=False)),
    "mkdir one": lambda path: files.create_directory(
        CreateDirectoryParams(path, recursive=False, follow_symlinks=False)
    ),
    "metadata": lambda path: files.get_metadata(LinkAwareParams(path, follow_symlinks=False)),
    "remove": lambda path: files.remove(
        RemoveParams(path, recursive=False, force=True, follow_symlinks=False)
    ),
}
READ, WRITE, MKDIR, MKDIR_ONE, METADATA, REMOVE = OPERATIONS.values()


def uri(path: Path) -> PathUri:
    return PathUri.from_native(str(path))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory that is reached without links, with a file, a directory and links to both."""
    base = Path(os.path.realpath(tmp_path))
    (base / "d").mkdir()
    (base / "d" / "f").write_bytes(b"inner")
    (base / "f").write_bytes(b"outer")
    for name, target in (("ld", "d"), ("lf", "f"), ("dangling", "no")):
        (base / name).symlink_to(target)
    return base


def errno_of(error: HoldfastError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_link_in_a_parent_is_refused(tree: Path, name: str) -> None:
    with pytest.raises(OperationFailed) as caught:
        OPERATIONS[name](uri(tree / "ld" / "f"))
    assert errno_of(caught.value) == errno.ENOTDIR
    assert (tree / "d" / "f").read_bytes() == b"inner"


@pytest.mark.parametrize("link", ["ld", "lf", "dangling"])
def test_a_link_as_the_last_name_is_refused(tree: Path, link: str) -> None:
    for operation in (READ, WRITE):
        with pytest.raises(OperationFailed) as caught:
            operation(uri(tree / link))
        assert errno_of(caught.value) == errno.ELOOP
    for operation in (METADATA, REMOVE):
        with pytest.raises(InvalidRequest, match="path contains a symbolic link"):
            operation(uri(tree / link))
    for operation in (MKDIR, MKDIR_ONE):
        with pytest.raises(OperationFailed):
            operation(uri(tree / link))
    assert (tree / link).is_symlink()
    assert not (tree / "no").exists()


def test_a_file_is_written_and_read(tree: Path) -> None:
    for name in ("f", "new"):
        assert WRITE(uri(tree / name)) == Empty()
        answer = READ(uri(tree / name))
        assert isinstance(answer, msgspec.Raw)
        assert bytes(answer) == b'{"dataBase64":"aGk="}'
    assert sorted(os.listdir(tree)) == ["d", "dangling", "f", "ld", "lf", "new"]


def test_a_name_taken_by_a_link_at_the_last_moment_is_not_followed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def taken_first(source: str, name: str, **rest: int) -> None:
        (tree / "new").symlink_to("f")
        link(source, name, dst_dir_fd=rest["dst_dir_fd"])

    monkeypatch.setattr(os, "link", taken_first)
    with pytest.raises(OperationFailed):
        WRITE(uri(tree / "new"))
    assert (tree / "f").read_bytes() == b"outer"


def test_a_missing_parent_is_not_found(tree: Path) -> None:
    for operation in (READ, WRITE, MKDIR_ONE, METADATA):
        with pytest.raises(NotFound):
            operation(uri(tree / "missing" / "f"))
    assert REMOVE(uri(tree / "missing" / "f")) == Empty()


def test_only_regular_files_are_read_or_written_and_a_fifo_stops_nobody(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    for path in (tree / "d", tree / "fifo", Path("/dev/null")):
        with pytest.raises(InvalidRequest, match="path is not a regular file"):
            READ(uri(path))
    for path in (tree / "d", tree / "fifo"):
        with pytest.raises(OperationFailed):
            WRITE(uri(path))
    reader = os.open(tree / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (tree / "fifo", Path("/dev/null")):
            with pytest.raises(InvalidRequest, match="path is not a regular file"):
                WRITE(uri(path))
    finally:
        os.close(reader)


def test_directories_are_made_with_their_parents_or_alone(tree: Path) -> None:
    for _ in range(2):
        assert MKDIR(uri(tree / "a" / "b" / "c")) == Empty()
    assert MKDIR_ONE(uri(tree / "a" / "x")) == Empty()
    assert sorted(os.listdir(tree / "a")) == ["b", "x"]
    with pytest.raises(OperationFailed):
        MKDIR_ONE(uri(tree / "a"))


def test_a_directory_made_by_another_at_the_same_time_is_fine(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def beaten(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        mkdir(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", beaten)
    assert MKDIR(uri(tree / "a" / "b")) == Empty()


def test_the_root_cannot_be_made_again_nor_read_written_or_removed() -> None:
    root = PathUri.parse("file:///")
    assert MKDIR(root) == Empty()
    with pytest.raises(OperationFailed, match="directory already exists"):
        MKDIR_ONE(root)
    for operation in (READ, WRITE, REMOVE):
        with pytest.raises(InvalidRequest, match="path must name an entry"):
            operation(root)


def test_metadata_tells_the_birth_time(tree: Path) -> None:
    before = int(time.time() * 1000)
    (tree / "young").write_bytes(b"123")
    os.utime(tree / "young", ns=(0, -1_500_000_000))
    seen = nofollow.get_metadata(str(tree / "young"))
    assert (seen.is_file, seen.is_symlink, seen.size, seen.modified_at_ms) == (True, False, 3, -1500)
    # The file system's clock ticks coarsely and may lag a little behind ours.
    assert before - 1000 <= seen.created_at_ms <= time.time() * 1000
    assert nofollow.get_metadata("/").is_directory


def test_an_unknown_birth_time_is_zero(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def untold(parent: int, name: bytes, flags: int, mask: int, told: Any) -> int:
        told._obj.btime.sec = 5  # but the mask does not say that it means anything
        return 0

    for statx in (None, lambda *_: -1, untold):
        monkeypatch.setattr(nofollow, "_statx", statx)
        assert nofollow.get_metadata(str(tree / "f")).created_at_ms == 0


def test_sockets_can_be_inspected(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tree / "sock"))
        seen = nofollow.get_metadata(str(tree / "sock"))
    assert (seen.is_file, seen.is_directory) == (False, False)


@pytest.mark.parametrize("path", ["d", "f"])
def test_nothing_is_opened_for_reading_to_look_at_it(
    tree: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags_used: list[int] = []
    real_open = os.open

    def noting(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        flags_used.append(flags)
        return real_open(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", noting)
    nofollow.get_metadata(str(tree / path))
    assert flags_used
    assert all(flags & os.O_PATH for flags in flags_used)


def test_files_and_empty_directories_are_removed(tree: Path) -> None:
    with pytest.raises(OperationFailed):
        REMOVE(uri(tree / "d"))
    REMOVE(uri(tree / "d" / "f"))
    REMOVE(uri(tree / "d"))
    assert not (tree / "d").exists()


def test_a_recursive_removal_is_unsupported(tree: Path) -> None:
    with pytest.raises(OperationFailed, match="recursive no-follow removal is unsupported"):
        files.remove(RemoveParams(uri(tree / "f"), follow_symlinks=False))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("path", ["f", "lf", "d", "ld/f", "missing/f", "d/f/x", "d/new"])
def test_no_descriptor_is_left_open(tree: Path, name: str, path: str) -> None:
    with none_left_open(), suppress(HoldfastError):
        OPERATIONS[name](uri(tree / path))
