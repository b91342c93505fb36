"""The dashboard's listener: on loopback, on its own port, with a new token for each start."""

import asyncio
import contextlib
import errno
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.agents.supervisor import daemons
from holdfast.board.asyncstore import AsyncStore
from holdfast.errors import StartupError
from holdfast.local.listeners import mark_listener
from holdfast.local.peers import Lobby
from holdfast.web import cookies, entrance, queries
from holdfast.web.app import Dashboard, application, pages
from holdfast.web.cookies import Door
from holdfast.web.feed import SLOW_S, Feed

MAX_CONNECTIONS: Final = 200  # at once: a page has one stream and a few requests
TICK_S: Final = 1.0
END_S: Final = 2  # for answers under way at shutdown
MAX_STRANGERS: Final = 20  # connections of other users, who need a token anyway: forwarded ports, proxies
HEAD_S: Final = 10.0  # for the first request head
MAX_WAITING: Final = 64  # connections without a request head yet
UNSENT: Final = 128 * 1024  # bytes the kernel buffers for a page that does not read


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    """What is shown, to which user, and where."""

    address: str  # of the store
    home: Path
    who: str
    boards: tuple[str, ...] = ()  # all of them when empty
    profiles: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    slow_s: float = SLOW_S
    first: str | None = None  # the board that a page opens by default
    fallback: bool = False  # use a free port if this one is taken


async def serve(
    options: DashboardOptions, announce: Callable[[str], None], note: Callable[[str], None] = lambda _: None
) -> None:
    """Serve until cancelled.

    `announce` gets the address to open, with its token; `note` a message on a taken port.

    Raises:
        StartupError: the address is not loopback, or it is taken.
        NotFound: there is no such store, or no such board.
    """
    files = await asyncio.to_thread(pages)
    with _listen(options, note) as listener:
        async with AsyncStore.open(options.address) as store:
            for board in options.boards:
                await store.ask(queries.board, board)  # raises NotFound if the board is missing

            async def answering(scope: Scope, receive: Receive, send: Send) -> None:
                await app(scope, receive, send)

            server = _Server(answering)
            feed = Feed(store, slow_s=options.slow_s)
            token = secrets.token_urlsafe(32)
            base = _base(listener)
            here = Dashboard(
                *(store, feed, options.home, options.who, server.cut, options.boards, options.profiles),
                first=options.first,
                files=files,
                door=Door(options.home, base),
            )
            app = application(here, token)
            with daemons.registered(options.home, daemons.DASHBOARD, base):
                await _run(server, feed, listener, lambda: announce(f"{base}#token={token}"))


async def _run(server: "_Server", feed: Feed, listener: socket.socket, ready: Callable[[], None]) -> None:
    hearing = asyncio.ensure_future(feed.hear())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        ready()  # the socket listens already: early clients wait a moment
        await asyncio.wait({hearing, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hearing.cancel()
        feed.close()
        server.leave()
        await asyncio.gather(hearing, serving, return_exceptions=True)
        server.cut_all()


class _Server(uvicorn.Server):
    """A server without signal handlers: the process that runs it has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._leaving = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app=app,
                http=_guarded(Lobby(MAX_STRANGERS), Lobby(MAX_WAITING, HEAD_S)),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=END_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Tick once a second instead of ten times; `leave` ends it at once."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._leaving.wait()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    def cut(self, scope: Scope) -> None:
        """Abort the connection of a request, with whatever the client has not accepted."""
        for one in list(self.server_state.connections):
            if getattr(one, "client", None) == scope["client"]:
                one.transport.abort()

    def cut_all(self) -> None:
        for one in list(self.server_state.connections):
            one.transport.abort()


def _guarded(strangers: Lobby, waiting: Lobby) -> type[H11Protocol]:
    """A protocol that refuses no connection, but aborts the oldest ones when there are too many.

    It bounds the connections of other users, and the number and time of those without a request head.
    """

    class Guarded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            waiting.enter(transport)
            if not cookies.is_own(transport.get_extra_info("sockname"), transport.get_extra_info("peername")):
                strangers.enter(transport)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None:
                waiting.leave(self.transport)

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.leave(self.transport)
            strangers.leave(self.transport)
            super().connection_lost(exc)

    return Guarded


@contextlib.contextmanager
def _listen(options: DashboardOptions, note: Callable[[str], None]) -> Iterator[socket.socket]:
    host, port = entrance.check_host(options.host), options.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener, mark_listener(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)
        try:
            try:
                listener.bind((host, port))
                listener.listen(MAX_CONNECTIONS)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE or not options.fallback:
                    raise
                note(f"port {port} is taken, so a free one is used this time")
                listener.bind((host, 0))
                listener.listen(MAX_CONNECTIONS)
        except OSError as exc:
            raise StartupError(f"cannot listen on {host}:{port}: {exc.strerror}") from None
        yield listener


def _base(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"
