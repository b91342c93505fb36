"""What every edge does: carry one `ExecConnection`, and tell it when the peer does not take what is sent."""

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # loaded when there is one: who waits for the handshake does not wait for that
    from holdfast.server.connection import ExecConnection

WRITE_HIGH_BYTES: Final = 2 * 1024 * 1024  # unsent output of a connection before its children wait


class Edge(asyncio.Protocol):
    _connection: "ExecConnection | None" = None
    _task: "asyncio.Task[None] | None" = None

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.on_writing_paused()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.on_writing_resumed()
