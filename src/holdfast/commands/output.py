"""How commands print results and errors: lines for people, JSON for programs."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import click

from holdfast import DISTRIBUTION
from holdfast.commands.clickoptions import typed_places
from holdfast.errors import HoldfastError, StartupError, UsageError, face, kind
from holdfast.local.shown import strip_sequences

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# The result of a command: members for JSON, and for people `text`, or on a terminal `table` (names of
# columns, rows) in its place, and `after` in both cases; or `data`, bytes that are passed on unchanged.
# `exit` is the exit code.
Answer: TypeAlias = dict[str, object]

SCHEMA: Final = 1
INTERRUPTED: Final = 130
_MAX_SAID: Final = 4096  # characters of one message: a screen, and the longest path
BOARD_USED: Final = "holdfast.board"  # in the meta of a context: the board, if the command did not name it
_JSON: Final = "holdfast.json"  # also in the meta: whether --json was given

# The command with the words before its options; `holdfast` alone is the name of the product.
_COMMAND: Final = re.compile(
    r"(?<![\w/.-])holdfast ((?:board|task|worker) [a-z-]+|relay (?:token )?[a-z]+|dispatch status|(?:board|"
    r"config|cp|dispatch|doctor|down|environment|exec|forward|handoff|mcp|open|relay|serve|status|task|up|"
    r"web|worker)\b)"
)
_WITH_STORE: Final = frozenset({"board", "dispatch", "mcp", "relay", "task", "up", "web"})
_WITH_HOME: Final = _WITH_STORE | {"down", "open", "status", "worker"}
# Our own lines with commands to type; other lines may be text from others.
_ADVICE: Final = re.compile(
    r"\s*(?:(?:try|more|answer it|see what changed|see all of it|to end it|to end them): |(?:\$ )?holdfast )"
)


class OneLine(click.Command):
    """A command that reports errors in one line, both in its arguments and from its work."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        as_json = isinstance(self, AnswerCommand) and "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as exc:
            refuse(UsageError(_one_line(exc.format_message())), as_json=as_json)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as exc:
            fail(exc)


class AnswerCommand(OneLine):
    """A command that prints its answers, and its errors, as JSON with --json."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            answered: Answer | Iterator[Answer] | None = super(OneLine, self).invoke(ctx)
            try:
                for answer in [answered] if isinstance(answered, dict) else answered or ():
                    if code := say(answer):
                        sys.exit(code)
            except KeyboardInterrupt:
                sys.exit(INTERRUPTED)
        except HoldfastError as exc:
            refuse(exc)


class AnswerGroup(AnswerCommand, click.Group):
    """An `AnswerCommand` that has subcommands."""


def _keep_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    expose_value=False,
    callback=_keep_json,
    help="Print JSON with a stable schema, errors too.",
)


def is_json() -> bool:
    """Whether --json was given to the present command."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def say(answer: Answer) -> int:
    """Print the answer as JSON, or for people; return its exit code. `warned` lines go to standard error."""
    lines, table, after = answer.pop("text", []), answer.pop("table", None), answer.pop("after", [])
    warned = answer.pop("warned", [])
    code, data = answer.pop("exit", 0), answer.pop("data", None)
    assert isinstance(lines, list) and isinstance(after, list) and isinstance(code, int)  # noqa: S101, PT018 - tells the type checker what every command returns
    assert isinstance(warned, list)  # noqa: S101 - likewise
    if is_json():
        import msgspec

        used = click.get_current_context().meta.get(BOARD_USED)
        where: Answer = {} if used is None else {"boardUsed": used}
        if isinstance(data, bytes):
            where["content"] = data.decode("utf-8", "replace")
        click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, **where, **answer}))
        return code
    if isinstance(table, tuple) and sys.stdout.isatty():
        columns, rows = table
        show_table(columns, [[pasteable_line(cell) for cell in row] for row in rows])
        lines = []
    if isinstance(data, bytes):
        show_data(data)
        if not sys.stdout.isatty():
            return code
        lines = []
    for line in [*lines, *after]:
        click.echo(pasteable_line(printable(line)))
    for line in warned:
        click.echo(pasteable_line(printable(line)), err=True)
    return code


def refuse(exc: HoldfastError, *, as_json: bool | None = None, **more: object) -> NoReturn:
    """Print the error and exit with its code; `more` are members for JSON."""
    if not (is_json() if as_json is None else as_json):
        fail(exc)
    import msgspec

    code = face(exc).exit
    error = {"kind": kind(exc), "message": str(exc), "remedy": exc.remedy, "exit": code}
    click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, "error": error, **more}))
    sys.exit(code)


def fail(exc: HoldfastError, code: int | None = None) -> NoReturn:
    """Print the error and exit, with its own code unless another is given."""
    click.echo(f"holdfast: {printable(_shorten(str(exc)))}", err=True)
    if exc.remedy:
        click.echo(f"  try: {pasteable(printable(exc.remedy))}", err=True)
    sys.exit(face(exc).exit if code is None else code)


def _one_line(text: str) -> str:
    """Put a message of click on one line; click prints each choice on a line of its own."""
    return re.sub(r"\s*\n\s*", " ", text)


def _shorten(text: str) -> str:
    """Shorten a message, so that text pasted by mistake does not hide the error."""
    if len(text) <= _MAX_SAID:
        return text
    return f"{text[: _MAX_SAID // 2]} […] {text[-_MAX_SAID // 2 :]}"


@contextlib.contextmanager
def need_extra(extra: str, what: str, *packages: str) -> Iterator[None]:
    """Import the packages of an extra inside the block.

    Raises:
        StartupError: one of these packages is missing; the remedy installs it.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] not in packages:
            raise
        remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
        raise StartupError(f"{what} is not installed", remedy=remedy) from None


def show_data(data: bytes, *, raw: bool = False) -> None:
    """Print data of others: unchanged into a file or a pipe, escaped on a terminal unless `raw`."""
    if raw or not sys.stdout.isatty():
        click.echo(data, nl=False)
        return
    for line in data.decode("utf-8", "replace").replace("\t", "    ").splitlines():
        click.echo(printable(line))


def printable(text: str) -> str:
    """Make text safe for our terminal, such as names of files and servers that others chose."""
    return "".join(char if char.isprintable() else "\ufffd" for char in strip_sequences(text))


def pasteable(text: str) -> str:
    """Make the commands in a text pasteable.

    They name `holdfast` so that this shell finds it, and include the typed --home and --store.
    """
    own, typed = _own_name(), typed_places(click.get_current_context(silent=True))
    if own == "holdfast" and not typed:
        return text
    return _COMMAND.sub(lambda found: " ".join([own, found[1], *_places(found[1], text, typed)]), text)


def _places(words: str, text: str, typed: Mapping[str, str]) -> Iterator[str]:
    """The typed options that this command takes, unless the text has them."""
    first, *_ = words.split()
    taken = {"--home": first in _WITH_HOME, "--store": first in _WITH_STORE and words != "dispatch status"}
    for option, value in typed.items():
        if taken[option] and f"{option} " not in text:
            yield f"{option} {shlex.quote(value)}"


def pasteable_line(line: str) -> str:
    """Do the same to a line with a command to type; return other lines unchanged."""
    return pasteable(line) if _ADVICE.match(line) else line


@functools.cache
def _own_name() -> str:
    if shutil.which("holdfast") is not None:
        return "holdfast"
    program = sys.argv[0]
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        program = os.path.abspath(program)
    if os.path.basename(program) == "holdfast" and os.access(program, os.X_OK):
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -P -m holdfast"


# --- a list on a terminal

_GAP: Final = "  "
_LEAST: Final = 20  # columns for wrapped text; narrower text is unreadable
_STYLES: Final = {
    "ready": "cyan",
    "running": "blue",
    "waiting_human": "bold yellow",
    "review": "yellow",
    "handoff_failed": "bold red",
    "failed": "red",
    "lost": "red",
    "done": "green",
    "completed": "green",
    "cancelled": "dim",
    "archived": "dim",
    "paused": "yellow",
}


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], console: "Console | None" = None
) -> None:
    """Print complete cells: if the last two columns do not fit, the last one goes below the others."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    cells = [[printable(cell) for cell in row] for row in rows]
    if sum(_widths(columns, cells)) + len(_GAP) * (len(columns) - 1) <= console.width:
        made = Table(box=None, pad_edge=False, expand=False)
        for name in columns:
            made.add_column(name, no_wrap=name != columns[-1], overflow="fold")
        for row in cells:
            made.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console.print(made)
        return
    for line in _stack(columns, cells, console.width):
        console.print(line, soft_wrap=True)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(columns, *rows, strict=True)]


def _stack(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> "Iterator[Text]":
    """Never wrap the first columns; wrap the last but one in the remaining width."""
    import textwrap

    from rich.text import Text

    *fixed, long, _ = columns
    widths = _widths(columns, rows)[: len(fixed)]
    indent = sum(widths) + len(_GAP) * len(fixed)
    room = max(width - indent, _LEAST)
    yield Text(_GAP.join([*map(str.ljust, fixed, widths), long]), style="bold")
    for row in rows:
        first, *more = textwrap.wrap(row[-2], room) or [""]
        line = Text()
        for cell, size in zip(row, widths, strict=False):
            line.append(cell.ljust(size), style=_STYLES.get(cell, ""))
            line.append(_GAP)
        yield line.append(first)
        yield from (Text(" " * indent + rest) for rest in more)
        for said in textwrap.wrap(row[-1], max(width - 4, _LEAST)):
            yield Text(f"    {said}", style="dim")
