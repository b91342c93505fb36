"""The common options of `holdfast serve`, as a table that needs no library, and their implementation.

`serve.py` turns the table into click options, and adds those that take more than a word. A command line that
the table's parser understands does not load click, because the process that started us waits for the address.
"""

import functools
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from holdfast.commands.options import BACKEND, DEGRADED, ExecOption, choice_of
from holdfast.errors import StartupError, UsageError

if TYPE_CHECKING:
    import socket

    from holdfast.commands.daemons.remoteserving import AwsWish
    from holdfast.server.edges.address import Address
    from holdfast.server.edges.auth import Authenticator
    from holdfast.server.edges.binding import ServeOptions
    from holdfast.server.edges.early import FirstConnection

T = TypeVar("T")
SKEW_S: Final = 30  # same as `auth.DEFAULT_SKEW_S`

SERVE: Final = (
    ExecOption(
        "--listen",
        "ws://IP:PORT (port 0 picks a free one), unix:///path, or stdio.",
        metavar="URL",
        default="ws://127.0.0.1:0",
        variable="HOLDFAST_LISTEN",
    ),
    ExecOption(
        "--ws-auth",
        "Require a bearer token on ws:// connections.",
        choices=("capability-token", "signed-bearer-token"),
    ),
    ExecOption("--ws-token-file", "File that holds the capability token.", metavar="PATH"),
    ExecOption("--ws-token-sha256", "SHA-256 of the capability token, instead of the file.", metavar="HEX"),
    ExecOption("--ws-shared-secret-file", "File with the key of signed tokens (HS256).", metavar="PATH"),
    ExecOption("--ws-issuer", "Issuer that signed tokens must name."),
    ExecOption("--ws-audience", "Audience that signed tokens must name."),
    BACKEND,
    DEGRADED,
    ExecOption("--metrics", "Serve Prometheus metrics on /metrics of a ws:// listener.", "flag"),
    ExecOption(
        "--metrics-file",
        "Write them to this file every 15 s, for who reads files; also with --remote.",
        metavar="PATH",
    ),
    ExecOption(
        "--log-format", "Write the log as text or as JSON lines.", choices=("text", "json"), default="text"
    ),
    ExecOption(
        "--log-level",
        "Log only what is at least this severe.",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        variable="HOLDFAST_LOG_LEVEL",
    ),
    ExecOption(
        "--keep",
        "Keep sessions that nobody holds, and what ended in them, for so long (90s, 30m, 12h, 7d) instead "
        "of 30 s. Whoever may connect and knows a session's id may resume it.",
        "span",
        metavar="DURATION",
        field="keep_s",
    ),
    ExecOption("--idle", "End a unix listener after so long.", "span", field="idle_s", hidden=True),
    ExecOption("--home", "Whose token is demanded.", metavar="PATH", hidden=True),
)


def run(
    *,
    listen: str,
    ws_auth: str | None,
    ws_token_file: str | None,
    ws_token_sha256: str | None,
    ws_shared_secret_file: str | None,
    ws_issuer: str | None,
    ws_audience: str | None,
    backend: str,
    degraded: bool,
    metrics: bool,
    metrics_file: str | None,
    log_format: Literal["text", "json"],
    log_level: str,
    slots: int = 1,
    skew_s: int = SKEW_S,
    hint: bool | None = None,
    keep_s: float | None = None,
    idle_s: float | None = None,
    private_via_upstream: bool = False,
    home: str | None = None,
    remote: str | None = None,
    environment_id: str | None = None,
    remote_token_file: str | None = None,
    credential_stdin: bool = False,
    agent_identity: bool = False,
    exit_on_stdin_close: bool = False,
    direct: "AwsWish | None" = None,
) -> None:
    """Serve until a signal ends it.

    Raises:
        StartupError: it could not begin to serve.
    """
    if sys.platform != "linux":
        from holdfast.local.linux import require_linux

        require_linux(
            "holdfast serve", "the same on a Linux machine, and here: holdfast exec --env URL -- COMMAND"
        )
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from holdfast.server.edges.plainfiles import fill_closed

        fill_closed()
    from holdfast.local.peers import check_caller
    from holdfast.server.edges.address import WebSocketAddress, parse
    from holdfast.server.edges.binding import ENDING, ServeOptions, bind_tcp, check_exposure

    asked = (ws_auth, ws_token_file, ws_token_sha256, ws_shared_secret_file, ws_issuer, ws_audience)
    authenticator: Authenticator | None = None
    if any(one is not None for one in asked) or skew_s != SKEW_S:
        from holdfast.server.edges import auth

        authenticator = auth.load(
            ws_auth,
            token_file_text=read_file("--ws-token-file", ws_token_file, bytes.decode),
            token_sha256=ws_token_sha256,
            secret_bytes=read_file("--ws-shared-secret-file", ws_shared_secret_file, bytes),
            issuer=ws_issuer,
            audience=ws_audience,
            skew_s=skew_s,
        )
    choice = None if (backend, degraded) == ("auto", False) else choice_of(backend, degraded=degraded)
    token = None
    place = None
    if home is not None:
        import pathlib

        from holdfast.local.homekey import access_token

        place = pathlib.Path(home)
        token = functools.partial(access_token, place)
    address: Address
    announce: Callable[[str], None]
    if remote is None:
        _refuse_remote_options(
            environment_id, remote_token_file, credential_stdin, agent_identity, exit_on_stdin_close, direct
        )
        address, announce = parse(listen), functools.partial(_announce, hint=hint)
    elif direct is not None:
        from holdfast.commands.daemons.remoteserving import find_direct

        address = find_direct(
            remote,
            environment_id,
            direct,
            other_credentials=remote_token_file is not None or credential_stdin or agent_identity,
            exit_on_stdin_close=exit_on_stdin_close,
        )
        announce = functools.partial(_announce_remote, hint=hint)
    else:
        from holdfast.commands.daemons.remoteserving import find_address

        address = find_address(
            remote,
            environment_id,
            read_file("--remote-token-file", remote_token_file, bytes.decode),
            credential_stdin=credential_stdin,
            agent_identity=agent_identity,
            exit_on_stdin_close=exit_on_stdin_close,
            home=place,
        )
        announce = functools.partial(_announce_remote, hint=hint)
    options = ServeOptions(
        address,
        slots,
        authenticator,
        metrics,
        choice,
        keep_s,
        token,
        idle_s,
        private_via_upstream,
        metrics_file,
    )
    if isinstance(options.address, WebSocketAddress) and not (metrics or metrics_file):
        from holdfast.server.edges.early import receive_first

        check_exposure(options)
        with bind_tcp(options.address) as sock:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # they stay pending until a handler exists
            announce(options.address.url(sock.getsockname()[1]))
            first = receive_first(sock, functools.partial(check_caller, authenticator))
            set_up_logs(log_format, log_level)
            _run(options, announce, (sock, first))
    else:
        set_up_logs(log_format, log_level)
        _run(options, announce)


def _announce(address: str, *, hint: bool | None) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    if sys.stderr.isatty() if hint is None else hint:
        sys.stderr.write(f"try: CODEX_EXEC_SERVER_URL={address} codex\n")
        sys.stderr.flush()


def _announce_remote(environment_id: str, *, hint: bool | None) -> None:
    """Print nothing on standard output, as the reference does."""
    if sys.stderr.isatty() if hint is None else hint:
        sys.stderr.write(f"registered as {environment_id}\n")
        sys.stderr.flush()


def _refuse_remote_options(*given: object) -> None:
    if any(given):
        raise UsageError("this option is about a registry", remedy="give --remote URL")


def read_file(flag: str, path: str | None, convert: Callable[[bytes], T]) -> T | None:
    """Read a file named by a flag; an error names the flag and the file, never the content."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return convert(file.read())
    except OSError as exc:
        raise StartupError(
            f"cannot read {path}: {exc.strerror}", remedy=f"give {flag} a file you may read"
        ) from None
    except UnicodeDecodeError:
        raise StartupError(f"{path} is not text", remedy=f"give {flag} a text file") from None


def set_up_logs(style: Literal["text", "json"], level: str) -> None:
    from holdfast import log, tracing

    log.set_up(style=style, level=level)
    tracing.set_up()


def _run(
    options: "ServeOptions",
    announce: Callable[[str], None],
    bound: "tuple[socket.socket, FirstConnection | None] | None" = None,
) -> None:
    """Run on uvloop when it is installed, otherwise on asyncio's own loop."""
    import asyncio

    from holdfast.server.edges.listen import serve

    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(options, announce, bound))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options, announce, bound))
