"""A look at where a path leads, while everything else on the machine moves."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sandbox.kernel.kernel import die_with_parent, open_in_root
from holdfast.sandbox.watcher.watcher import View

LOOKS = 20_000


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[None]:
    """Somebody moves a file of his own back and forth."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "a").touch()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(signal.SIGKILL)
            os.chdir(folder)
            while True:
                os.rename("a", "b")
                os.rename("b", "a")
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.usefixtures("moving")
def test_what_others_move_does_not_hide_where_a_path_leads(tmp_path: Path) -> None:
    """The kernel breaks off a look at a path with ".." while any file is moved: denials were not told."""
    (tmp_path / "here").mkdir()
    root = os.open("/", os.O_PATH)
    try:
        view, path = View(root), os.fsencode(tmp_path / "here") + b"/../here"
        seen = {view.look(path, follow=True, whole=True).path for _ in range(LOOKS)}
    finally:
        os.close(root)
    assert seen == {str(tmp_path / "here")}


@pytest.mark.usefixtures("moving")
def test_nor_is_a_path_given_up(tmp_path: Path) -> None:
    """As the broker opens the socket that a command wants to reach."""
    root = os.open("/", os.O_PATH)
    try:
        for _ in range(LOOKS):
            os.close(open_in_root(os.fsencode(tmp_path) + b"/../../", root, follow=False))
    finally:
        os.close(root)
