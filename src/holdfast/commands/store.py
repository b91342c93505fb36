"""What the commands of the board share: where the store is, and which board they are about."""

import errno
import functools
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from holdfast.commands.clickoptions import complete_id
from holdfast.commands.output import BOARD_USED, Answer, json_option
from holdfast.errors import HoldfastError, OperationFailed, UsageError
from holdfast.local.atomicfile import replace_file

if TYPE_CHECKING:
    from holdfast.board.store import Store

P = ParamSpec("P")

PROJECT: Final = ".holdfast.toml"
MAX_PROJECT: Final = 64 * 1024  # bytes: whoever makes a project does not fill our memory
_SWITCHED: Final = "current-board"
_IDS: Final = frozenset({"id", "parent", "child", "parents"})  # parameters that name a task


def with_store(
    *, create: bool = False
) -> Callable[
    [Callable[Concatenate["Store", P], Answer | Iterator[Answer]]], Callable[..., Iterator[Answer]]
]:
    """A command that is given the store; where a parameter names a task or a run, its id may be shortened."""

    def decorate(
        command: Callable[Concatenate["Store", P], Answer | Iterator[Answer]],
    ) -> Callable[..., Iterator[Answer]]:
        @json_option
        @store_option
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
    """Ids as they are, of what may be their beginnings."""
    return store.task_id(given) if isinstance(given, str) else tuple(map(store.task_id, given))


def check_reader() -> None:
    """Raises BrokenPipeError when nobody reads what is printed any more; a write only finds out later."""
    watch = select.poll()
    try:
        watch.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in watch.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")


def user_name() -> str:
    """Whoever types, as events name them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _address(context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    if value:
        return value
    from holdfast.home import default_home

    return str((context.params.get("home") or default_home()) / "board.db")


store_option = click.option(
    "--store",
    "address",
    metavar="PATH|URL",
    envvar="HOLDFAST_STORE",
    callback=_address,
    help="A SQLite file or a postgresql:// URL [default: $HOLDFAST_STORE, or board.db in --home, "
    "$HOLDFAST_HOME or below $XDG_STATE_HOME].",
)


def find_board(start: Path, environ: "os._Environ[str] | dict[str, str]", home: Path) -> tuple[str, str]:
    """The board and where its name comes from, for a command that does not name one.

    Raises:
        UsageError: nothing names one, or the project's file is none.
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
    """The home whose dispatcher a command without --home means."""
    from holdfast.home import default_home

    return default_home().absolute()


def name_boards(context: click.Context) -> str:
    """The boards of the store that is meant, to be chosen from; nothing where that cannot be told."""
    from holdfast.board.store import open_store
    from holdfast.home import default_home

    address = context.params.get("address") or os.environ.get("HOLDFAST_STORE")
    address = address or str((context.params.get("home") or default_home()) / "board.db")
    try:
        with open_store(address, create=False) as store:
            names = [board.slug for board in store.boards() if not board.archived]
    except HoldfastError:
        return ""
    return f"; there are: {', '.join(names)}" if names else "; there is none yet: holdfast board create NAME"


def switch_board(home: Path, name: str) -> None:
    """What a person means from now on. Written whole, or not at all."""
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
    import tomllib  # only where there is such a file

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
    from holdfast.home import default_home

    try:
        name, source = find_board(Path.cwd(), os.environ, default_home())
    except UsageError as exc:
        raise click.UsageError(f"{exc}: {exc.remedy}{name_boards(context)}") from None
    context.meta[BOARD_USED] = {"name": name, "from": source}
    return name


board_option = click.option(
    "--board",
    metavar="NAME",
    callback=_choose_board,
    help=f"The board [default: $HOLDFAST_BOARD, `board` in {PROJECT} here or above, or the default board].",
)
