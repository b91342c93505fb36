"""The command line: parse, call, print. No logic of its own."""

import asyncio
import functools
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from holdfast import __version__
from holdfast.commands.board import board
from holdfast.commands.config import config
from holdfast.commands.cp import cp
from holdfast.commands.dispatch import dispatch
from holdfast.commands.doctor import doctor
from holdfast.commands.duration import duration
from holdfast.commands.handoff import handoff
from holdfast.commands.limits import Limits, backend_option, choice_of, degraded_option, limited
from holdfast.commands.mcp import mcp
from holdfast.commands.oneline import OneLine, fail
from holdfast.commands.task import task
from holdfast.commands.worker import worker
from holdfast.errors import HoldfastError, StartupError
from holdfast.server.address import DEFAULT

T = TypeVar("T")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Run coding agents and their commands, here or elsewhere, and lose nothing they did."""


cli.add_command(config)
cli.add_command(doctor)
cli.add_command(cp)
cli.add_command(worker)
cli.add_command(board)
cli.add_command(task)
cli.add_command(dispatch)
cli.add_command(handoff)
cli.add_command(mcp)


@cli.command()
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
    default=30,
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
    """
    from holdfast import log, tracing
    from holdfast.server import auth
    from holdfast.server.address import parse
    from holdfast.server.listen import Options
    from holdfast.server.listen import serve as run

    log.set_up(style=log_format, level=log_level)
    tracing.set_up()
    try:
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


@cli.command("exec", cls=OneLine, context_settings={"allow_interspersed_args": False})
@limited
@click.option(
    "--env",
    "where",
    metavar="NAME|URL",
    help="Run on another machine: an environment of environments.toml, or the address of a server. "
    "Directories and paths are those of that machine.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Watch its calls: a denial is then named exactly, and --json has all of them.",
)
@click.option("--print-plan", is_flag=True, help="Print what would be done and by whom; run nothing.")
@click.option(
    "--explain",
    metavar="PATH",
    multiple=True,
    help="Print which rule decides about this path; run nothing. Can be repeated.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print how it ended as one JSON object, last on standard error; plans and explanations on "
    "standard output.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec_(
    limits: Limits,
    where: str | None,
    watch: bool,
    print_plan: bool,
    explain: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run one command, confined to this directory.

    Its exit code is the command's own; 125 if the sandbox could not be set up, 126 if the command
    is not executable, 127 if it is not found. What the sandbox denied is said at the end, with
    the option that allows it.
    """
    from holdfast import outcome, run

    told: outcome.Ending | outcome.Planned | outcome.Explained
    try:
        wish = replace(limits.wish(), watch=watch)
        if where is not None:
            from holdfast import remoterun

            remoterun.refuse_local_options(
                limits.local() | {"--watch": watch, "--print-plan": print_plan, "--explain": bool(explain)}
            )
            told = remoterun.execute(where, wish, command)
        elif print_plan:
            told = run.plan(wish)
        elif explain:
            told = run.explain(wish, explain)
        else:
            told = run.execute(wish, command)
    except HoldfastError as exc:
        told = outcome.failed(exc)
    for line in [json.dumps(told.report())] if as_json else told.lines():
        click.echo(line, err=isinstance(told, outcome.Ending))
    sys.exit(told.code)


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
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)


def main() -> None:
    """Entry point."""
    cli()
