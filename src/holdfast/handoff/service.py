"""The socket of the handoff: a call carries an envelope, its result is the answer.

An envelope that the store could neither carry out nor refuse gets an error, which is no answer: the sender
has the outbox.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from holdfast.board.asyncstore import AsyncStore
from holdfast.errors import HoldfastError
from holdfast.handoff import envelope
from holdfast.handoff.broker import Broker
from holdfast.handoff.envelope import HAND_IN, MAX_LINE, Envelope, HandoffAnswer
from holdfast.unixrpc.server import Peer, RpcLimits, RpcServer

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 64  # at once, of all workers of a home; one more is sent away, and has its outbox
MAX_UNSENT: Final = 1024 * 1024  # bytes that a client may leave unread and still be answered
IDLE_S: Final = 60.0  # a client that says nothing for that long makes room for others


class Service:
    """Answers envelopes of any run of one home."""

    def __init__(self, store: AsyncStore, key: bytes) -> None:
        self._store, self._key = store, key

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Listen at `path` inside the block, in place of whoever listened there before.

        Raises:
            StartupError: it cannot listen there.
        """
        server = RpcServer(RpcLimits(MAX_LINE, MAX_UNSENT, MAX_CLIENTS, calls=1, idle_s=IDLE_S))
        server.answer(HAND_IN, self._answer)
        async with server.listening(path):
            yield

    async def _answer(self, letter: Envelope, _peer: Peer) -> HandoffAnswer:
        envelope.check_shape(letter)
        try:
            return await self._store.ask(lambda store: Broker(store, self._key).carry_out(letter))
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": type(exc).__name__})
            raise
