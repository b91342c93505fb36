"""A thread with an event loop, for callers that have none or may not block theirs."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from holdfast.errors import SessionLost, UsageError

INTERRUPT_S: Final = 5.0  # for what Ctrl-C cancelled to end in order; a second Ctrl-C does not wait

T = TypeVar("T")


class Portal:
    """A thread with an event loop that runs coroutines for other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # what is begun is begun before the loop is told to stop
        running: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon, so that a script can end that forgot to close its environment.
        self._thread = threading.Thread(target=_live, args=(running,), name="holdfast.sync", daemon=True)
        self._thread.start()
        self._loop: asyncio.AbstractEventLoop | None = running.result()

    @property
    def closed(self) -> bool:
        return self._loop is None

    def stop(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def call(
        self, work: Coroutine[Any, Any, T], interrupted: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> T:
        """What the coroutine returns or raises. After Ctrl-C, `interrupted` is run as well.

        Raises:
            UsageError: the environment is closed, or this is its own thread.
        """
        begun = _Begun(work)
        try:
            self._begin(begun)
            return begun.outcome.result()
        except KeyboardInterrupt:
            self._cancel(begun)
            if interrupted is not None:
                self._clean_up(interrupted())
            raise

    def _begin(self, begun: "_Begun[T]") -> None:
        with self._lock:
            if self._loop is None or threading.current_thread() is self._thread:
                begun.work.close()
                raise UsageError(
                    "nobody is there to wait for", remedy="connect again, or use `await` in asynchronous code"
                )
            self._loop.call_soon_threadsafe(begun.begin)

    def _cancel(self, begun: "_Begun[T]") -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(begun.cancel)
        with contextlib.suppress(Exception):
            begun.outcome.result(INTERRUPT_S)

    def _clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        begun = _Begun(work)
        with contextlib.suppress(Exception):  # the interrupt is what the caller is to see
            self._begin(begun)
            begun.outcome.result(INTERRUPT_S)


class _Begun(Generic[T]):
    """One coroutine on its way through the loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.outcome: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.work)
        self._task.add_done_callback(self._settle)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.work.close()
            self.outcome.cancel()

    def _settle(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self.outcome.set_exception(SessionLost("the environment was closed meanwhile"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _live(running: "Future[asyncio.AbstractEventLoop]") -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(running.set_result, loop)
        loop.run_forever()
