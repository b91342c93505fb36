"""Listeners: serve admitted clients until told to stop."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import PeerRefused
from holdfast.local import peers
from holdfast.local.peers import Lobby
from holdfast.local.tasks import TaskSet
from holdfast.server.edges.address import (
    DirectAddress,
    RemoteAddress,
    Stdio,
    UnixAddress,
    WebSocketAddress,
)
from holdfast.server.edges.binding import BACKLOG, ENDING, ServeOptions, bind_tcp, bind_unix, check_exposure
from holdfast.server.edges.early import WITHIN_S, FirstConnection
from holdfast.server.metrics import PrometheusMetrics, keep_writing

if TYPE_CHECKING:
    from holdfast.server.connection import ExecConnection, Wire
    from holdfast.server.edges.lineedge import LineEdge
    from holdfast.server.executor import Executor
    from holdfast.server.processes.commands import CommandCeiling, CommandListener, OpenCommands

log = logging.getLogger(__name__)

IDLE_LOOKS: Final = 15  # checks for sessions until a server counts as idle
LATER_S: Final = 1.0  # for a first client without requests; a request would load everything at once


class Server:
    """An executor with one listener.

    If it gets none, it creates one after the first client, or shortly after the start.
    """

    def __init__(self, options: ServeOptions, executor: "Executor | None" = None) -> None:
        self._options = options
        self._made = executor
        self._metrics: PrometheusMetrics | None = None
        if options.metrics or options.metrics_file is not None:
            self._metrics = PrometheusMetrics(self._executor)
        self._tasks = TaskSet()
        self._done = asyncio.Event()
        self._retired = False

    @property
    def _executor(self) -> "Executor":
        if self._made is None:
            from holdfast.sandbox.plan.select import ANY
            from holdfast.server.executor import Clocks, Executor

            clocks = Clocks.keeping(self._options.keep_s)
            self._made = Executor(
                clocks=clocks,
                choice=self._options.choice or ANY,
                private_via_upstream=self._options.private_via_upstream,
            )
        self._made.open_commands = self._made.open_commands or _opener(self._made)
        return self._made

    def _load(self) -> None:
        """Load all that the first requests need; the launcher is started while this process is small."""
        if not self._done.is_set():
            self._executor.open()
            import holdfast.server.router  # noqa: F401
        gc.enable()  # `serve` begins with it disabled, since loaded modules hold no garbage

    def stop(self) -> None:
        """Stop accepting and end; `serve` returns after the cleanup."""
        self._done.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Serve until `stop`, or on stdio until the peer is gone. `announce` gets the bound address.

        Raises:
            StartupError: the address cannot be listened on.
        """
        check_exposure(self._options)
        match self._options.address:
            case WebSocketAddress() as address:
                with bind_tcp(address) as sock:
                    await self.serve_bound(sock, None, lambda: announce(address.url(sock.getsockname()[1])))
            case UnixAddress(path):
                await self._serve(lambda: self._serve_unix(path, announce))
            case Stdio():
                await self._serve(self._serve_stdio)
            case (RemoteAddress() | DirectAddress()) as remote:
                await self._serve(lambda: self._serve_remote(remote, announce))

    async def serve_bound(
        self, sock: socket.socket, first: FirstConnection | None, announce: Callable[[], None]
    ) -> None:
        """Serve on a TCP socket that listens already, for `first` and later clients."""
        await self._serve(lambda: self._serve_websocket(sock, first, announce))

    async def _serve(self, listener: Callable[[], Coroutine[None, None, None]]) -> None:
        if self._metrics is not None and self._options.metrics_file is not None:
            self._tasks.start(keep_writing(self._metrics, self._options.metrics_file))
        try:
            await listener()
        finally:
            await self._tasks.aclose()
            if self._made is not None:
                await self._made.aclose()

    async def _serve_websocket(
        self, sock: socket.socket, first: FirstConnection | None, announce: Callable[[], None]
    ) -> None:
        from holdfast.server.edges.websocket import HANDSHAKE_S, MAX_WAITING, WebSocketEdge

        lobby = Lobby(MAX_WAITING, HANDSHAKE_S)

        def make(first: FirstConnection | None = None) -> WebSocketEdge:
            return WebSocketEdge(
                connect=lambda edge, peer: self._connect(
                    edge, f"failed to parse websocket JSON-RPC message from exec-server websocket {peer}"
                ),
                admit=self._admit,
                lobby=lobby,
                authenticate=self._authenticate,
                metrics=self._metrics.render if self._metrics is not None and self._options.metrics else None,
                adopt=self._tasks.keep,
                first=first,
            )

        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, sock=sock, backlog=BACKLOG)
        if first is None:
            self._open_soon()
        else:
            self._open_soon(LATER_S)
            await loop.connect_accepted_socket(lambda: make(first), first.sock)
        announce()
        await self._until_done(server)

    async def _serve_unix(self, path: str, announce: Callable[[str], None]) -> None:
        from holdfast.server.edges.lineedge import LineEdge

        sock = bind_unix(path)
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: LineEdge(
                    connect=lambda edge: self._connect(
                        edge, "failed to parse JSON-RPC message from exec-server unix socket"
                    ),
                    admit=_admit_unix_peer,
                    adopt=self._tasks.keep,
                    finish_at_eof=False,
                    token=self._options.token,
                ),
                sock=sock,
                backlog=BACKLOG,
            )
            self._open_soon()
            announce(f"unix://{path}")
            retiring = asyncio.ensure_future(self._retire(path))
            try:
                await self._until_done(server)
            finally:
                retiring.cancel()
        finally:
            if not self._retired:  # otherwise another server may listen there
                with contextlib.suppress(OSError):
                    os.unlink(path)

    async def _retire(self, path: str) -> None:
        """Unlink the socket after a time without sessions; clients that came just before are still served."""
        if self._options.idle_s is not None:
            await self._wait_unused(self._options.idle_s)
            self._retired = True
            with contextlib.suppress(OSError):
                os.unlink(path)
            await self._wait_unused(self._options.idle_s / IDLE_LOOKS)
            self.stop()

    async def _wait_unused(self, for_s: float) -> None:
        now = asyncio.get_running_loop().time
        since = now()
        while now() - since < for_s:
            await asyncio.sleep(for_s / IDLE_LOOKS)
            since = now() if self._is_used() else since

    def _is_used(self) -> bool:
        return bool(self._tasks) or (self._made is not None and len(self._made.sessions) > 0)

    def _open_soon(self, delay_s: float = WITHIN_S) -> None:
        """Load the executor at once if the caller made it; otherwise later, after a first client's answer."""
        if self._made is not None:
            self._made.open()
        else:
            asyncio.get_running_loop().call_later(delay_s, self._load)

    async def _until_done(self, server: asyncio.Server) -> None:
        await self._done.wait()
        server.close()

    async def _serve_stdio(self) -> None:
        from holdfast.server.edges.lineedge import LineEdge
        from holdfast.server.edges.plainfiles import FileOutput, can_wait, piped

        loop = asyncio.get_running_loop()
        self._open_soon()
        edge = LineEdge(
            connect=lambda edge: self._connect(
                edge, "failed to parse JSON-RPC message from exec-server stdio", resumable=False
            ),
            admit=lambda _: None,
            adopt=self._tasks.keep,
            finish_at_eof=True,
        )
        stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
        output: asyncio.WriteTransport = FileOutput(stdout.fileno())
        if can_wait(stdout.fileno()):
            output, _ = await loop.connect_write_pipe(lambda: _Flow(edge), stdout)
        edge.write_to(output)
        waited_for = stdin if can_wait(stdin.fileno()) else os.fdopen(piped(stdin.fileno()), "rb")
        await loop.connect_read_pipe(lambda: edge, waited_for)
        done = asyncio.ensure_future(self._done.wait())
        await asyncio.wait([done, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()

    async def _serve_remote(
        self, address: RemoteAddress | DirectAddress, announce: Callable[[str], None]
    ) -> None:
        from holdfast.server.edges.remoteedge import serve_remote
        from holdfast.server.remote.executing import ExecStream

        self._open_soon()
        await serve_remote(
            address,
            lambda port: ExecStream(
                port, lambda wire: self._connect(wire, None, near=False), self._tasks.keep
            ),
            self._done,
            lambda: announce(address.environment_id),
            self._metrics,
        )

    def _connect(
        self, wire: "Wire", label: str | None, *, resumable: bool = True, near: bool = True
    ) -> "ExecConnection":
        from holdfast.server.connection import ExecConnection

        return ExecConnection(
            self._executor,
            wire,
            label=label,
            slots=self._options.slots,
            resumable=resumable,
            near=near,
            metrics=self._metrics,
        )

    def _admit(self, transport: asyncio.BaseTransport) -> None:
        """Raises PeerRefused for another user if no token is required."""
        if self._options.authenticator is None:
            with _told():
                peers.check_owner(*_ends(transport))

    def _authenticate(self, authorization: str | None, transport: asyncio.BaseTransport) -> None:
        with _told() if self._options.authenticator is None else contextlib.nullcontext():
            peers.check_caller(self._options.authenticator, authorization, *_ends(transport))


def _opener(executor: "Executor") -> "OpenCommands":
    """How this server listens for the commands of one of its processes; loaded for the first of them."""

    async def open_commands(ceiling: "CommandCeiling", path: str, token: str) -> "CommandListener":
        from holdfast.server.edges.commandedge import listen

        return await listen(executor, ceiling, path, token)

    return open_commands


def _ends(transport: asyncio.BaseTransport) -> tuple[Any, Any]:
    return transport.get_extra_info("sockname"), transport.get_extra_info("peername")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Log a refusal that is based on the kernel's information: it cannot be a mistyped token."""
    try:
        yield
    except PeerRefused as exc:
        log.warning("connection refused", extra={"reason": str(exc)})
        raise


class _Flow(asyncio.BaseProtocol):
    """Passes flow control of the writing pipe on to the edge."""

    def __init__(self, edge: "LineEdge") -> None:
        self._edge = edge

    def pause_writing(self) -> None:
        self._edge.pause_writing()

    def resume_writing(self) -> None:
        self._edge.resume_writing()


def _admit_unix_peer(transport: asyncio.BaseTransport) -> None:
    peers.check_unix_peer(transport.get_extra_info("socket"))


async def serve(
    options: ServeOptions,
    announce: Callable[[str], None],
    bound: tuple[socket.socket, FirstConnection | None] | None = None,
) -> None:
    """Run `holdfast serve` until SIGTERM or SIGINT, which end it cleanly, also if they came before this call.

    Raises:
        StartupError: it never began to serve.
    """
    server = Server(options)
    loop = asyncio.get_running_loop()
    for signum in ENDING:
        loop.add_signal_handler(signum, server.stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if bound is None:
        await server.serve(announce)
    else:
        await server.serve_bound(*bound, lambda: None)
