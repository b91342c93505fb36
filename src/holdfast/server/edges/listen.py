"""Listeners: bind, decide who may come in, serve until told to stop."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.errors import PeerRefused, StartupError
from holdfast.local import confinement, peers
from holdfast.local.listeners import mark_listener
from holdfast.local.lobby import Lobby
from holdfast.local.tasks import TaskSet
from holdfast.sandbox.plan.select import ANY, Choice
from holdfast.server.edges.address import Address, Stdio, UnixAddress, WebSocketAddress
from holdfast.server.edges.edge import Linger
from holdfast.server.metrics import NO_METRICS, Metrics, PrometheusMetrics

if TYPE_CHECKING:
    from holdfast.server.connection import ExecConnection, Wire
    from holdfast.server.edges.auth import Authenticator
    from holdfast.server.edges.lineedge import LineEdge
    from holdfast.server.executor import Executor

log = logging.getLogger(__name__)

BACKLOG: Final = 512
IDLE_S: Final = 0.02  # without a connection, until the rest of the server is loaded
_ONLY_OWNER: Final = "only the user who runs this server may connect without a token"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve, already checked by the command line."""

    address: Address
    slots: int = 1
    authenticator: "Authenticator | None" = None
    metrics: bool = False
    choice: Choice = ANY
    keep_s: float | None = None  # how long sessions are kept that nobody holds; None: 30 s
    token: Callable[[], str] | None = None  # of the home that a unix listener belongs to


class Server:
    """An executor with one listener. Without one it makes its own, once somebody has come or nobody has."""

    def __init__(self, options: ServeOptions, executor: "Executor | None" = None) -> None:
        self._options = options
        self._made = executor
        self._metrics: Metrics = PrometheusMetrics(self._executor) if options.metrics else NO_METRICS
        self._tasks = TaskSet()
        self._linger = Linger()
        self._done = asyncio.Event()
        self._opened = False

    @property
    def _executor(self) -> "Executor":
        if self._made is None:
            from holdfast.server.executor import Clocks, Executor

            self._made = Executor(clocks=Clocks.keeping(self._options.keep_s), choice=self._options.choice)
        return self._made

    def _load(self) -> None:
        """All that the first request needs; the launcher starts while we are small."""
        self._executor.open()
        import holdfast.server.connection  # noqa: F401

    def stop(self) -> None:
        """Stop accepting and end; `serve` returns once everything is cleaned up."""
        self._done.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Serve until `stop`, or until the peer is gone on stdio. `announce` gets the bound address.

        Raises:
            StartupError: the address can not be listened on.
        """
        check_exposure(self._options)
        try:
            match self._options.address:
                case WebSocketAddress() as address:
                    await self._serve_websocket(address, announce)
                case UnixAddress(path):
                    await self._serve_unix(path, announce)
                case Stdio():
                    await self._serve_stdio()
        finally:
            await self._tasks.aclose()
            if self._made is not None:
                await self._made.aclose()

    async def _serve_websocket(self, address: WebSocketAddress, announce: Callable[[str], None]) -> None:
        with _bind_tcp(address) as sock:
            await self._serve_bound(sock, address, announce)

    async def _serve_bound(
        self, sock: socket.socket, address: WebSocketAddress, announce: Callable[[str], None]
    ) -> None:
        from holdfast.server.edges.websocket import HANDSHAKE_S, MAX_WAITING, WebSocketEdge

        lobby = Lobby(MAX_WAITING, HANDSHAKE_S)
        server = await asyncio.get_running_loop().create_server(
            lambda: WebSocketEdge(
                connect=lambda edge, peer: self._connect(
                    edge, f"failed to parse websocket JSON-RPC message from exec-server websocket {peer}"
                ),
                admit=self._admit,
                lobby=lobby,
                authenticate=self._authenticate,
                metrics=self._metrics.render,
                adopt=self._tasks.keep,
                linger=self._linger.touch,
            ),
            sock=sock,
            backlog=BACKLOG,
        )
        self._open_soon()
        announce(address.url(sock.getsockname()[1]))
        await self._until_done(server)

    async def _serve_unix(self, path: str, announce: Callable[[str], None]) -> None:
        from holdfast.server.edges.lineedge import LineEdge

        sock = _bind_unix(path)
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: LineEdge(
                    connect=lambda edge: self._connect(
                        edge, "failed to parse JSON-RPC message from exec-server unix socket"
                    ),
                    admit=_admit_unix_peer,
                    adopt=self._tasks.keep,
                    linger=self._linger.touch,
                    finish_at_eof=False,
                    token=self._options.token,
                ),
                sock=sock,
                backlog=BACKLOG,
            )
            self._open_soon()
            announce(f"unix://{path}")
            await self._until_done(server)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _open_soon(self) -> None:
        """At once if the caller made the executor; otherwise when nobody has come for a moment."""
        if self._made is not None:
            self._opened = True
            self._made.open()
        else:
            asyncio.get_running_loop().call_later(IDLE_S, self._open)

    def _open(self) -> None:
        if not self._opened and not self._done.is_set():
            self._opened = True
            self._load()

    async def _until_done(self, server: asyncio.Server) -> None:
        await self._done.wait()
        server.close()

    async def _serve_stdio(self) -> None:
        from holdfast.server.edges.lineedge import LineEdge

        loop = asyncio.get_running_loop()
        self._open()
        edge = LineEdge(
            connect=lambda edge: self._connect(
                edge, "failed to parse JSON-RPC message from exec-server stdio", resumable=False
            ),
            admit=lambda _: None,
            adopt=self._tasks.keep,
            linger=self._linger.touch,
            finish_at_eof=True,
        )
        try:
            output, _ = await loop.connect_write_pipe(lambda: _Flow(edge), sys.stdout.buffer)
            edge.write_to(output)
            await loop.connect_read_pipe(lambda: edge, sys.stdin.buffer)
        except ValueError:
            raise StartupError(
                "stdio needs a pipe, socket or terminal on standard input and output",
                remedy="connect a program to it, for example with a pipe",
            ) from None
        done = asyncio.ensure_future(self._done.wait())
        await asyncio.wait([done, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()

    def _connect(self, wire: "Wire", label: str, *, resumable: bool = True) -> "ExecConnection":
        self._open()
        from holdfast.server.connection import ExecConnection

        return ExecConnection(
            self._executor,
            wire,
            label=label,
            slots=self._options.slots,
            resumable=resumable,
            metrics=self._metrics,
        )

    def _admit(self, transport: asyncio.BaseTransport) -> None:
        """Raises PeerRefused for another user where there is no token to show."""
        if self._options.authenticator is None:
            _find_own_peer(transport)

    def _authenticate(self, authorization: str | None, transport: asyncio.BaseTransport) -> None:
        if self._options.authenticator is not None:
            self._options.authenticator.check(authorization, time.time())
            return
        # Without a token the kernel's word on who is calling is the only proof there is.
        found = _find_own_peer(transport)
        try:
            confinement.refuse_confined(confinement.find_excess_of_holders(found.inode, found.uid))
        except PeerRefused as exc:
            log.warning("connection refused", extra={"reason": str(exc)})
            raise


class _Flow(asyncio.BaseProtocol):
    """Passes the writing pipe's flow control on to the edge."""

    def __init__(self, edge: "LineEdge") -> None:
        self._edge = edge

    def pause_writing(self) -> None:
        self._edge.pause_writing()

    def resume_writing(self) -> None:
        self._edge.resume_writing()


def check_exposure(options: ServeOptions) -> None:
    """Refuse to let a network in without a token.

    Raises:
        StartupError: the combination is unsafe or makes no sense.
    """
    address = options.address
    if isinstance(address, Stdio) and options.keep_s is not None:
        raise StartupError(
            "--keep does not apply to stdio, where the session ends with its only connection",
            remedy="listen on unix:///path",
        )
    if not isinstance(address, WebSocketAddress):
        if options.authenticator is not None:
            raise StartupError("--ws-auth only applies to a ws:// listener", remedy="drop --ws-auth")
    elif not address.loopback and options.authenticator is None:
        raise StartupError(
            f"refusing to listen on {address.host} without authentication: "
            "anyone who reaches the port could run commands as you",
            remedy="add --ws-auth capability-token --ws-token-file FILE, or listen on ws://127.0.0.1:PORT",
        )


@contextlib.contextmanager
def _bind_tcp(address: WebSocketAddress) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.closing(sock), mark_listener(sock):
        _listen_tcp(sock, address)
        yield sock


def _listen_tcp(sock: socket.socket, address: WebSocketAddress) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError as exc:
        remedy = {
            errno.EADDRINUSE: "choose another port, or port 0 for any free one",
            errno.EACCES: "choose a port above 1023",
            errno.EADDRNOTAVAIL: "choose an address of this machine",
        }.get(exc.errno or 0)
        raise StartupError(
            f"cannot listen on {address.url(address.port)}: {exc.strerror}", remedy=remedy
        ) from None


def _bind_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        mask = os.umask(0o177)  # 0600 from the first moment: there is no time in which others could connect
        try:
            sock.bind(path)
        finally:
            os.umask(mask)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        remedy = {
            errno.ENOENT: f"create the directory {os.path.dirname(path)}",
            errno.EADDRINUSE: "stop the server that listens there, or choose another path",
            errno.EACCES: "choose a directory you may write to",
            errno.EROFS: "choose a directory that is not read-only",
        }.get(exc.errno or 0)
        raise StartupError(f"cannot listen on unix://{path}: {exc.strerror or exc}", remedy=remedy) from None
    return sock


def _remove_stale(path: str) -> None:
    """Remove a socket nobody listens on; anything else in the way stays, and bind reports it."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _find_own_peer(transport: asyncio.BaseTransport) -> peers.PeerSocket:
    """Raises PeerRefused unless our own user is at the other end of this connection on loopback."""
    peer = transport.get_extra_info("peername")  # None if the connection was reset meanwhile
    found = None if peer is None else peers.socket_of_peer(transport.get_extra_info("sockname"), peer)
    if found is None or not peers.is_allowed(found.uid, own=os.getuid()):
        log.warning("connection refused: another user", extra={"reason": _ONLY_OWNER})
        raise PeerRefused(_ONLY_OWNER)
    return found


def _admit_unix_peer(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if not peers.is_allowed(peers.uid_of_unix_peer(sock), own=os.getuid()):
        raise PeerRefused(_ONLY_OWNER)
    confinement.refuse_confined(confinement.find_excess_of_unix_peer(sock))


async def serve(options: ServeOptions, announce: Callable[[str], None]) -> None:
    """The whole life of `holdfast serve`: SIGTERM and SIGINT end it cleanly.

    Raises:
        StartupError: it never began to serve.
    """
    server = Server(options)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, server.stop)
    await server.serve(announce)
