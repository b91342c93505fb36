"""Our standard streams for coroutines: the same copying as for a local command (`relay.py`), awaited."""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Coroutine

from holdfast.errors import HoldfastError
from holdfast.local.relay import COPY_BYTES, STDERR, STDIN, STDOUT, Outlet, hand_on_input, in_foreground
from holdfast.local.tasks import TaskSet


def peek() -> bytes | None:
    """What standard input has ready: nothing yet (None), its end (no bytes), or a first piece."""
    waiting = select.poll()
    waiting.register(STDIN, select.POLLIN)
    if os.isatty(STDIN) or not waiting.poll(0):
        return None
    try:
        return os.read(STDIN, COPY_BYTES)
    except OSError:
        return b""


def read_input(
    loop: asyncio.AbstractEventLoop,
    take: Callable[[bytes], Coroutine[None, None, None]],
    first: bytes | None = None,
    is_ours: Callable[[], bool] = in_foreground,
) -> Callable[[], None]:
    """Pass on standard input until its end, each piece after `take` finished the last; return how to stop.

    `first` is the result of `peek`. If the input had ended by then, nothing is passed on.
    """
    taking = TaskSet()
    stops: list[Callable[[], None]] = []

    async def hand_on(data: bytes, more: Callable[[], object]) -> None:
        with contextlib.suppress(HoldfastError):  # the receiver is gone
            await take(data)
            more()

    def took(data: bytes, more: Callable[[], object]) -> None:
        taking.start(hand_on(data, more))

    def begin() -> None:
        stops.append(hand_on_input(loop, took, is_ours))

    def stop() -> None:
        taking.cancel()
        for stop_reading in stops:
            stop_reading()

    if first is None:
        begin()
    elif first:
        took(first, begin)
    return stop


class Writer:
    """Writes to our outputs. A slow or absent reader delays only the coroutine that awaits the write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outlets = {fd: Outlet(loop, fd) for fd in (STDOUT, STDERR)}

    async def write(self, descriptor: int, data: bytes) -> None:
        """Raises: OSError: the reader is gone, or there is no space left."""
        written: asyncio.Future[None] = self._loop.create_future()

        def settle(error: OSError | None = None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        outlet = self._outlets[descriptor]
        outlet.write(data, settle, lambda: settle(outlet.error))
        await written
