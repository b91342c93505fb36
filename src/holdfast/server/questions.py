"""Requests of ours to a client, on one connection: their numbers, and who waits for which answer."""

import asyncio
from typing import Final

import msgspec

from holdfast.wire import rpc
from holdfast.wire.network import MAX_QUESTIONS
from holdfast.wire.rpc import JsonValue

NO_ANSWER: Final = None


class Questions:
    """Asks, and hands each answer to whoever asked. An answer that is an error is none."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[JsonValue]] = {}
        self._last = 0
        self._ended = False

    @property
    def any(self) -> bool:
        """Is an answer waited for?"""
        return bool(self._waiting)

    def begin(self, method: str, params: msgspec.Struct) -> "tuple[int, bytes] | None":
        """The number and the message of a new question; None: no more can be asked now."""
        if self._ended or len(self._waiting) >= MAX_QUESTIONS:
            return None
        self._last += 1
        self._waiting[self._last] = asyncio.get_running_loop().create_future()
        return self._last, rpc.request(self._last, method, params)

    async def wait(self, number: int, timeout_s: float) -> JsonValue:
        """The answer, or NO_ANSWER once the time or the connection is over."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiting[number]
        except TimeoutError:
            return NO_ANSWER
        finally:
            self._waiting.pop(number, None)

    def answer(self, message: rpc.Message) -> bool:
        """Take an answer; one that comes too late is taken and ignored. False: nobody ever asked."""
        if not isinstance(message, rpc.Response | rpc.ErrorResponse):
            return False
        number = message.id
        if not isinstance(number, int) or not 0 < number <= self._last:
            return False
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.result if isinstance(message, rpc.Response) else NO_ANSWER)
        return True

    def end(self) -> None:
        """The connection is over: nobody will answer."""
        self._ended = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(NO_ANSWER)
