"""`holdfast board`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.board_import import import_hermes
from holdfast.commands.board_metrics import metrics, used
from holdfast.commands.boarding import Verb, json_option, me, refuse, say, store_option, with_store
from holdfast.commands.sections import SECTIONS, SectionedGroup
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Board
    from holdfast.board.store import Store


@click.group(cls=SectionedGroup, sections=SECTIONS["board"])
def board() -> None:
    """Manage boards of tasks.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 conflict; 5 the store is down or damaged.

    \b
    Examples:
      holdfast board create crew
      holdfast board list
    """


board.add_command(import_hermes)
board.add_command(metrics)


@board.command(cls=Verb)
@click.argument("name")
@click.option("--title", default="", help="A title for people.")
@click.option(
    "--max-running", type=click.IntRange(min=0), metavar="N", help="Limit how many runs happen at once."
)
@with_store(create=True)
def create(store: "Store", name: str, title: str, max_running: int | None) -> dict[str, object]:
    """Create a board, and the store if there is none.

    \b
    Example:
      holdfast board create crew
    """
    made = store.create_board(name, title)
    if max_running is not None:
        store.set_cap(name, "board", "", max_running)
    return {"board": made, "text": [f"created board {made.slug} in {store.database.address}"]}


@board.command("list", cls=Verb)
@click.option("--all", "archived", is_flag=True, help="Include archived boards.")
@with_store()
def list_(store: "Store", archived: bool) -> dict[str, object]:
    """List the boards of a store.

    \b
    Examples:
      holdfast board list
      holdfast board list --json
    """
    boards = [each for each in store.boards() if archived or not each.archived]
    return {
        "boards": boards,
        "text": [f"{each.slug:<20} {each.title}{_standing(each, '  ({})')}".rstrip() for each in boards],
        "table": (
            ("board", "state", "title"),
            [(each.slug, _standing(each), each.title) for each in boards],
        ),
    }


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def show(store: "Store", name: str) -> dict[str, object]:
    """Show a board: limits, runs, number of tasks by status.

    \b
    Example:
      holdfast board show crew
    """
    from dataclasses import asdict

    stats = store.stats(name)
    capacity, busy = store.capacity(name)
    text = [f"{stats.board.slug} {stats.board.title}{_standing(stats.board, '  ({})')}".rstrip()]
    text += [f"  {status:<16} {count}" for status, count in stats.tasks.items() if count]
    text.append(f"  running {busy.board} of {'any number' if capacity.board is None else capacity.board}")
    text += [
        f"    {kind} {name}: {running.get(name, 0)}{f' of {most[name]}' if name in most else ''}"
        for kind, running, most in (
            ("profile", busy.profiles, capacity.profiles),
            ("host", busy.hosts, capacity.hosts),
            ("pool", busy.pools, capacity.pools),
        )
        for name in sorted({*running, *most})
    ]
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
    """Show statistics of a board.

    The number of tasks by status, how long the oldest has been ready, and what recent runs used.

    \b
    Example:
      holdfast board stats crew
    """
    found = store.stats(name)
    by_profile, lines = used(store.recent(name))
    text = [f"{status:<16} {count}" for status, count in found.tasks.items()]
    if found.oldest_ready_ms is not None:
        text.append(f"oldest ready     {found.oldest_ready_ms / 1000:.1f} s")
    return {"stats": found, "used": by_profile, "text": text + lines}


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def pause(store: "Store", name: str) -> dict[str, object]:
    """Pause a board: start no new runs.

    Runs that have started go on.

    \b
    Example:
      holdfast board pause crew
    """
    return _changed(store.pause(name, True, who=me()))


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def resume(store: "Store", name: str) -> dict[str, object]:
    """Resume a paused board.

    \b
    Example:
      holdfast board resume crew
    """
    return _changed(store.pause(name, False, who=me()))


@board.command(cls=Verb)
@click.argument("name")
@click.option("--undo", is_flag=True, help="Bring an archived board back.")
@with_store()
def archive(store: "Store", name: str, undo: bool) -> dict[str, object]:
    """Archive a board on which nothing runs.

    Its tasks are kept; none can be created or claimed there any more.

    \b
    Example:
      holdfast board archive crew
    """
    return _changed(store.archive_board(name, not undo, who=me()))


@board.command(cls=Verb)
@click.argument("name")
@click.argument("most", type=click.IntRange(min=0))
@click.option("--profile", metavar="NAME", help="Limit only runs of this profile.")
@click.option("--host", metavar="NAME", help="Limit only runs on this host.")
@click.option("--pool", metavar="NAME", help="Limit only runs of tasks in this pool.")
@with_store()
def cap(
    store: "Store", name: str, most: int, profile: str | None, host: str | None, pool: str | None
) -> dict[str, object]:
    """Limit how many runs of a board happen at once.

    \b
    Examples:
      holdfast board cap crew 4
      holdfast board cap crew 1 --profile codex
    """
    from dataclasses import asdict

    from holdfast.errors import UsageError

    given = {"profile": profile, "host": host, "pool": pool}
    named = [(scope, value) for scope, value in given.items() if value]
    if len(named) > 1:
        raise UsageError("choose one of --profile, --host and --pool")
    [(scope, whose)] = named or [("board", "")]
    store.set_cap(name, scope, whose, most, who=me())
    capacity, _ = store.capacity(name)
    return {
        "capacity": asdict(capacity),
        "text": [f"{name}: {whose} {most}"],
    }


@board.command(cls=Verb)
@click.argument("name")
@with_store()
def switch(store: "Store", name: str) -> dict[str, object]:
    """Set the default board.

    For people: programs name their board, by --board, $HOLDFAST_BOARD or the project's .holdfast.toml,
    which all come first. A command that used the switched one says so in its --json.

    \b
    Example:
      holdfast board switch crew
    """
    from holdfast.commands.boardname import switch as mean
    from holdfast.home import default_home

    found = store.stats(name).board
    mean(default_home(), found.slug)
    return {"board": found, "text": [f"the default board is now {found.slug}"]}


@board.command(cls=Verb)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_store()
def backup(store: "Store", file: Path) -> dict[str, object]:
    """Copy the whole store to FILE and check the copy.

    Others can use the store meanwhile.

    A file that ends in .jsonl gets lines of JSON, which any store can be restored from; any other a copy of
    the SQLite file.

    \b
    Example:
      holdfast board backup board-2026-11-16.jsonl
    """
    from holdfast.board.backup import backup as copy

    copy(store, file)
    return {"file": str(file), "text": [f"wrote {file}"]}


@board.command(cls=Verb)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--replace", is_flag=True, help="Replace existing boards; a copy of them is kept beside the store."
)
@json_option
@store_option
def restore(file: Path, replace: bool, address: str, as_json: bool) -> None:
    """Replace the store with a backup.

    FILE is checked first. Stop everything that uses the store before.

    \b
    Example:
      holdfast board restore board-2026-11-16.jsonl
    """
    from holdfast.board.backup import restore as bring_back

    try:
        aside = bring_back(file, address, replace=replace)
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)
    text = [f"restored from {file}"] + ([f"what was there is now {aside}"] if aside else [])
    say({"file": str(file), "aside": aside, "text": text}, as_json=as_json)


def _changed(board: "Board") -> dict[str, object]:
    return {"board": board, "text": [f"{board.slug}{_standing(board, ' is {}') or ' is active'}"]}


def _standing(board: "Board", words: str = "{}") -> str:
    standing = "archived" if board.archived else "paused" if board.paused else ""
    return words.format(standing) if standing else ""
