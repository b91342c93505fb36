"""`holdfast board import-hermes`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.boarding import Verb, json_option, me, refuse, say, store_option
from holdfast.errors import HoldfastError, NotFound

if TYPE_CHECKING:
    from holdfast.board.hermes.intake import ImportReport


@click.command("import-hermes", cls=Verb)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--board", metavar="NAME", help="The board to import into [default: its name in Hermes].")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; change nothing.")
@json_option
@store_option
def import_hermes(path: Path, board: str | None, dry_run: bool, as_json: bool, address: str) -> None:
    """Import a board of Hermes Agent.

    Tasks, links, comments, runs and events are imported.

    PATH is its kanban.db or the folder that holds it; it is only read. Ids stay the same. Tasks that are
    here already stay as they are, so a second import brings only what is new.

    \b
    Example:
      holdfast board import-hermes ~/.hermes/kanban.db --board crew
    """
    try:
        report = _brought(path, board, address, dry_run)
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)
    say({"import": report, "text": _lines(report)}, as_json=as_json)


def _brought(path: Path, board: str | None, address: str, dry_run: bool) -> "ImportReport":
    from holdfast.board.hermes import hermesfile
    from holdfast.board.hermes.intake import import_board
    from holdfast.board.store import open_store

    file = hermesfile.locate(path)
    source = hermesfile.read(file)
    try:
        store = open_store(address, create=not dry_run)
    except NotFound:
        store = open_store(":memory:")  # a rehearsal makes no store either
    with store:
        return import_board(
            *(store, source, lambda row: hermesfile.attachment(file, row)),
            board=board or hermesfile.board_name(file),
            who=me(),
            dry_run=dry_run,
        )


def _lines(report: "ImportReport") -> list[str]:
    state = "made" if report.new_board else "added to"
    lines = [f"would have {state} {report.board}" if report.dry_run else f"{state} {report.board}"]
    for table, counts in report.counts.items():
        lines.append(f"{table} {sum(counts.values())}")
        lines += [f"  {count:>7}  {how}" for how, count in counts.items()]
    lines += report.notes
    return lines + ([f"and {report.more_notes} more notes"] if report.more_notes else [])
