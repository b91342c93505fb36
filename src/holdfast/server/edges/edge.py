"""The base of every edge: it carries one `ExecConnection`, and reports to it when the peer is slow."""

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # loaded with the first connection, so that a client's handshake need not wait for it
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
