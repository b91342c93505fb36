"""The addresses to listen on and their sockets.

Loads no event loop: the process that started us waits for them.
"""

import contextlib
import errno
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.errors import StartupError
from holdfast.local.listeners import mark_listener
from holdfast.server.edges.address import Address, DirectAddress, RemoteAddress, Stdio, WebSocketAddress

if TYPE_CHECKING:
    from holdfast.sandbox.plan.select import Choice
    from holdfast.server.edges.auth import Authenticator

BACKLOG: Final = 512
ENDING: Final = (signal.SIGTERM, signal.SIGINT)  # each ends a server cleanly


class ServeOptions(NamedTuple):
    """How to serve, already checked by the command line."""

    address: Address
    slots: int = 1
    authenticator: "Authenticator | None" = None
    metrics: bool = False
    choice: "Choice | None" = None  # None: any backend that enforces everything
    keep_s: float | None = None  # how long detached sessions are kept; None: 30 s
    token: Callable[[], str] | None = None  # of the home that a unix listener belongs to
    idle_s: float | None = None  # time without any session after which a unix listener ends; None: never
    private_via_upstream: bool = False  # commands' proxies use the host's proxy to private addresses too
    metrics_file: str | None = None  # rewritten periodically


def check_exposure(options: ServeOptions) -> None:
    """Refuse to listen on a network without a token.

    Raises:
        StartupError: the combination is unsafe or contradictory.
    """
    address = options.address
    if isinstance(address, Stdio) and options.keep_s is not None:
        raise StartupError(
            "--keep does not apply to stdio, where the session ends with its only connection",
            remedy="listen on unix:///path",
        )
    if isinstance(address, RemoteAddress | DirectAddress) and options.metrics:
        raise StartupError(
            "--metrics needs a ws:// listener, and --remote has none",
            remedy="have them written to a file: --metrics-file FILE",
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
def bind_tcp(address: WebSocketAddress) -> Iterator[socket.socket]:
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


def bind_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # 0600 from the start, so that others can never connect. Linux gives the file the mode of the socket;
        # the umask is shared by the whole process, in which other threads create files at the same time.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(path)
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
    """Remove a socket without a listener; anything else in the way stays, and bind reports it."""
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
