"""What every edge does: carry one `ExecConnection`, and tell it when the peer does not take what is sent.

A client that talks in round trips sends its next request within some tens of microseconds. By then
an idle processor sleeps, and waking it costs more than the whole request (measured: half of a round
trip). So after each message the loop keeps polling for a moment (`Linger`). Idle connections cost nothing;
a busy one costs at most LINGER_S per message, and only if a second processor leaves it to us.
"""

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # loaded when there is one: who waits for the handshake does not wait for that
    from holdfast.server.connection import ExecConnection

WRITE_HIGH_BYTES: Final = 2 * 1024 * 1024  # unsent output of a connection before its children wait
PING_S: Final = 30.0  # as often as the reference
PONG_S: Final = 60.0  # measured from the first unanswered ping; later pings do not extend it
LINGER_S: Final = 0.0001  # covers a client's turn-around on the same machine; longer gains nothing more


class Edge(asyncio.Protocol):
    def __init__(self) -> None:
        self._connection: ExecConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.on_writing_paused()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.on_writing_resumed()


class Keepalive:
    """Call `tick` at `next_tick`; send a ping unless it says that the peer is gone."""

    def __init__(self, now: float) -> None:
        self.next_tick = now + PING_S
        self._unanswered_since: float | None = None

    def tick(self, now: float) -> bool:
        """True: the peer has not answered for too long."""
        while self.next_tick <= now:
            self.next_tick += PING_S  # missed ticks are skipped, not made up for
        if self._unanswered_since is None:
            self._unanswered_since = now
        return now - self._unanswered_since >= PONG_S

    def pong(self) -> None:
        """The peer lives."""
        self._unanswered_since = None


class Linger:
    """Call `touch` after every message from a client."""

    def __init__(self) -> None:
        self._able = len(os.sched_getaffinity(0)) > 1
        self._until = 0.0
        self._running = False

    def touch(self) -> None:
        if self._able:
            self._until = time.perf_counter() + LINGER_S
            if not self._running:
                self._running = True
                asyncio.get_running_loop().call_soon(self._spin)

    def _spin(self) -> None:
        if time.perf_counter() < self._until:
            asyncio.get_running_loop().call_soon(self._spin)
        else:
            self._running = False
