"""The edge for the commands of one process: its own unix socket, which requires a token."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from holdfast.errors import OperationFailed, PeerRefused, StartupError
from holdfast.local import peers
from holdfast.local.tasks import TaskSet
from holdfast.server.connection import ExecConnection
from holdfast.server.edges.binding import bind_unix
from holdfast.server.edges.lineedge import LineEdge
from holdfast.server.executor import Executor
from holdfast.server.narrowed import NarrowedExecutor
from holdfast.server.processes.commands import CommandCeiling

MAX_CONNECTIONS: Final = 8  # codex has one; each has its own processes and output


class CommandSocket:
    """Listens while the process lives. Its peer is confined; the token authenticates it."""

    def __init__(self, executor: NarrowedExecutor, path: str, token: str) -> None:
        self._executor = executor
        self._path = path
        self._token = token
        self._tasks = TaskSet()
        self._server: asyncio.Server | None = None
        self._edges: set[_CommandEdge] = set()

    async def open(self) -> None:
        """Raises OperationFailed if the socket cannot be opened."""
        try:
            sock = bind_unix(self._path)
        except StartupError as exc:
            raise OperationFailed(str(exc)) from None
        self._server = await asyncio.get_running_loop().create_unix_server(self._make, sock=sock)

    def close(self) -> None:
        """End every connection and every command; idempotent."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._executor.close()
        for edge in list(self._edges):
            edge.abort()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _make(self) -> "_CommandEdge":
        return _CommandEdge(
            edges=self._edges,
            connect=self._connect,
            admit=self._admit,
            adopt=self._tasks.keep,
            token=lambda: self._token,
        )

    def _admit(self, transport: asyncio.BaseTransport) -> None:
        if not peers.is_allowed(peers.uid_of_unix_peer(transport.get_extra_info("socket")), own=os.getuid()):
            raise PeerRefused("this is another user's")
        if len(self._edges) > MAX_CONNECTIONS:
            raise PeerRefused(f"{MAX_CONNECTIONS} connections are open already")

    def _connect(self, edge: LineEdge) -> ExecConnection:
        return ExecConnection(
            self._executor,
            edge,
            label="failed to parse JSON-RPC message from the socket for commands",
            resumable=False,
        )


class _CommandEdge(LineEdge):
    """An edge that is counted from the start, before it has shown a token."""

    def __init__(
        self,
        *,
        edges: "set[_CommandEdge]",
        connect: Callable[[LineEdge], ExecConnection],
        admit: Callable[[asyncio.BaseTransport], None],
        adopt: Callable[[asyncio.Task[None]], None],
        token: Callable[[], str],
    ) -> None:
        super().__init__(connect=connect, admit=admit, adopt=adopt, finish_at_eof=False, token=token)
        self._edges = edges

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._edges.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._edges.discard(self)
        super().connection_lost(exc)


async def listen(whole: Executor, ceiling: CommandCeiling, path: str, token: str) -> CommandSocket:
    """Make this server listen for the commands of one of its processes.

    Raises:
        OperationFailed: the socket cannot be opened.
    """
    made = CommandSocket(NarrowedExecutor(whole, ceiling), path, token)
    await made.open()
    return made
