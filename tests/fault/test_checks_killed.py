"""The dispatcher, and what runs a check, killed with -9 while it runs."""

import signal
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents.supervisor import background
from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import TaskStatus
from tests.support.arena import end_exec_server, end_listener
from tests.support.dispatch import Yard, dispatcher, fresh_yard_fixture
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["fresh_yard_fixture"]

CHECK: Final = "echo started >> starts; until [ -e go ]; do sleep 0.05; done; exit $(cat go)"


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # the dispatcher is a process and brings its own loop


def starts(yard: Yard, task: Task) -> int:
    found = workspace(yard, task) / "starts"
    return len(found.read_text("utf-8").splitlines()) if found.exists() else 0


def workspace(yard: Yard, task: Task) -> Path:
    return yard.home / "board" / task.id


def let_go(yard: Yard, task: Task, code: str) -> None:
    """The check ends with this code, which it never sees half written."""
    place = workspace(yard, task)
    (place / "going").write_text(code, "utf-8")
    (place / "going").rename(place / "go")


@pytest.mark.parametrize(("code", "status"), [("0", TaskStatus.DONE), ("1", TaskStatus.READY)])
async def test_a_killed_dispatcher_is_followed_by_one_that_waits_for_the_same_check(
    yard: Yard, code: str, status: TaskStatus
) -> None:
    task = yard.create("echo worked > work", checks=(CHECK,))
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
    assert yard.store.task(task.id).status is TaskStatus.REVIEW
    let_go(yard, task, code)
    async with dispatcher(yard, "--drain") as second:
        assert await second.left() == 0
    assert yard.store.task(task.id).status is status
    assert starts(yard, task) == 1
    [run] = yard.store.runs(task.id)
    assert {"check-1", "output"} <= {file.name for file in yard.store.kept_files(run.id)}


async def test_a_check_whose_end_nobody_saw_is_run_again(yard: Yard) -> None:
    task = yard.create("echo worked > work", checks=(CHECK,))
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
    await end_listener(background.supervisor_socket(yard.home), signal.SIGKILL)
    await end_exec_server(yard.home)
    await yard.gone(task)
    let_go(yard, task, "0")
    assert yard.store.task(task.id).status is TaskStatus.REVIEW
    async with dispatcher(yard, "--drain") as second:
        assert await second.left() == 0
    assert yard.store.task(task.id).status is TaskStatus.DONE
    assert starts(yard, task) == 2
