"""Copies of files, links and trees."""

import errno
import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import InvalidRequest, NotFound, OperationFailed
from holdfast.server.files import copytree
from holdfast.wire.files import CopyParams
from holdfast.wire.paths import PathUri
from holdfast.wire.structs import Empty


def copy(source: Path, destination: Path, *, recursive: bool = True) -> Empty:
    here, there = (PathUri.from_native(str(path)) for path in (source, destination))
    return copytree.copy(CopyParams(here, there, recursive))


def test_a_file_is_copied_over_another_with_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").write_bytes(b"old and longer")
    for target in ("b", "c"):
        assert copy(tmp_path / "a", tmp_path / target, recursive=False) == Empty()
        assert (tmp_path / target).read_bytes() == b"new"
        assert stat.S_IMODE((tmp_path / target).stat().st_mode) == 0o640


def test_a_copy_writes_through_a_link_at_the_destination(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "link").symlink_to("target")
    copy(tmp_path / "a", tmp_path / "link")
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_a_file_copied_onto_itself_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"precious")
    os.utime(tmp_path / "a", ns=(1, 1))
    (tmp_path / "link").symlink_to("a")
    for target in ("a", "link"):
        copy(tmp_path / "a", tmp_path / target)
        assert (tmp_path / "a").stat().st_mtime_ns == 1
        assert (tmp_path / "a").read_bytes() == b"precious"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS])
def test_bytes_are_copied_by_hand_where_the_kernel_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*_: object) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "copy_file_range", unsupported)
    (tmp_path / "a").write_bytes(b"x" * 600_000)
    copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x" * 600_000


def test_a_file_that_looks_empty_but_is_not_is_copied(tmp_path: Path) -> None:
    copy(Path("/proc/self/status"), tmp_path / "status")
    assert (tmp_path / "status").read_bytes().startswith(b"Name:")


def test_a_copy_that_fails_leaves_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"old")
    monkeypatch.setattr(os, "copy_file_range", full)
    for target in ("b", "c"):
        with pytest.raises(OperationFailed):
            copy(tmp_path / "a", tmp_path / target)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "b").read_bytes() == b"old"


def test_a_set_user_id_bit_survives_only_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0o4755)
    copy(tmp_path / "a", tmp_path / "same")
    assert stat.S_IMODE((tmp_path / "same").stat().st_mode) == 0o4755

    real = os.fstat
    inode = (tmp_path / "a").stat().st_ino

    def another_owner(fd: int) -> os.stat_result:
        seen = real(fd)
        if seen.st_ino != inode:
            return seen
        values = list(seen)
        values[stat.ST_UID] += 1
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", another_owner)
    copy(tmp_path / "a", tmp_path / "other")
    monkeypatch.undo()
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o755


def test_a_copy_onto_a_device_goes_through_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = os.stat("/dev/null").st_mode
    assert copy(tmp_path / "a", Path("/dev/null")) == Empty()
    assert os.stat("/dev/null").st_mode == before


def test_errors_of_a_file_copy(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "d").mkdir()
    for source, destination, error in (
        ("a", "no/b", NotFound),
        ("no", "b", NotFound),
        ("a", "d", OperationFailed),
        ("a", "a/x", OperationFailed),
    ):
        with pytest.raises(error):
            copy(tmp_path / source, tmp_path / destination)


def test_a_link_stays_a_link_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for link, target in (("link", "d"), ("dangling", "nowhere")):
        (tmp_path / link).symlink_to(target)
        copy(tmp_path / link, tmp_path / f"{link}2")
        assert os.readlink(tmp_path / f"{link}2") == target
        with pytest.raises(OperationFailed):
            copy(tmp_path / link, tmp_path / f"{link}2")


def test_a_tree_is_merged_with_its_links_and_without_special_files(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t" / "new"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "f").write_bytes(b"x")
    (source / "sub" / "up").symlink_to("..")
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "kept").touch()
    copy(source, target)
    assert sorted(os.listdir(target)) == ["dangling", "sub"]
    assert sorted(os.listdir(target / "sub")) == ["f", "kept", "up"]
    assert (os.readlink(target / "sub" / "up"), os.readlink(target / "dangling")) == ("..", "nowhere")


def test_a_tree_needs_recursive(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequest, match="fs/copy requires recursive: true when sourcePath is a directory"
    ):
        copy(tmp_path, tmp_path / "x", recursive=False)


@pytest.mark.parametrize("destination", ["d", "d/sub", "d/new/er", "alias", "alias/new", "d/../d/x"])
def test_a_tree_is_not_copied_into_itself(tmp_path: Path, destination: str) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("d")
    with pytest.raises(InvalidRequest, match="cannot copy a directory to itself or one of its descendants"):
        copy(tmp_path / "d", tmp_path / destination)
    assert os.listdir(tmp_path / "d") == ["sub"]


def test_neighbours_and_ancestors_are_no_descendants(tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "f").touch()
    copy(tmp_path / "d", tmp_path / "d-2")
    copy(tmp_path / "d" / "sub", tmp_path / "d")
    assert (tmp_path / "d-2" / "sub" / "f").exists()
    assert (tmp_path / "d" / "f").exists()


def test_a_fifo_is_not_copied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(
        InvalidRequest, match="fs/copy only supports regular files, directories, and symlinks"
    ):
        copy(tmp_path / "fifo", tmp_path / "x")


def test_paths_of_another_platform_are_invalid_requests(tmp_path: Path) -> None:
    here, foreign = PathUri.from_native(str(tmp_path)), PathUri.parse("file:///C:/x")
    for source, destination in ((here, foreign), (foreign, here)):
        with pytest.raises(InvalidRequest):
            copytree.copy(CopyParams(source, destination, recursive=True))
