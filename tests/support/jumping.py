"""An event loop whose clock jumps: when nothing can be done now, it is the time of the next timer at once.

Nothing sleeps and nothing runs in another thread, so a test of hours takes milliseconds and always takes the
same course. Whoever waits for something that no timer will bring is told so.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """`time` begins at a number that no real clock shows."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        super().__init__(_Selector(self))
        self.set_default_executor(_Inline())

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Without the thread in which others wait for their threads: nobody would wake this loop in time."""


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits, and no timer will wake anybody")
        if not ready and timeout:
            self._loop.jump(timeout)
        return ready


class _Inline(ThreadPoolExecutor):
    """Does it at once, here."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as exc:
            future.set_exception(exc)
        return future
