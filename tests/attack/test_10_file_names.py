"""Whatever a worker leaves in its workspace, only its own run ends by it, and that run ends."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agents.changes import changes
from holdfast.agents.changes.manifest import NOT_WHOLE
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.dispatch.run.run import INTERNAL, RunDriver
from holdfast.local.trees import MAX_DEPTH, remove_tree
from tests.support.fakes import Act, Scene
from tests.unit.dispatch.conftest import anyio_backend, scene

__all__ = ["anyio_backend", "scene"]

DEEP = 3_000  # directories one in another, whose path is longer than the kernel takes


def make_deep(top: Path, depth: int = DEEP) -> None:
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


def plant(place: Path) -> None:
    """Everything of the issue."""
    (place / os.fsdecode(b"bad\xff")).write_text("x", "utf-8")
    (place / "grün".encode("latin-1").decode("utf-8", "surrogateescape")).mkdir()
    (place / os.fsdecode(b"link\xff")).symlink_to(os.fsdecode(b"to\xfe"))
    make_deep(place)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def leave_nothing_deep(tmp_path: Path) -> Iterator[None]:
    """What is left there pytest removes later, and it cannot remove what lies so deep."""
    yield
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


async def test_odd_names_and_depths_are_told_and_the_run_ends(scene: Scene, project: Path) -> None:
    scene.supervisor.cast = lambda wish: Act(does=lambda _wish: plant(Path(wish.cwd)))
    task = scene.create(workspace_kind="dir", workspace=str(project))
    other = scene.create()
    await scene.dispatch(once=True)
    with pytest.raises(OSError, match="File name too long"):  # the control: nobody can even name it
        os.stat("/".join([str(project), *["d"] * DEEP]))
    assert scene.task(task).status is TaskStatus.DONE
    assert scene.task(other).status is TaskStatus.DONE
    [run] = scene.store.runs(task.id)
    told = json.loads(scene.store.file(task.id, run.id, "end.json"))["changed"]["paths"]
    assert r"A bad\xff" in told
    assert r"A link\xff" in told
    assert NOT_WHOLE in told
    deepest = "/".join(["d"] * MAX_DEPTH)
    assert f"A {deepest} (a directory too deep to be looked into)" in told
    scene.supervisor.cast = lambda _wish: Act()
    again = scene.create(workspace_kind="dir", workspace=str(project))  # with all that there before
    await scene.dispatch(once=True)
    assert scene.task(again).status is TaskStatus.DONE


async def test_an_exception_that_nobody_expected_ends_its_run_and_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_folder: Path) -> None:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(changes, "look", fail)
    scene.supervisor.cast = lambda _wish: Act(said=b"what it said")
    task = scene.create(max_attempts=1)
    await scene.dispatch(once=True)
    assert scene.task(task).status is TaskStatus.FAILED
    [run] = scene.store.runs(task.id)
    assert (run.outcome, run.failure, run.ending) == ("failed", "internal", "failed(internal)")
    assert "internal error: UnicodeEncodeError" in (run.error or "")
    assert b"Traceback" in scene.store.file(task.id, run.id, INTERNAL)
    assert scene.store.file(task.id, run.id, "output") == b"what it said"
    assert scene.told == [("began", task.id), ("ended", task.id)]
    assert not list((scene.home / "board" / "runs").iterdir())
    monkeypatch.undo()
    after = scene.create()
    await scene.dispatch(once=True)
    assert scene.task(after).status is TaskStatus.DONE


async def _raise(*_: object) -> None:
    raise RecursionError("too deep")


@pytest.mark.parametrize("step", ["_find", "_begin", "_follow", "_keep", "_check", "_tear_down", "locate"])
async def test_a_run_that_cannot_be_attended_to_can_be_cancelled_and_frees_its_slot(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Another door: not only the looks at the files, every step."""
    scene.supervisor.cast = lambda _wish: Act(seconds=None)
    broken: Callable[..., object] = _raise
    monkeypatch.setattr(RunDriver, step, broken)
    task = scene.create()
    serving = asyncio.get_running_loop().create_task(scene.dispatch(most=1))
    await scene.until(lambda: scene.store.runs(task.id))
    scene.store.move(task.id, Move.CANCEL)
    scene.async_store.news.set()
    await scene.until(lambda: ("ended", task.id) in scene.told)
    monkeypatch.undo()
    scene.supervisor.cast = lambda _wish: Act()
    after = scene.create()
    await scene.until(lambda: scene.task(after).status is TaskStatus.DONE)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert not scene.supervisor.running()


def test_a_tree_that_is_closed_or_deep_is_removed(project: Path) -> None:
    outside, closed = project.parent / "outside", project / "closed"
    outside.mkdir(mode=0o500)
    closed.mkdir()
    make_deep(closed, MAX_DEPTH + 50)
    (closed / "link").symlink_to(outside)
    closed.chmod(0)
    remove_tree(project)
    assert not project.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_look_counts_directories_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_ENTRIES", 50)
    for number in range(60):
        (tmp_path / f"d{number}").mkdir()
    assert not changes.look(tmp_path).whole
