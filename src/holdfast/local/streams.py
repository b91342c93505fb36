"""Our standard streams for coroutines: the same copying as for a command here (`relay.py`), awaited."""

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
    """Hand on standard input until its end, each piece when the last one was taken; returns how to stop.

    `first` is what `peek` saw: of an input that had ended by then there is nothing to hand on.
    """
    taking = TaskSet()
    stops: list[Callable[[], None]] = []

    async def hand_on(data: bytes, more: Callable[[], object]) -> None:
        with contextlib.suppress(HoldfastError):  # nobody takes any more
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
    """Writes to our outputs. Somebody who reads slowly, or not at all, holds up nobody but who awaits it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outlets = {fd: Outlet(loop, fd) for fd in (STDOUT, STDERR)}

    async def write(self, descriptor: int, data: bytes) -> None:
        """Raises: OSError: nobody reads any more, or there is no room for it."""
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
