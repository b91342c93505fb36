"""`holdfast cp`: parse, copy, print."""

import asyncio
import json
import shutil
import signal
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.output import OneLine, fail, printable
from holdfast.errors import HoldfastError, face

if TYPE_CHECKING:
    from holdfast.client.copying.copying import CopyJob, Progress, Summary

SCHEMA_VERSION: Final = 1
REDRAW_S: Final = 0.1  # faster than a person can read
_CLEAR: Final = "\r\x1b[K"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command("cp", cls=OneLine)
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with all that is in them.")
@click.option("--env", "where", metavar="NAME|URL", help="The other machine; its side is :PATH then.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print what was copied as one JSON object, on standard output."
)
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
def cp(recursive: bool, where: str | None, as_json: bool, source: str, destination: str) -> None:
    """Copy files between this machine and another.

    Either the source or the destination is ENV:PATH, where ENV is an environment of environments.toml. A
    relative PATH is relative to the working directory of its server. A file appears at its destination only
    when it is complete. Links in a tree are skipped and listed. Of a file's mode, only whether it is
    executable and whether it is private is kept.

    \b
    Examples:
      holdfast cp -r dist buildbox:/srv/app
      holdfast cp buildbox:/var/log/build.log .
    """
    from holdfast.client.copying.copying import parse_job

    try:
        summary = _copy(parse_job(source, destination, where), recursive=recursive)
    except HoldfastError as exc:
        if not as_json:
            fail(exc)
        click.echo(json.dumps(_failure(exc)))
        sys.exit(face(exc).exit)
    code = face(summary.error).exit if summary.error else 0
    if as_json:
        click.echo(json.dumps(_report(summary, code)))
    else:
        _print_summary(summary)
    sys.exit(code)


def _copy(job: "CopyJob", *, recursive: bool) -> "Summary":
    meter = _Bar() if sys.stderr.isatty() else None
    try:
        return asyncio.run(_run(job, recursive=recursive, progress=None if meter is None else meter.show))
    except (KeyboardInterrupt, asyncio.CancelledError) as exc:
        sys.exit(128 + (signal.SIGINT if isinstance(exc, KeyboardInterrupt) else signal.SIGTERM))
    finally:
        if meter is not None:
            meter.clear()


async def _run(job: "CopyJob", *, recursive: bool, progress: "Progress | None") -> "Summary":
    from holdfast.client.copying.transfers import download, upload
    from holdfast.client.environments import reach

    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    copy = upload if job.upload else download
    async with reach(job.where) as environment:
        return await copy(environment, job.source, job.destination, recursive=recursive, progress=progress)


class Meter:
    """Formats a progress line from progress and time; limits how often it is redrawn."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._shown: float | None = None

    def line(self, done: int, total: int, now: float, *, width: int) -> str | None:
        """The line, of less than `width` columns; None if it is too early to redraw."""
        if self._shown is not None and now - self._shown < REDRAW_S:
            return None
        self._shown = now
        share = done / total if total else 0.0
        seconds = now - self._began
        rate = done / seconds if seconds > 0 else 0.0
        left = _clock((total - done) / rate) if rate else "-:--"
        text = f"{share:4.0%}  {amount(done)} of {amount(total)}  {amount(rate)}/s  {left} left"
        room = width - len(text) - 5
        if room >= 10:
            filled = int(share * room)
            text = f"[{'#' * filled}{'-' * (room - filled)}]  {text}"
        return text[: max(0, width - 1)]


def amount(size: float) -> str:
    """Format a number of bytes for people."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(min(seconds, 359_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Bar:
    def __init__(self) -> None:
        self._meter = Meter(time.monotonic())

    def show(self, done: int, total: int) -> None:
        width = shutil.get_terminal_size().columns
        line = self._meter.line(done, total, time.monotonic(), width=width)
        if line is not None:
            click.echo(_CLEAR + line, nl=False, err=True)

    def clear(self) -> None:
        click.echo(_CLEAR, nl=False, err=True)


def _print_summary(summary: "Summary") -> None:
    for warning in summary.warnings:
        click.echo(f"holdfast: {printable(warning)}", err=True)
    for note in summary.skipped:
        click.echo(f"holdfast: left out {printable(note.path)}: {note.reason}", err=True)
    for note in summary.failed:
        click.echo(f"holdfast: {printable(note.reason)}", err=True)
    if sys.stderr.isatty():
        files = "1 file" if summary.files == 1 else f"{summary.files} files"
        click.echo(f"{files}, {amount(summary.bytes)}", err=True)


def _report(summary: "Summary", code: int) -> dict[str, object]:
    return {"schemaVersion": SCHEMA_VERSION, "exitCode": code, **asdict(replace(summary, error=None))}


def _failure(exc: HoldfastError) -> dict[str, object]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "exitCode": face(exc).exit,
        "error": {"message": str(exc), "remedy": exc.remedy},
    }
