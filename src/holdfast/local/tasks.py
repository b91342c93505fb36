"""Tasks with an owner: kept alive until they end, and ended with their owner."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet(set[asyncio.Task[Any]]):
    """Those that have not ended. A loop keeps no task alive: one that nobody awaits belongs in here."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this beside the caller."""
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
        """Cancel them all and wait until they have ended, however they do."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)
