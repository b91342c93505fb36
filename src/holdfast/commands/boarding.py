"""What the commands of the board share: where the store is, how answers and errors are said, exit codes."""

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec

import click

from holdfast.commands.oneline import fail, printable
from holdfast.errors import Conflict, HoldfastError, NotFound, StoreDamaged, Unreachable, UsageError

if TYPE_CHECKING:
    from holdfast.board.store import Store

P = ParamSpec("P")

SCHEMA: Final = 1
REFUSED: Final = 1  # every error that is not below
EXITS: Final[dict[type[HoldfastError], int]] = {
    UsageError: 2,
    NotFound: 3,
    Conflict: 4,
    Unreachable: 5,
    StoreDamaged: 5,
}


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


def with_store(
    *, create: bool = False
) -> Callable[[Callable[Concatenate["Store", P], dict[str, object]]], Callable[..., None]]:
    """A command that is given the store, and whose answer is printed as JSON when that is asked for."""

    def decorated(command: Callable[Concatenate["Store", P], dict[str, object]]) -> Callable[..., None]:
        @json_option
        @store_option
        @functools.wraps(command)
        def called(address: str, as_json: bool, *args: P.args, **kwargs: P.kwargs) -> None:
            from holdfast.board.store import open_store

            try:
                with open_store(address, create=create) as store:
                    answer = command(store, *args, **kwargs)
            except HoldfastError as exc:
                refuse(exc, as_json=as_json)
            say(answer, as_json=as_json)

        return called

    return decorated


def say(answer: dict[str, object], *, as_json: bool) -> None:
    """The answer as JSON, or its `text`: lines for people."""
    lines = answer.pop("text", [])
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, **answer}))
        return
    assert isinstance(lines, list)  # noqa: S101 - tells the type checker what every command returns
    for line in lines:
        click.echo(printable(line))


def refuse(exc: HoldfastError, *, as_json: bool) -> NoReturn:
    """Say what is wrong and exit with the board's own codes."""
    code = next((EXITS[cls] for cls in type(exc).__mro__ if cls in EXITS), REFUSED)
    if not as_json:
        fail(exc, code=code)
    import msgspec

    error = {"kind": type(exc).__name__, "message": str(exc), "remedy": exc.remedy, "exit": code}
    click.echo(msgspec.json.encode({"schemaVersion": SCHEMA, "error": error}))
    sys.exit(code)


def me() -> str:
    """Whoever types, as events name them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    if value:
        return value
    from holdfast.agents.book import default_home

    return str(default_home() / "board.db")


json_option = click.option(
    "--json", "as_json", is_flag=True, help="JSON with a stable schema, errors as well."
)
store_option = click.option(
    "--store",
    "address",
    metavar="PATH|URL",
    envvar="HOLDFAST_BOARD",
    callback=_address,
    help="A SQLite file or a postgresql:// URL [default: $HOLDFAST_BOARD, or board.db in $HOLDFAST_HOME or "
    "below $XDG_STATE_HOME].",
)
