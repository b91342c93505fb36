"""`holdfast board`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.clickoptions import SECTIONS, SectionedGroup
from holdfast.commands.output import Answer, AnswerCommand, json_option
from holdfast.commands.store import current_home, place_options, switch_board, user_name, with_store
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from holdfast.board.hermes.intake import ImportReport
    from holdfast.board.rules.metrics import Recent
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


@board.command(cls=AnswerCommand)
@click.argument("name")
@click.option("--title", default="", help="A title for people.")
@click.option(
    "--max-running", type=click.IntRange(min=0), metavar="N", help="Limit how many runs happen at once."
)
@with_store(create=True)
def create(store: "Store", name: str, title: str, max_running: int | None) -> Answer:
    """Create a board, and the store if there is none.

    \b
    Example:
      holdfast board create crew
    """
    made = store.create_board(name, title)
    if max_running is not None:
        store.set_cap(name, "board", "", max_running)
    return {"board": made, "text": [f"created board {made.slug} in {store.database.address}"]}


@board.command("list", cls=AnswerCommand)
@click.option("--all", "archived", is_flag=True, help="Include archived boards.")
@with_store()
def list_(store: "Store", archived: bool) -> Answer:
    """List the boards of a store.

    \b
    Examples:
      holdfast board list
      holdfast board list --json
    """
    boards = [each for each in store.boards() if archived or not each.archived]
    return {
        "boards": boards,
        "text": [f"{each.slug:<20} {each.title}{_describe(each, '  ({})')}".rstrip() for each in boards],
        "table": (
            ("board", "state", "title"),
            [(each.slug, _describe(each), each.title) for each in boards],
        ),
    }


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def show(store: "Store", name: str) -> Answer:
    """Show a board: limits, runs, number of tasks by status.

    \b
    Example:
      holdfast board show crew
    """
    from dataclasses import asdict

    stats = store.stats(name)
    capacity, busy = store.capacity(name)
    text = [f"{stats.board.slug} {stats.board.title}{_describe(stats.board, '  ({})')}".rstrip()]
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


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def stats(store: "Store", name: str) -> Answer:
    """Show statistics of a board.

    The number of tasks by status, how long the oldest has been ready, and what recent runs used.

    \b
    Example:
      holdfast board stats crew
    """
    found = store.stats(name)
    by_profile, lines = _sum_usage(store.recent(name))
    text = [f"{status:<16} {count}" for status, count in found.tasks.items()]
    if found.oldest_ready_ms is not None:
        text.append(f"oldest ready     {found.oldest_ready_ms / 1000:.1f} s")
    return {"stats": found, "used": by_profile, "text": text + lines}


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def metrics(store: "Store", name: str) -> Answer:
    """Print metrics of a board for Prometheus.

    Tasks are counted by their present status. Outcomes, usage and waiting times come from the newest 10,000
    events.

    \b
    Example:
      holdfast board metrics crew
    """
    from holdfast.board.rules.metrics import exposition, profiles

    found, recent = store.stats(name), store.recent(name)
    return {
        "tasks": found.tasks,
        "oldestReadyMs": found.oldest_ready_ms,
        "recent": recent,
        "profiles": profiles(recent),
        "text": exposition(name, found.tasks, found.oldest_ready_ms, recent),
    }


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def pause(store: "Store", name: str) -> Answer:
    """Pause a board: start no new runs.

    Runs that have started go on.

    \b
    Example:
      holdfast board pause crew
    """
    return _report_board(store.pause(name, True, who=user_name()))


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def resume(store: "Store", name: str) -> Answer:
    """Resume a paused board.

    \b
    Example:
      holdfast board resume crew
    """
    return _report_board(store.pause(name, False, who=user_name()))


@board.command(cls=AnswerCommand)
@click.argument("name")
@click.option("--undo", is_flag=True, help="Bring an archived board back.")
@with_store()
def archive(store: "Store", name: str, undo: bool) -> Answer:
    """Archive a board on which nothing runs.

    Its tasks are kept. No task can be created or claimed there any more.

    \b
    Example:
      holdfast board archive crew
    """
    return _report_board(store.archive_board(name, not undo, who=user_name()))


@board.command(cls=AnswerCommand)
@click.argument("name")
@click.argument("most", type=click.IntRange(min=0))
@click.option("--profile", metavar="NAME", help="Limit only runs of this profile.")
@click.option("--host", metavar="NAME", help="Limit only runs on this host.")
@click.option("--pool", metavar="NAME", help="Limit only runs of tasks in this pool.")
@with_store()
def cap(
    store: "Store", name: str, most: int, profile: str | None, host: str | None, pool: str | None
) -> Answer:
    """Limit how many runs of a board happen at once.

    \b
    Examples:
      holdfast board cap crew 4
      holdfast board cap crew 1 --profile codex
    """
    from dataclasses import asdict

    given = {"profile": profile, "host": host, "pool": pool}
    named = [(scope, value) for scope, value in given.items() if value]
    if len(named) > 1:
        raise UsageError("choose one of --profile, --host and --pool")
    [(scope, whose)] = named or [("board", "")]
    store.set_cap(name, scope, whose, most, who=user_name())
    capacity, _ = store.capacity(name)
    return {
        "capacity": asdict(capacity),
        "text": [f"{name}: {whose} {most}"],
    }


@board.command(cls=AnswerCommand)
@click.argument("name")
@with_store()
def switch(store: "Store", name: str) -> Answer:
    """Set the default board.

    For people. Programs name their board by --board, $HOLDFAST_BOARD or the project's .holdfast.toml, which
    all have priority. A command that used the default board reports that in its --json.

    \b
    Example:
      holdfast board switch crew
    """
    found = store.stats(name).board
    switch_board(current_home(), found.slug)
    return {"board": found, "text": [f"the default board is now {found.slug}"]}


@board.command(cls=AnswerCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_store()
def backup(store: "Store", file: Path) -> Answer:
    """Copy the whole store to FILE and check the copy.

    Others can use the store meanwhile.

    If FILE ends in .jsonl, the copy is JSON lines, from which any store can be restored. Otherwise it is a
    copy of the SQLite file.

    \b
    Example:
      holdfast board backup board-2026-11-16.jsonl
    """
    from holdfast.board.backup import backup as copy

    copy(store, file)
    return {"file": str(file), "text": [f"wrote {file}"]}


@board.command(cls=AnswerCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--replace", is_flag=True, help="Replace existing boards; a copy of them is kept beside the store."
)
@json_option
@place_options
def restore(file: Path, replace: bool, address: str) -> Answer:
    """Replace the store with a backup.

    FILE is checked first. Stop all processes that use the store before.

    \b
    Example:
      holdfast board restore board-2026-11-16.jsonl
    """
    from holdfast.board.backup import restore as bring_back

    aside = bring_back(file, address, replace=replace)
    text = [f"restored from {file}"] + ([f"what was there is now {aside}"] if aside else [])
    return {"file": str(file), "aside": aside, "text": text}


@board.command("import-hermes", cls=AnswerCommand)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--board", metavar="NAME", help="The board to import into [default: its name in Hermes].")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; change nothing.")
@json_option
@place_options
def import_hermes(path: Path, board: str | None, dry_run: bool, address: str) -> Answer:
    """Import a board of Hermes Agent.

    Tasks, links, comments, runs and events are imported.

    PATH is its kanban.db or the folder with that file; it is only read. Ids are kept. Existing tasks are not
    changed, so a second import adds only new ones.

    \b
    Example:
      holdfast board import-hermes ~/.hermes/kanban.db --board crew
    """
    from holdfast.board.hermes import hermesfile
    from holdfast.board.hermes.intake import import_board
    from holdfast.board.store import open_store

    file = hermesfile.locate(path)
    source = hermesfile.read(file)
    try:
        store = open_store(address, create=not dry_run)
    except NotFound:
        store = open_store(":memory:")  # a dry run creates no store either
    with store:
        report = import_board(
            *(store, source, lambda row: hermesfile.attachment(file, row)),
            board=board or hermesfile.board_name(file),
            who=user_name(),
            dry_run=dry_run,
        )
    return {"import": report, "text": _import_lines(report)}


def _report_board(board: "Board") -> Answer:
    return {"board": board, "text": [f"{board.slug}{_describe(board, ' is {}') or ' is active'}"]}


def _describe(board: "Board", words: str = "{}") -> str:
    standing = "archived" if board.archived else "paused" if board.paused else ""
    return words.format(standing) if standing else ""


def _sum_usage(recent: "Recent") -> tuple[dict[str, object], list[str]]:
    """Usage of recent runs by profile, for programs and for people."""
    from holdfast.board.rules.budget import describe, to_json
    from holdfast.board.rules.metrics import profiles, used

    found = profiles(recent)
    members: dict[str, object] = {
        name: {**to_json(used(one)), "runs": one.runs, "told": one.told} for name, one in found.items()
    }
    lines = [
        f"used by {name:<16} {describe(used(one))} (known of {one.told} of {one.runs} recent runs)"
        for name, one in found.items()
    ]
    return members, lines


def _import_lines(report: "ImportReport") -> list[str]:
    state = "made" if report.new_board else "added to"
    lines = [f"would have {state} {report.board}" if report.dry_run else f"{state} {report.board}"]
    for table, counts in report.counts.items():
        lines.append(f"{table} {sum(counts.values())}")
        lines += [f"  {count:>7}  {how}" for how, count in counts.items()]
    lines += report.notes
    return lines + ([f"and {report.more_notes} more notes"] if report.more_notes else [])
