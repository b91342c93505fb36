"""A worker that holds a lock on a repository holds nobody up."""

import asyncio
import fcntl
import os

import pytest

from holdfast.agents.changes.git import find_repository
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.run import workspace
from holdfast.errors import OperationFailed
from holdfast.local.lock import lock_folder, take_lock
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


async def test_a_lock_on_the_repository_keeps_nobody_waiting(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    held = [os.open(place, os.O_RDONLY) for place in (repository, repository / ".git")]
    try:
        for fd in held:
            fcntl.flock(fd, fcntl.LOCK_EX)
        again = os.open(repository / ".git", os.O_RDONLY)
        assert not take_lock(again), "the control: whoever locks that directory waits"
        os.close(again)
        task = yard.create("true", workspace_kind="worktree", workspace=str(repository))
        async with asyncio.timeout(patient(20)):
            space = await workspace.prepare(yard.context(), task)
        assert (space.path / "a.txt").is_file()
    finally:
        for fd in held:
            os.close(fd)


async def test_a_worker_can_not_open_the_lock_that_is_used(yard: Yard) -> None:
    """Another door: a lock can be held by whoever can read its file."""
    repository = yard.repository({"a.txt": "a\n"})
    locks = lock_folder(str(yard.user))
    async with yard.context().git.alone(find_repository(str(repository))):
        [lock] = locks.iterdir()
    body = f"ls {locks} && echo SEEN; flock -n {lock} echo HELD; flock -n /etc/hostname echo control; true"
    task = yard.create(body, workspace_kind="worktree", workspace=str(repository))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    [run] = yard.store.runs(task.id)
    said = yard.store.file(task.id, run.id, "output").decode()
    assert "control" in said
    assert "SEEN" not in said
    assert "HELD" not in said


async def test_waiting_for_others_is_bounded_and_says_for_whom(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = find_repository(str(yard.repository({"a.txt": "a\n"})))
    git = yard.context().git
    monkeypatch.setattr("holdfast.agents.changes.git.LOCK_S", 0.2)
    async with git.alone(repository):
        with pytest.raises(OperationFailed, match="others make worktrees") as caught:
            async with git.alone(repository):
                raise AssertionError("it was not free")
    assert str(lock_folder(str(yard.user))) in (caught.value.remedy or "")
    async with git.alone(repository):
        pass
