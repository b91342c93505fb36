"""The socket of the handoff: a call carries an envelope, its result is the answer.

An envelope that the store could neither carry out nor refuse gets an error, which is no answer: the sender
has the outbox. Store and broker live in one thread of their own.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from holdfast.board.store import Store
from holdfast.errors import ConnectionLost, HoldfastError
from holdfast.handoff import envelope
from holdfast.handoff.broker import Broker
from holdfast.handoff.envelope import HAND_IN, MAX_LINE, Envelope, HandoffAnswer
from holdfast.unixrpc.server import Limits, Peer, RpcServer

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 64  # at once, of all workers of a home; one more is sent away, and has its outbox
MAX_UNSENT: Final = 1024 * 1024  # bytes that a client may leave unread and still be answered
IDLE_S: Final = 60.0  # a client that says nothing for that long makes room for others


class Service:
    """Answers envelopes of any run of one home."""

    def __init__(self, open_store: Callable[[], Store], key: bytes) -> None:
        self._open_store = open_store
        self._key = key
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="handoff")
        self._store: Store | None = None
        self._broker: Broker | None = None

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Listen at `path` inside the block, in place of whoever listened there before.

        Raises:
            StartupError: it cannot listen there.
            HoldfastError: the store cannot be opened.
        """
        loop = asyncio.get_running_loop()
        server = RpcServer(Limits(MAX_LINE, MAX_UNSENT, MAX_CLIENTS, calls=1, idle_s=IDLE_S))
        server.answer(HAND_IN, self._answer)
        try:
            await loop.run_in_executor(self._thread, self._open)
            async with server.listening(path):
                yield
        finally:
            await loop.run_in_executor(self._thread, self._close)  # after what is being carried out
            self._thread.shutdown(wait=False)

    def _open(self) -> None:
        self._store = self._open_store()
        self._broker = Broker(self._store, self._key)

    def _close(self) -> None:
        self._broker = None
        if self._store is not None:
            self._store.close()

    async def _answer(self, letter: Envelope, _peer: Peer) -> HandoffAnswer:
        envelope.check_shape(letter)
        if self._broker is None:
            raise ConnectionLost("the handoff has ended")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._broker.carry_out, letter)
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": type(exc).__name__})
            raise
