"""Look for the next request for a moment before going to sleep.

A client that talks in round trips sends its next request within some tens of microseconds. By then
an idle processor sleeps, and waking it costs more than the whole request (measured: half of a round
trip). So after each message the loop keeps polling for a moment. Idle connections cost nothing; a
busy one costs at most LINGER_S per message, and only if a second processor leaves it to us.
"""

import asyncio
import os
import time
from typing import Final

LINGER_S: Final = 0.0001  # covers a client's turn-around on the same machine; longer gains nothing more


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
