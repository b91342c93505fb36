"""Tasks with an owner, which keeps them alive until they end, and ends them when it ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet(set[asyncio.Task[Any]]):
    """Running tasks. An event loop keeps no task alive: a task that no code awaits belongs in here."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this concurrently with the caller."""
        task = asyncio.get_running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        self.add(task)
        task.add_done_callback(self.discard)

    def cancel(self) -> None:
        for task in self:
            task.cancel()

    async def aclose(self) -> None:
        """Cancel all tasks and wait until they have ended, with any result."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)
