"""What appears in a directory, told by a real kernel."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sandbox.kernel.inotify import Inotify


@pytest.fixture
def inotify() -> Iterator[Inotify]:
    made = Inotify(blocking=False)
    yield made
    made.close()


def test_what_is_made_moved_and_linked_there_is_told_by_name(inotify: Inotify, tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    number = inotify.watch(str(there))
    (there / "made").mkdir()
    (elsewhere / "file").touch()
    (there / "linked").hardlink_to(elsewhere / "file")
    (there / "dangling").symlink_to("nowhere")
    (elsewhere / "file").rename(there / "moved")
    (there / "moved").unlink()
    names = [b"made", b"linked", b"dangling", b"moved"]
    assert inotify.read()[0] == [(number, name) for name in names]
    assert inotify.read() == ([], False)


def test_a_directory_has_one_number_and_none_when_it_is_left(inotify: Inotify, tmp_path: Path) -> None:
    number = inotify.watch(str(tmp_path))
    assert inotify.watch(str(tmp_path)) == number
    inotify.leave(number)
    inotify.leave(number)
    (tmp_path / "made").touch()
    assert inotify.read() == ([], False)


def test_a_flood_is_not_read_but_told(inotify: Inotify, tmp_path: Path) -> None:
    inotify.watch(str(tmp_path))
    for number in range(600):
        (tmp_path / f"{number}").touch()
    assert inotify.read()[1]


def test_neither_a_link_nor_a_file_is_watched(inotify: Inotify, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(".")
    for name in ("file", "link"):
        with pytest.raises(OSError, match="Not a directory"):
            inotify.watch(os.fspath(tmp_path / name))
