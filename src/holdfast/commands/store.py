"""What the commands of the board share: where the store is, how answers and errors are said, exit codes."""

import errno
import functools
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeAlias

import click

from holdfast.commands import boardname
from holdfast.commands.oneline import fail, printable
from holdfast.commands.pasting import pasteable_line
from holdfast.errors import HoldfastError, UsageError, face, kind

if TYPE_CHECKING:
    from holdfast.board.store import Store

P = ParamSpec("P")
# What a command found: members for JSON, and for people `text`, or on a terminal `table` (names of columns,
# rows) in its place, and `after` in both cases; or `data`, bytes that are passed on as they are. `exit` is
# the exit code.
Answer: TypeAlias = dict[str, object]

SCHEMA: Final = 1
INTERRUPTED: Final = 130
_IDS: Final = frozenset({"id", "parent", "child", "parents"})  # parameters that name a task


def _whole(store: "Store", given: Any) -> Any:
    """Ids as they are, of what may be their beginnings."""
    return store.task_id(given) if isinstance(given, str) else tuple(map(store.task_id, given))


class Verb(click.Command):
    """A command of the board; what is wrong with its arguments is said as JSON too when that is asked for."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        as_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as exc:
            refuse(UsageError(exc.format_message()), as_json=as_json)


class VerbGroup(Verb, click.Group):
    """Likewise, with commands below it."""


def with_store(
    *, create: bool = False
) -> Callable[[Callable[Concatenate["Store", P], Answer | Iterator[Answer]]], Callable[..., None]]:
    """A command that is given the store, and whose answers are printed, as JSON when that is asked for."""

    def decorated(
        command: Callable[Concatenate["Store", P], Answer | Iterator[Answer]],
    ) -> Callable[..., None]:
        @json_option
        @store_option
        @functools.wraps(command)
        def called(address: str, as_json: bool, *args: P.args, **kwargs: P.kwargs) -> None:
            from holdfast.board.store import open_store

            try:
                with open_store(address, create=create) as store:
                    for name in _IDS & kwargs.keys():
                        kwargs[name] = _whole(store, kwargs[name])
                    answered = command(store, *args, **kwargs)
                    for answer in [answered] if isinstance(answered, dict) else answered:
                        if code := say(answer, as_json=as_json):
                            sys.exit(code)
            except HoldfastError as exc:
                refuse(exc, as_json=as_json)
            except KeyboardInterrupt:
                sys.exit(INTERRUPTED)

        return called

    return decorated


def say(answer: Answer, *, as_json: bool) -> int:
    """The answer as JSON, or for people; its exit code."""
    lines, table, after = answer.pop("text", []), answer.pop("table", None), answer.pop("after", [])
    code, data = answer.pop("exit", 0), answer.pop("data", None)
    assert isinstance(lines, list) and isinstance(after, list) and isinstance(code, int)  # noqa: S101, PT018 - tells the type checker what every command returns
    if as_json:
        import msgspec

        used = boardname.used()
        where: Answer = {} if used is None else {"boardUsed": used}
        if isinstance(data, bytes):
            where["content"] = data.decode("utf-8", "replace")
        click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, **where, **answer}))
        return code
    if isinstance(table, tuple) and sys.stdout.isatty():
        from holdfast.commands.tables import show

        columns, rows = table
        show(columns, [[pasteable_line(cell) for cell in row] for row in rows])
        lines = []
    if isinstance(data, bytes):
        if not sys.stdout.isatty():
            click.echo(data, nl=False)
            return code
        lines = data.decode("utf-8", "replace").replace("\t", "    ").splitlines()
    for line in [*lines, *after]:
        click.echo(pasteable_line(printable(line)))
    return code


def refuse(exc: HoldfastError, *, as_json: bool, **more: object) -> NoReturn:
    """Say what is wrong and exit with the error's code; `more` are members for JSON."""
    if not as_json:
        fail(exc)
    import msgspec

    code = face(exc).exit
    error = {"kind": kind(exc), "message": str(exc), "remedy": exc.remedy, "exit": code}
    click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, "error": error, **more}))
    sys.exit(code)


def check_reader() -> None:
    """Raises BrokenPipeError when nobody reads what is printed any more; a write only finds out later."""
    watch = select.poll()
    try:
        watch.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in watch.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")


def me() -> str:
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


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON with a stable schema, errors too."
)
store_option = click.option(
    "--store",
    "address",
    metavar="PATH|URL",
    envvar="HOLDFAST_STORE",
    callback=_address,
    help="A SQLite file or a postgresql:// URL [default: $HOLDFAST_STORE, or board.db in --home, "
    "$HOLDFAST_HOME or below $XDG_STATE_HOME].",
)
