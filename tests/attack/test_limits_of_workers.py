"""A worker's bomb takes neither the board nor the daemons along, and the board says which limit it was."""

import os
import shlex
import sys
from typing import Final

import pytest

from holdfast.agents.sdk import Workers
from holdfast.agents.worker import launching
from holdfast.agents.worker.launching import WorkerSpec, limits_of
from holdfast.board.rules.transitions import TaskStatus
from holdfast.errors import UsageError
from tests.support import bombs
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.root_only import root_only
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
_INTERPRETER: Final = (sys.executable, "-I", "-S", "-c")


def bomb(code: str) -> str:
    return shlex.join([*_INTERPRETER, code])


def spec(**more: object) -> WorkerSpec:
    return WorkerSpec(agent="shell", cwd="/", env={}, **more)  # type: ignore[arg-type]


async def test_a_memory_bomb_on_the_board_is_told_with_its_limit(yard: Yard) -> None:
    yard.profile("bomber", agent="shell", prompt="{body}", success="exit", network=False)
    yard.profile("bomber.limits", memory="64M")
    task = yard.create(bomb(bombs.MEMORY), assignee="bomber", max_attempts=1)
    free = yard.create(bomb(bombs.MEMORY))
    async with yard.dispatching():
        await yard.until(task, TaskStatus.FAILED)
        done = await yard.until(free, TaskStatus.DONE)
        [run] = yard.store.runs(task.id)
        assert "killed: memory limit 64 MiB reached (peak " in str(run.error)
        assert "failed: limit" in str(run.error)
        assert "did not send" not in str(run.error)
        assert done.result == "allocated"


async def test_the_daemons_outlive_the_bombs_of_their_workers(yard: Yard) -> None:
    async with Workers.connect(yard.home) as workers:
        limits = {"memory": "96M", "pids": 60}
        first = await workers.run(
            "shell", cwd=str(yard.user), prompt=bomb(bombs.MEMORY), limits=limits, network=False
        )
        report = await first.wait()
        assert report.failure == "limit"
        assert report.about.startswith("killed: memory limit 96 MiB reached (peak ")
        second = await workers.run(
            "shell", cwd=str(yard.user), prompt=bomb(bombs.FORKS), limits=limits, network=False
        )
        report = await second.wait()
        assert "process limit of 60 reached" in report.about
        third = await workers.run("shell", cwd=str(yard.user), prompt="echo well", network=False)
        assert (await third.wait()).state == "completed"


@root_only("an ordinary user has no control groups here")
async def test_a_worker_without_a_word_about_limits_has_the_default_ones(yard: Yard) -> None:
    task = yard.create("cat /proc/self/cgroup > groups; cat /proc/self/oom_score_adj > score")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    workspace = yard.home / "board" / task.id
    held = {line.split(":")[1]: line.split(":")[2] for line in (workspace / "groups").read_text().split()}
    assert all(os.path.basename(held[name]).startswith("holdfast-") for name in ("memory", "pids"))
    assert int((workspace / "score").read_text()) >= 500


def test_the_default_limits_leave_room_for_the_daemons() -> None:
    limits = limits_of(spec())
    assert limits is not None
    assert limits.pids == launching.DEFAULT_LIMITS["pids"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert limits.memory is not None
    assert 0.5 * memory < limits.memory < 0.8 * memory


def test_a_wish_changes_one_limit_or_lifts_it() -> None:
    changed = limits_of(spec(limits={"memory": "1G"}))
    assert changed is not None
    assert (changed.memory, changed.pids) == (1 << 30, 2048)
    assert limits_of(spec(limits={"memory": "none", "pids": "none"})) is None
    assert limits_of(spec(unconfined=True)) is None
    with pytest.raises(UsageError, match="time"):
        limits_of(spec(limits={"timeout": "1m"}))
