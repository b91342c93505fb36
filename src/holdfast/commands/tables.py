"""A list on a terminal."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.commands.oneline import printable

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


def show(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The last column takes what room there is; the others are not broken."""
    made = Table(box=None, pad_edge=False, expand=False)
    for name in columns:
        made.add_column(name, no_wrap=name != columns[-1], overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row))
    Console().print(made)
