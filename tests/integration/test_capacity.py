"""A dispatcher that looks at its host before it starts anything, and waits for limits of providers."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch import hostload
from holdfast.dispatch.rules import pressure
from holdfast.dispatch.rules.pressure import HostLimits, HostLoad, MemoryLoad
from tests.support import warm
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

MIB = 1 << 20


def laid_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    return root


def test_this_host_says_how_much_memory_it_has() -> None:
    found = hostload.look()
    assert found.memory is not None
    assert 0 < found.memory.free <= found.memory.total
    assert found.cpus > 0
    assert pressure.most_here(found) >= 1


def test_a_control_group_leaves_less_than_the_machine_has(tmp_path: Path) -> None:
    root = laid_out(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
            "proc/self/cgroup": "0::/a/b\n",
            "proc/loadavg": "1.00 1.00 1.00 1/1 1\n",
            "sys/fs/cgroup/a/memory.max": str(1024 * MIB),
            "sys/fs/cgroup/a/memory.current": str(1000 * MIB),
            "sys/fs/cgroup/a/memory.stat": f"inactive_file {100 * MIB}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n",
        },
    )
    found = hostload.look(root)
    assert found.memory == MemoryLoad(1024 * MIB, 124 * MIB)
    assert found.cpus == 0.5
    assert found.load == 1 / (os.cpu_count() or 1)
    assert found.stall is None


def test_control_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    root = laid_out(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/c\n1:cpu,cpuacct:/c\n0::/../..\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "500",
            "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
        },
    )
    assert hostload.look(root) == HostLoad(cpus=0.25, memory=MemoryLoad(2000, 1500))


async def test_nothing_is_started_under_pressure_and_the_task_says_why(yard: Yard) -> None:
    free = [0]
    host = hostload.watch_load(
        HostLimits(min_free=pressure.GIB), lambda: HostLoad(1.0, MemoryLoad(8 * pressure.GIB, free[0]))
    )
    task = yard.create("true")
    async with yard.dispatching(held=host):
        await yard.when(lambda: "memory" in yard.store.why(task.id).reason)
        assert yard.store.task(task.id).status is TaskStatus.READY
        assert yard.store.task(task.id).attempts == 0
        free[0] = 4 * pressure.GIB
        await yard.until(task, TaskStatus.DONE)


async def test_a_host_that_is_full_says_so(yard: Yard) -> None:
    first, second = yard.create("while [ ! -e go ]; do sleep 0.05; done", priority=1), yard.create("true")
    async with yard.dispatching(most=1):
        await yard.until(first, TaskStatus.RUNNING)
        await yard.when(lambda: "1 runs at once" in yard.store.why(second.id).reason)
        await yard.when(lambda: (yard.home / "board" / first.id).is_dir())
        (yard.home / "board" / first.id / "go").touch()
        await yard.until(second, TaskStatus.DONE)


def foreseen(yard: Yard, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = ["dispatch", "--home", str(yard.home), "--store", yard.address, "--board", "b", "--dry-run"]
    env = {"PATH": os.environ["PATH"], "HOME": str(yard.user)}
    return warm.run([*argv, "--json", *words], env=env, cwd=os.getcwd(), timeout=patient(60))


async def test_a_quota_is_waited_for_until_the_reset_that_the_cli_announced(yard: Yard) -> None:
    # As codex 0.166.0 ends when its provider says that the usage limit is reached.
    end = datetime.now(UTC).astimezone() + timedelta(days=2)
    clock = (
        f"{end:%b} {end.day}th, {end.year} {end.hour % 12 or 12}:{end:%M} {'PM' if end.hour > 11 else 'AM'}"
    )
    error = {"message": f"You\u2019ve hit your usage limit. Visit x, or try again at {clock}."}
    events = [
        {"type": "thread.started", "thread_id": "1"},
        {"type": "turn.started"},
        {"type": "turn.failed", "error": error},
    ]
    said = "\n".join(map(json.dumps, events))
    yard.program("codex", f"cat > /dev/null; cat <<'X'\n{said}\nX\nexit 1")
    task = yard.create("work", assignee="codex")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    waiting = yard.store.task(task.id)
    assert (waiting.status, waiting.reason) == (TaskStatus.WAITING_SYSTEM, "quota")
    assert waiting.wake_ms is not None
    assert abs(waiting.wake_ms / 1000 - end.timestamp()) < 3 * 60  # the minute that was named, and a spread


@pytest.mark.parametrize(
    ("words", "code", "starts"),
    [
        (("--min-free-memory", "900000G"), 0, 0),
        (("--min-free-memory", "0", "--max-load", "0.001"), 0, 1),  # load never stops the first
        (("--min-free-memory", "much"), 2, 0),
    ],
)
async def test_bounds_of_the_host_are_options(
    yard: Yard, words: tuple[str, ...], code: int, starts: int
) -> None:
    task = yard.create("true")
    done = foreseen(yard, *words)
    assert done.returncode == code
    if code:
        return
    said = json.loads(done.stdout)
    assert len(said["starts"]) == starts
    assert [wait["task"] for wait in said["waits"]] == [task.id] * (1 - starts)
    assert all("of memory would be left" in wait["reason"] for wait in said["waits"])
