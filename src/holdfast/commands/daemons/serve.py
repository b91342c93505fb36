"""`holdfast serve`: parse, call, print."""

import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from holdfast.commands.clickoptions import duration
from holdfast.commands.exec import backend_option, degraded_option
from holdfast.commands.options import choice_of
from holdfast.commands.output import fail
from holdfast.errors import HoldfastError, StartupError
from holdfast.server.edges.address import DEFAULT

T = TypeVar("T")
_SKEW_S = 30  # as `auth.DEFAULT_SKEW_S`


@click.command()
@click.option(
    "--listen",
    metavar="URL",
    default=DEFAULT,
    show_default=True,
    envvar="HOLDFAST_LISTEN",
    help="ws://IP:PORT (port 0 picks a free one), unix:///path, or stdio.",
)
@click.option(
    "--concurrent-requests",
    "slots",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Requests handled at once on each connection; 1 is strictly in order.",
)
@click.option(
    "--ws-auth",
    type=click.Choice(["capability-token", "signed-bearer-token"]),
    help="Require a bearer token on ws:// connections.",
)
@click.option(
    "--ws-token-file", type=click.Path(path_type=Path), help="File that holds the capability token."
)
@click.option(
    "--ws-token-sha256", metavar="HEX", help="SHA-256 of the capability token, instead of the file."
)
@click.option(
    "--ws-shared-secret-file",
    type=click.Path(path_type=Path),
    help="File with the key of signed tokens (HS256).",
)
@click.option("--ws-issuer", help="Issuer that signed tokens must name.")
@click.option("--ws-audience", help="Audience that signed tokens must name.")
@click.option(
    "--ws-max-clock-skew-seconds",
    "skew_s",
    type=click.IntRange(min=0),
    default=_SKEW_S,
    show_default=True,
    help="Tolerance for the times in signed tokens.",
)
@click.option(
    "--hint/--no-hint", default=None, help="Say on standard error what to type next [default: on a terminal]."
)
@click.option(
    "--keep",
    "keep_s",
    metavar="DURATION",
    type=duration,
    help="Keep sessions that nobody holds, and what ended in them, for so long (90s, 30m, 12h, 7d) instead "
    "of 30 s. Whoever may connect and knows a session's id may resume it.",
)
@backend_option
@degraded_option
@click.option("--metrics", is_flag=True, help="Serve Prometheus metrics on /metrics of a ws:// listener.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    envvar="HOLDFAST_LOG_LEVEL",
)
def serve(
    listen: str,
    slots: int,
    ws_auth: str | None,
    ws_token_file: Path | None,
    ws_token_sha256: str | None,
    ws_shared_secret_file: Path | None,
    ws_issuer: str | None,
    ws_audience: str | None,
    skew_s: int,
    hint: bool | None,
    keep_s: float | None,
    backend: str,
    degraded: bool,
    metrics: bool,
    log_format: Literal["text", "json"],
    log_level: str,
) -> None:
    """Serve commands, files and HTTP to a client such as codex.

    Prints the address it listens on as one line on standard output. Point codex at it with
    CODEX_EXEC_SERVER_URL.

    \b
    Examples:
      holdfast serve --listen ws://127.0.0.1:7000
      CODEX_EXEC_SERVER_URL=ws://127.0.0.1:7000 codex
    """
    from holdfast import log, tracing
    from holdfast.server.edges.address import parse
    from holdfast.server.edges.listen import Options
    from holdfast.server.edges.listen import serve as run

    log.set_up(style=log_format, level=log_level)
    tracing.set_up()
    try:
        asked = (ws_auth, ws_token_file, ws_token_sha256, ws_shared_secret_file, ws_issuer, ws_audience)
        authenticator = None
        if any(one is not None for one in asked) or skew_s != _SKEW_S:
            from holdfast.server.edges import auth  # nobody else waits for it

            authenticator = auth.load(
                ws_auth,
                token_file_text=_read("--ws-token-file", ws_token_file, bytes.decode),
                token_sha256=ws_token_sha256,
                secret_bytes=_read("--ws-shared-secret-file", ws_shared_secret_file, bytes),
                issuer=ws_issuer,
                audience=ws_audience,
                skew_s=skew_s,
            )
        choice = choice_of(backend, degraded=degraded)
        options = Options(parse(listen), slots, authenticator, metrics, choice, keep_s)
        _run(run(options, announce=functools.partial(_announce, hint=hint)))
    except HoldfastError as exc:
        fail(exc)


def _announce(address: str, *, hint: bool | None) -> None:
    click.echo(address)
    if sys.stderr.isatty() if hint is None else hint:
        click.echo(f"try: CODEX_EXEC_SERVER_URL={address} codex", err=True)


def _read(flag: str, path: Path | None, convert: Callable[[bytes], T]) -> T | None:
    """The content of a file named by a flag; an error names the flag and the file, never the content."""
    if path is None:
        return None
    try:
        return convert(path.read_bytes())
    except OSError as exc:
        raise StartupError(
            f"cannot read {path}: {exc.strerror}", remedy=f"give {flag} a file you may read"
        ) from None
    except UnicodeDecodeError:
        raise StartupError(f"{path} is not text", remedy=f"give {flag} a text file") from None


def _run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop when it is installed, otherwise on asyncio's own loop."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
