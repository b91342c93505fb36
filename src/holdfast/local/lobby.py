"""Connections of which nobody knows yet whether they may come in: few at once, and not for long.

When it is full the one that waits longest is cut off, so whoever sends what is asked for at once comes in,
however many others say nothing.
"""

import asyncio


class Lobby:
    """At most `most` at once. Without `within_s` one may stay until it leaves or makes room."""

    def __init__(self, most: int, within_s: float | None = None) -> None:
        self._most = most
        self._within_s = within_s
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle | None] = {}

    def enter(self, transport: asyncio.Transport) -> None:
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.abort()
        timer = None
        if self._within_s is not None:
            timer = asyncio.get_running_loop().call_later(self._within_s, transport.abort)
        self._waiting[transport] = timer

    def leave(self, transport: asyncio.Transport) -> None:
        """It is known now, or gone; one that was not here is not minded."""
        timer = self._waiting.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def __len__(self) -> int:
        return len(self._waiting)
