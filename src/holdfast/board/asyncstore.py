"""The board's store in its own thread, and a second connection that listens for changes."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast.board.store import Store, open_store
from holdfast.errors import HoldfastError

P = ParamSpec("P")
T = TypeVar("T")

HINT_S: Final = 0.5  # how long the listener waits in one go; closing takes as long
AGAIN_S: Final = 1.0  # before a store that does not answer is asked again


class AsyncStore:
    """An asynchronous store. With `open` it also listens: `news` is set when the board may have changed.

    An instance made directly connects on the first question; end it with `aclose`.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="board")
        self._store: Store | None = None
        self.news = asyncio.Event()
        self._closing = threading.Event()
        self._listener: threading.Thread | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, address: str) -> AsyncIterator["AsyncStore"]:
        """Raises as `open_store` does."""
        store = cls(address)
        loop = asyncio.get_running_loop()
        try:
            await store.ask(Store.boards)
            store._listener = threading.Thread(target=store._listen, args=[loop], name="board-news")
            store._listener.start()
            yield store
        finally:
            await store.aclose()

    async def aclose(self) -> None:
        """Close the store, in its own thread."""
        self._closing.set()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.join)
        await asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown()

    async def ask(self, question: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the store, or a function of it, in its thread and return the result.

        One question is answered at a time.
        """
        return await asyncio.wrap_future(
            self._thread.submit(lambda: question(self._get_store(), *args, **kwargs))
        )

    def _get_store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._address, create=False)
        return self._store

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(HoldfastError), open_store(self._address, create=False) as store:
                while not self._closing.is_set():
                    if store.changed(HINT_S):
                        loop.call_soon_threadsafe(self.news.set)
            self._closing.wait(AGAIN_S)
