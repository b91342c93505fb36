"""Tasks that end with their owner."""

import asyncio
import gc

import pytest

from holdfast.local.tasks import TaskSet


async def test_a_task_is_kept_until_it_ends() -> None:
    tasks, go = TaskSet(), asyncio.Event()
    done = tasks.start(go.wait())
    gc.collect()
    await asyncio.sleep(0)
    assert set(tasks) == {done}
    go.set()
    await done
    await asyncio.sleep(0)
    assert not tasks


async def test_the_owner_ends_all_of_them_whatever_they_do() -> None:
    tasks, ends = TaskSet(), []

    async def fail_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("failed")
            raise ValueError

    tasks.start(fail_at_the_end())
    tasks.keep(stays := asyncio.get_running_loop().create_task(asyncio.Event().wait()))
    await asyncio.sleep(0)
    await tasks.aclose()
    assert ends == ["failed"]
    with pytest.raises(asyncio.CancelledError):
        stays.result()
