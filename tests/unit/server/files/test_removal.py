"""Removing a tree, also while others change it."""

import os
from pathlib import Path

import pytest

from holdfast.server.files.removal import remove_tree


def test_everything_below_goes_but_nothing_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "f").touch()
    (tmp_path / "t" / "a" / "b").mkdir(parents=True)
    (tmp_path / "t" / "c").mkdir()
    (tmp_path / "t" / "a" / "link").symlink_to("../../keep")
    (tmp_path / "t" / "f").touch()
    os.mkfifo(tmp_path / "t" / "fifo")
    before = os.listdir("/proc/self/fd")
    remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path) == ["keep"]
    assert os.listdir(tmp_path / "keep") == ["f"]
    assert os.listdir("/proc/self/fd") == before


def test_a_tree_deeper_than_the_interpreter_recurses_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_PATH)
    for _ in range(400):
        os.mkdir("d" * 20, dir_fd=here)  # together longer than any path may be
        inner = os.open("d" * 20, os.O_PATH, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(str(tmp_path / ("d" * 20)))
    assert os.listdir(tmp_path) == []


def test_what_others_remove_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "t" / name).mkdir(parents=True)
    (tmp_path / "t" / "f").touch()
    unlink, rmdir = os.unlink, os.rmdir

    def raced_unlink(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        rmdir("a", dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    def raced_rmdir(name: str, *, dir_fd: int | None = None) -> None:
        rmdir(name, dir_fd=dir_fd)
        if name == "b":
            rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", raced_unlink)
    monkeypatch.setattr(os, "rmdir", raced_rmdir)
    remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path) == []


def test_a_directory_swapped_for_a_link_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "precious").touch()
    (tmp_path / "t" / "d").mkdir(parents=True)
    (tmp_path / "t" / "f").touch()
    unlink = os.unlink

    def swapping(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        os.rmdir("d", dir_fd=dir_fd)
        os.symlink(tmp_path / "keep", "d", dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", swapping)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Not a directory"):
        remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path / "keep") == ["precious"]
    assert os.listdir("/proc/self/fd") == before
