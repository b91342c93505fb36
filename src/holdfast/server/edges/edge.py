"""What every edge does: carry one `Connection`, and tell it when the peer does not take what is sent."""

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # loaded when there is one: who waits for the handshake does not wait for that
    from holdfast.server.connection import Connection

WRITE_HIGH_BYTES: Final = 2 * 1024 * 1024  # unsent output of a connection before its children wait


class Edge(asyncio.Protocol):
    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.writing_paused()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.writing_resumed()
