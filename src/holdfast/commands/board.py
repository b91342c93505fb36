"""`holdfast board`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.board_import import import_hermes
from holdfast.commands.boarding import Verb, json_option, refuse, say, store_option, with_store
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.board.store import Store


@click.group()
def board() -> None:
    """Boards of tasks for sandboxed workers.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 conflict; 5 the store is down or damaged.
    """


board.add_command(import_hermes)


@board.command(cls=Verb)
@click.argument("name")
@click.option("--title", default="", help="What it is for, in words.")
@click.option("--max-running", type=click.IntRange(min=0), metavar="N", help="At most so many runs at once.")
@with_store(create=True)
def create(store: "Store", name: str, title: str, max_running: int | None) -> dict[str, object]:
    """Make a board, and the store if there is none."""
    made = store.create_board(name, title)
    if max_running is not None:
        store.set_cap(name, "board", "", max_running)
    return {"board": made, "text": [f"made {made.slug} in {store.database.address}"]}


@board.command("list", cls=Verb)
@with_store()
def list_(store: "Store") -> dict[str, object]:
    """Show the boards of a store."""
    boards = store.boards()
    return {"boards": boards, "text": [f"{each.slug:<20} {each.title}".rstrip() for each in boards]}


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def show(store: "Store", name: str) -> dict[str, object]:
    """Show a board: its bounds, what runs, how many tasks are where."""
    from dataclasses import asdict

    stats = store.stats(name)
    capacity, busy = store.capacity(name)
    text = [f"{stats.board.slug} {stats.board.title}".rstrip()]
    text += [f"  {status:<16} {count}" for status, count in stats.tasks.items() if count]
    text.append(f"  running {busy.board} of {'any number' if capacity.board is None else capacity.board}")
    text += [f"    {profile}: {count}" for profile, count in sorted(busy.profiles.items())]
    return {
        "board": stats.board,
        "tasks": stats.tasks,
        "capacity": asdict(capacity),
        "busy": asdict(busy),
        "text": text,
    }


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def stats(store: "Store", name: str) -> dict[str, object]:
    """Count the tasks of a board, and say how long the oldest has been ready."""
    found = store.stats(name)
    text = [f"{status:<16} {count}" for status, count in found.tasks.items()]
    if found.oldest_ready_ms is not None:
        text.append(f"oldest ready     {found.oldest_ready_ms / 1000:.1f} s")
    return {"stats": found, "text": text}


@board.command(cls=Verb)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_store()
def backup(store: "Store", file: Path) -> dict[str, object]:
    """Copy the whole store to FILE while others go on; the copy is checked.

    A file that ends in .jsonl gets lines of JSON, which any store can be restored from; any other a copy of
    the SQLite file.
    """
    from holdfast.board.backup import backup as copy

    copy(store, file)
    return {"file": str(file), "text": [f"wrote {file}"]}


@board.command(cls=Verb)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--replace", is_flag=True, help="Also when there are boards; they are kept in a file beside it."
)
@json_option
@store_option
def restore(file: Path, replace: bool, address: str, as_json: bool) -> None:
    """Make the store what FILE says, once FILE has been checked. Stop what uses the store first."""
    from holdfast.board.backup import restore as bring_back

    try:
        aside = bring_back(file, address, replace=replace)
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)
    text = [f"restored from {file}"] + ([f"what was there is now {aside}"] if aside else [])
    say({"file": str(file), "aside": aside, "text": text}, as_json=as_json)
