"""One question, asked by several at the same time, travels once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Answers and errors are shared while the question is under way, and never kept."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def ask(self, key: str, question: Callable[[], Coroutine[None, None, T]]) -> T:
        """The answer to the question with this key. Who stops waiting does not take it from the others."""
        task = self._asked.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(question())
            self._asked[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        return await asyncio.shield(task)

    def renew(self) -> None:
        """The world has changed: from now on nobody joins a question asked before."""
        self._asked.clear()

    def _answered(self, key: str, task: asyncio.Task[T]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
        if not task.cancelled():
            task.exception()  # seen, even if everybody has stopped waiting
