"""The dispatcher killed with -9 at every step of a run: no task is lost or done twice, nothing is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest

from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.run.run import marks
from tests.support.dispatch import Yard, fresh_yard_fixture
from tests.support.dying_dispatcher import ALL_DONE
from tests.support.patience import patient
from tests.support.tiers import DEEP

__all__ = ["fresh_yard_fixture"]

STRIDES: Final = 8  # tests among which the steps are dealt out; one of them is for every day
FEWEST: Final = 3  # steps of each
MOST: Final = 80  # there are fewer
# It tells which run it is, and lets an exit code speak for it.
WORK: Final = 'grep -o \'"run":"[^"]*"\' .holdfast/run.json >> starts; echo done'

pytestmark = pytest.mark.timeout(300)  # a dozen dispatchers are started, one after the other


async def killed_at(yard: Yard, step: int) -> int:
    argv = [sys.executable, "-m", "tests.support.dying_dispatcher", str(step), str(yard.home), yard.address]
    environment = {"PATH": os.environ["PATH"], "HOME": str(yard.user)}
    process = subprocess.Popen(argv, env=environment)  # noqa: ASYNC220
    try:
        return await asyncio.to_thread(process.wait, patient(60))
    finally:
        process.kill()
        process.wait()


async def assert_done_once(yard: Yard, task: Task, step: int) -> None:
    runs = yard.store.runs(task.id)
    assert yard.store.task(task.id).status is TaskStatus.DONE, (step, runs)
    assert [run.outcome for run in runs] == ["completed"], (step, runs)
    place = yard.home / "board" / task.id
    assert place.joinpath("starts").read_text("utf-8").splitlines() == [f'"run":"{runs[0].id}"'], step
    kept = {file.name for file in yard.store.kept_files(runs[0].id)}
    assert kept == {"end.json", "diff.patch", "output"}, (step, kept)
    await yard.gone(task)
    assert list((yard.home / "board" / "runs").iterdir()) == [], step


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=DEEP if first > 1 else ()) for first in range(1, STRIDES + 1)]
)
async def test_a_run_survives_its_dispatcher_at_every_step(
    yard: Yard, first: int, record_property: Callable[[str, object], None]
) -> None:
    died = 0
    for step in range(first, MOST, STRIDES):
        task = yard.create(WORK)
        code = await killed_at(yard, step)
        assert code in (-signal.SIGKILL, ALL_DONE)
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        await assert_done_once(yard, task, step)
        if code == ALL_DONE:
            break
        died += 1
    else:
        raise AssertionError(f"there are {MOST} steps and more")
    assert died >= FEWEST
    record_property("kills", died)


async def test_a_mark_that_a_killed_dispatcher_was_writing_is_cleared(yard: Yard) -> None:
    folder = marks(yard.home)
    folder.mkdir(parents=True)
    (folder / ".0123456789abcdef").write_bytes(b"{")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert list(folder.iterdir()) == []
