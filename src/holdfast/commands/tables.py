"""A list on a terminal."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.commands.oneline import printable

_GAP: Final = "  "
_LEAST: Final = 20  # columns for text that is broken into lines; narrower than that it cannot be read
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


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console | None = None) -> None:
    """Whole cells: where a line has no room for the last two columns, the last one goes below the others."""
    console = console or Console()
    cells = [[printable(cell) for cell in row] for row in rows]
    if _width(columns, cells) <= console.width:
        made = Table(box=None, pad_edge=False, expand=False)
        for name in columns:
            made.add_column(name, no_wrap=name != columns[-1], overflow="fold")
        for row in cells:
            made.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console.print(made)
        return
    for line in stacked(columns, cells, console.width):
        console.print(line, soft_wrap=True)


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Of all columns side by side."""
    return sum(_widths(columns, rows)) + len(_GAP) * (len(columns) - 1)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(columns, *rows, strict=True)]


def stacked(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Text]:
    """The first columns are never broken, the one before the last is in the room that is left."""
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
