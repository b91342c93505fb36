"""Dispatcher, supervisor, exec server and workers killed with -9 in any order, by a seed.

More of it: HOLDFAST_KILLS=300 HOLDFAST_SEED=7 pytest tests/fault/test_dispatch_chaos.py
"""

import asyncio
import contextlib
import os
import random
import shlex
import signal
import sys
from typing import Final

import pytest

from holdfast.agents import background
from holdfast.board.rows import Task
from holdfast.board.transitions import Move, Status
from tests.support.arena import end_listener
from tests.support.dispatch import Yard, dispatcher, yard_fixture

__all__ = ["yard_fixture"]

KILLS: Final = int(os.environ.get("HOLDFAST_KILLS", "25"))
SEED: Final = int(os.environ.get("HOLDFAST_SEED", "1"))
TASKS: Final = max(6, KILLS // 6)
VICTIMS: Final = ("dispatcher",) * 6 + ("supervisor",) * 3 + ("worker",) * 3
EXEC_SERVERS: Final = max(1, KILLS // 10)
WITHIN_S: Final = 120.0 + 5.0 * KILLS

pytestmark = pytest.mark.timeout(WITHIN_S + 60)

_SAYS: Final = (
    "from holdfast.handoff.sender import Sender; Sender.find().send('complete', {'summary': 'done'})"
)
# It tells which run it is, takes its time, and reports in the end.
WORK: Final = (
    'grep -o \'"run":"[^"]*"\' .holdfast/run.json >> starts; sleep 0.3; '
    f"exec {shlex.quote(sys.executable)} -c {shlex.quote(_SAYS)}"
)


async def kill(yard: Yard, victim: str, tasks: list[Task], choice: random.Random) -> None:
    match victim:
        case "supervisor":
            await end_listener(background.supervisor_socket(yard.home), signal.SIGKILL)
        case "exec":
            await end_listener(yard.home / "exec.sock", signal.SIGKILL)
        case "worker":
            living = [pid for task in tasks for pid in yard.living(task)]
            with contextlib.suppress(IndexError, ProcessLookupError):
                os.kill(choice.choice(living), signal.SIGKILL)


def helped_on(yard: Yard, tasks: list[Task]) -> int:
    """How many are not done; nobody waits for a pause to pass, or for a person."""
    left = 0
    for task in tasks:
        status = yard.store.task(task.id).status
        left += status is not Status.DONE
        if status is Status.WAITING_SYSTEM:
            yard.store.move(task.id, Move.UNBLOCK)
        elif status in (Status.HANDOFF_FAILED, Status.FAILED):
            yard.store.move(task.id, Move.RETRY)
    return left


async def test_whatever_is_killed_every_task_is_done_once(yard: Yard) -> None:
    choice = random.Random(SEED)  # noqa: S311 - a schedule
    yard.launcher("agent", agent="shell", prompt="{body}", network=False)
    tasks = [yard.create(WORK, assignee="agent", max_attempts=100) for _ in range(TASKS)]
    victims = [choice.choice(VICTIMS) for _ in range(KILLS)]
    for place in choice.sample(range(KILLS), EXEC_SERVERS):
        victims[place] = "exec"
    async with asyncio.timeout(WITHIN_S):
        while helped_on(yard, tasks):
            async with dispatcher(yard, "--max", "4"):
                while helped_on(yard, tasks):
                    await asyncio.sleep(choice.uniform(0.05, 1.5))
                    victim = victims.pop() if victims else "nobody"
                    if victim == "dispatcher":
                        break
                    await kill(yard, victim, tasks, choice)
        async with dispatcher(yard, "--drain") as last:
            assert await last.left(60.0) == 0
    for task in tasks:
        runs = yard.store.runs(task.id)
        assert [run.outcome for run in runs].count("completed") == 1, runs
        started = (yard.home / "board" / task.id / "starts").read_text("utf-8").splitlines()
        assert len(started) == len(set(started)), "no run was started twice"
        await yard.gone(task)
    assert yard.store.faults() == []
    assert list((yard.home / "board" / "runs").iterdir()) == []
