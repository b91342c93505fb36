"""Shared by the board's commands: the place of the store, the choice of a board, a task as a line."""

import errno
import functools
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from holdfast.commands.clickoptions import chosen_home, combine, complete_id, context_home_option, note_typed
from holdfast.commands.output import BOARD_USED, Answer, json_option, pasteable
from holdfast.errors import HoldfastError, OperationFailed, UsageError
from holdfast.local.atomicfile import replace_file

if TYPE_CHECKING:
    from holdfast.board.store import Store
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.board.rules.rows import HostQuestion, Run, Task, TaskEvent
    from holdfast.commands.output import Answer


P = ParamSpec("P")

PROJECT: Final = ".holdfast.toml"
MAX_PROJECT: Final = 64 * 1024  # bytes: so that a project file cannot fill our memory
_SWITCHED: Final = "current-board"
_IDS: Final = frozenset({"id", "parent", "child", "parents"})  # parameters that name a task


def with_store(
    *, create: bool = False
) -> Callable[
    [Callable[Concatenate["Store", P], Answer | Iterator[Answer]]], Callable[..., Iterator[Answer]]
]:
    """Pass the open store to a command; ids of tasks and runs in its parameters may be shortened."""

    def decorate(
        command: Callable[Concatenate["Store", P], Answer | Iterator[Answer]],
    ) -> Callable[..., Iterator[Answer]]:
        @json_option
        @place_options
        @functools.wraps(command)
        def call(address: str, *args: P.args, **kwargs: P.kwargs) -> Iterator[Answer]:
            from holdfast.board.store import open_store

            with open_store(address, create=create) as store:
                for name in _IDS & kwargs.keys():
                    kwargs[name] = _complete(store, kwargs[name])
                if kwargs.get("run"):
                    runs = [run.id for run in store.runs(str(kwargs["id"]))]
                    kwargs["run"] = complete_id(str(kwargs["run"]), runs, "runs")
                answered = command(store, *args, **kwargs)
                yield from [answered] if isinstance(answered, dict) else answered

        return call

    return decorate


def _complete(store: "Store", given: Any) -> Any:
    """Expand shortened ids."""
    return store.task_id(given) if isinstance(given, str) else tuple(map(store.task_id, given))


def check_reader() -> None:
    """Raises BrokenPipeError when the reader of standard output is gone; a write detects that only later."""
    watch = select.poll()
    try:
        watch.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in watch.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")


def user_name() -> str:
    """The name of the present user, for events."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    note_store(context, parameter, value)
    return value or str(chosen_home(context) / "board.db")


def note_store(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Add a typed store, without its password, to the commands that we print."""
    from click.core import ParameterSource

    if not value or context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
        return
    note_typed(context, "--store", _without_password(value) if "://" in value else os.path.abspath(value))


def _without_password(url: str) -> str:
    shown = re.sub(r"^([^:/]*://[^:@/]*):.*@", r"\1@", url)
    return re.sub(r"\b(?:ssl)?password=[^&]*&?", "", shown)


store_option = click.option(
    "--store",
    "address",
    metavar="PATH|URL",
    envvar="HOLDFAST_STORE",
    callback=_address,
    help="A SQLite file or a postgresql:// URL [default: $HOLDFAST_STORE, or board.db in --home, "
    "$HOLDFAST_HOME or below $XDG_STATE_HOME].",
)


place_options: Final = combine(context_home_option, store_option)  # get the home from `current_home`


def find_board(start: Path, environ: "os._Environ[str] | dict[str, str]", home: Path) -> tuple[str, str]:
    """The board for a command that names none, and the source of its name.

    Raises:
        UsageError: no source names one, or the project's file is invalid.
    """
    if name := environ.get("HOLDFAST_BOARD"):
        return name, "environment"
    for folder in (start, *start.parents):
        if (name := _read_project(folder / PROJECT)) is not None:
            return name, "project"
    try:
        return (home / _SWITCHED).read_text("utf-8").strip(), "switched"
    except OSError:
        raise UsageError(
            "no board is named, and no default board is set",
            remedy="--board NAME, or once: holdfast board switch NAME (holdfast board list shows them)",
        ) from None


def current_home() -> Path:
    """The home of the present command."""
    return chosen_home(click.get_current_context(silent=True))


def name_boards(context: click.Context) -> str:
    """List the boards of the store to choose from; empty if it cannot be read."""
    from holdfast.board.store import open_store

    address = context.params.get("address") or os.environ.get("HOLDFAST_STORE")
    address = address or str(chosen_home(context) / "board.db")
    try:
        with open_store(address, create=False) as store:
            names = [board.slug for board in store.boards() if not board.archived]
    except HoldfastError:
        return ""
    return f"; there are: {', '.join(names)}" if names else "; there is none yet: holdfast board create NAME"


def switch_board(home: Path, name: str) -> None:
    """Set the default board of a home, atomically."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(home / _SWITCHED, f"{name}\n".encode())
    except OSError as exc:
        raise OperationFailed(f"cannot write below {home}: {exc.strerror}") from None


def _read_project(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_PROJECT + 1)
    except OSError:
        return None
    import tomllib  # needed only if there is such a file

    try:
        name = tomllib.loads(text[:MAX_PROJECT].decode()).get("board")
    except ValueError:
        raise UsageError(f"{file} is not valid TOML", remedy="correct it, or give --board NAME") from None
    if name is not None and not isinstance(name, str):
        raise UsageError(f"`board` in {file} is not a string")
    return name


def _choose_board(context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    if value is not None or context.resilient_parsing:
        return value or ""
    try:
        name, source = find_board(Path.cwd(), os.environ, chosen_home(context))
    except UsageError as exc:
        raise click.UsageError(f"{exc}: {pasteable(f'{exc.remedy}{name_boards(context)}')}") from None
    context.meta[BOARD_USED] = {"name": name, "from": source}
    return name


board_option = click.option(
    "--board",
    metavar="NAME",
    callback=_choose_board,
    help=f"The board [default: $HOLDFAST_BOARD, `board` in {PROJECT} here or above, or the default board].",
)


def task_line(task: "Task") -> str:
    return f"{task.id}  {task.status:<15} {task.priority:>4}  {task.assignee or '-':<12} {task.title}"


def run_line(run: "Run") -> str:
    used = f"{used_words(run):<14}"
    place = f" on {run.environment}" if run.environment else ""
    return f"  run {run.generation} {run.id}  {run.ending:<16} {used}{place} {run_said(run)}"


def run_said(run: "Run") -> str:
    """How the run ended, or its progress."""
    return run.error or run.summary or (f"looks stuck: {run.stuck}" if run.stuck else run.note)


def used_words(run: "Run") -> str:
    """The usage of a run; zero if it is not known."""
    from holdfast.board.rules.budget import describe, of_run

    return describe(of_run(run))


def budget_lines(task: "Task", runs: "list[Run]") -> list[str]:
    """The usage of a task against its budgets, for people; over all runs that are listed."""
    from holdfast.board.rules.budget import BudgetUse, describe, dollars, of_run

    bounds = [f"{task.max_tokens} tokens"] if task.max_tokens is not None else []
    bounds += [dollars(task.max_cost)] if task.max_cost is not None else []
    used = BudgetUse(*map(sum, zip(*map(of_run, runs), strict=True))) if runs else BudgetUse()
    if not bounds and used == BudgetUse():
        return []
    return [f"  used {describe(used)}" + (f" of {', '.join(bounds)}" if bounds else "")]


def event_line(event: "TaskEvent") -> str:
    members = " ".join(
        f"{name}={value}" for name, value in event.payload.items() if value not in ("", [], None)
    )
    return f"{event.seq:>6}  {event.task_id or '-'}  {event.kind:<16} {event.actor}  {members}".rstrip()


def network_lines(event: "TaskEvent") -> list[str]:
    """The hosts that a run reached by name, and those that were refused."""
    told = event.payload
    lines = [
        f"reached {row['host']}:{row['port']}: {row['connections']} connections, {row['sent']} bytes sent, "
        f"{row['received']} received, {(row['to_ms'] - row['from_ms']) / 1000:.1f} s"
        for row in _rows(told.get("sent"))
    ]
    lines += [
        f"was refused {row['host']}{'' if row['port'] is None else ':' + str(row['port'])}"
        f" ({row['count']} times): {row['rule']}{'; to allow it: ' + row['grant'] if row['grant'] else ''}"
        for row in _rows(told.get("refused"))
    ]
    if not told.get("counted"):
        return ["had the whole network; its connections were not counted"] if told.get("whole") else []
    return lines + ([f"and {told['more']} more hosts"] if told.get("more") else [])


def host_lines(question: "HostQuestion") -> list[str]:
    """A question of a worker about a host, and how to answer it."""
    said = f"{question.who} said {question.answer}" if question.answer else ""
    if question.outcome or said:
        return [f"  asked: {question.words}: {', '.join(filter(None, (said, question.outcome)))}"]
    beside = f"; pattern: {question.pattern}" if question.pattern else ""
    return [
        f"  waits for an answer: {question.words}{beside}",
        *(f"  $ {words}" for words in question.next),
    ]


def _rows(value: object) -> "list[dict[str, Any]]":
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def answer(task: "Task", more: Sequence[str] = ()) -> "Answer":
    """The answer of a command that changed a task, with further lines for a person."""
    return {"task": task, "text": [task_line(task), *more]}
