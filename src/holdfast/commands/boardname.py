"""Which board a command is about: named by option, environment or project, or switched to by a person."""

import os
from pathlib import Path
from typing import Final

import click

from holdfast.errors import NotFound, OperationFailed, UsageError
from holdfast.local.atomicfile import replace_file

PROJECT: Final = ".holdfast.toml"
MAX_PROJECT: Final = 64 * 1024  # bytes: whoever makes a project does not fill our memory
_SWITCHED: Final = "current-board"
_META: Final = "holdfast.board"


def found(start: Path, environ: "os._Environ[str] | dict[str, str]", home: Path) -> tuple[str, str]:
    """The board and where its name comes from, for a command that does not name one.

    Raises:
        NotFound: nothing names one.
        UsageError: the project's file is none.
    """
    if name := environ.get("HOLDFAST_BOARD"):
        return name, "environment"
    for folder in (start, *start.parents):
        if (name := _in_project(folder / PROJECT)) is not None:
            return name, "project"
    try:
        return (home / _SWITCHED).read_text("utf-8").strip(), "switched"
    except OSError:
        raise UsageError(
            "no board is named, and no default board is set",
            remedy="--board NAME, or once: holdfast board switch NAME (holdfast board list shows them)",
        ) from None


def switch(home: Path, name: str) -> None:
    """What a person means from now on. Written whole, or not at all."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(home / _SWITCHED, f"{name}\n".encode())
    except OSError as exc:
        raise OperationFailed(f"cannot write below {home}: {exc.strerror}") from None


def used() -> dict[str, str] | None:
    """What the present command took for its board, if it did not name one itself."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_META)


def _in_project(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_PROJECT + 1)
    except OSError:
        return None
    import tomllib  # only where there is such a file

    try:
        name = tomllib.loads(text[:MAX_PROJECT].decode()).get("board")
    except ValueError:
        raise UsageError(f"{file} is not valid TOML", remedy="correct it, or give --board NAME") from None
    if name is not None and not isinstance(name, str):
        raise UsageError(f"`board` in {file} is not a string")
    return name


def _chosen(context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    if value is not None or context.resilient_parsing:
        return value or ""
    from holdfast.home import default_home

    try:
        name, source = found(Path.cwd(), os.environ, default_home())
    except (UsageError, NotFound) as exc:
        raise click.UsageError(f"{exc}: {exc.remedy}") from None
    context.meta[_META] = {"name": name, "from": source}
    return name


board_option = click.option(
    "--board",
    metavar="NAME",
    callback=_chosen,
    help=f"The board [default: $HOLDFAST_BOARD, `board` in {PROJECT} here or above, or the default board].",
)
