"""Write docs/benchmarks.md and its plot from docs/records/benchmarks.json, and that from `make bench`.

python -m tools.benchmarks                         page and plot from what is recorded
python -m tools.benchmarks bench/results/RUN.json  first take the numbers of a run over into the record

A run names its measures by short names; a row of the record that has `measure` is replaced, others stay.
`against` says which rival of that measure a row is about, where it is not the table's own.
"""

import argparse
import html
import json
import math
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "docs" / "records" / "benchmarks.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PLOT: Final = ROOT / "docs" / "pictures" / "benchmarks.svg"
LEFT, BAR, LINE = 330, 420, 24  # pixels
INTRODUCTION: Final = """\
<!-- Made by `python -m tools.benchmarks`; do not edit. -->

# Benchmarks

`make bench` runs this server and the real `codex exec-server` side by side, round by round on the
same machine in the same minutes; `make bench-board` does so with the board and the real Hermes
Agent. Both write a table, JSON and a plot to `bench/results/`. What counts is the ratio: the
numbers are those of one machine.

![How many times faster](pictures/benchmarks.svg)
"""
REMARKS: Final = """\
## What the numbers do not say

- `exec` is measured in a folder of its own. Inside the checkout that Holdfast is imported from it takes
  half as long again: the command may write there, so everything is loaded before it starts. In 0.1.0
  it took 6.6 times as long as `codex sandbox -- true`, and `serve` was ready 12 times later than
  `codex exec-server`.
- How `exec` and `codex sandbox` compare depends on the machine. This table's took 0.67 times as long in
  two runs; on slower ones commits of the same release took 0.90 to 1.12 times as long in eight runs.
- Eight processes that write to one board of Hermes 0.19.0 at once are all told that they succeeded,
  and the file has none of it afterwards; six of them win the same task. Here everything that was
  acknowledged is in the file, and one wins. The row above compares with a Hermes without the check
  that makes it lose its locks.
- Create, claim, complete and a page cost the same with 50,000 tasks as with 1,000: at most 1.12
  times on SQLite, 1.10 on PostgreSQL.
"""


class Row(NamedTuple):
    what: str
    unit: str
    rival: float
    ours: float
    better: str
    measure: str = ""
    against: str = ""

    @property
    def factor(self) -> float:
        """How many times better; below 1 the rival is."""
        return self.rival / self.ours if self.better == "lower" else self.ours / self.rival

    @property
    def word(self) -> str:
        if self.unit == "MiB":
            return f"{number(self.factor)} times smaller"
        pair = ("faster", "slower")
        return f"{number(max(self.factor, 1 / self.factor))} times {pair[self.factor < 1]}"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def read(record: Path = RECORD) -> tuple[str, dict[str, list[Row]]]:
    """What it is about, and the rows by rival."""
    tree: dict[str, Any] = json.loads(record.read_text("utf-8"))
    return tree.pop("about"), {rival: [Row(**row) for row in rows] for rival, rows in tree.items()}


def page(about: str, tables: dict[str, list[Row]]) -> str:
    parts = [INTRODUCTION, f"{about}.\n"]
    for rival, rows in tables.items():
        parts.append(f"## Beside {rival}\n")
        lines = [f"| | {rival.partition(',')[0]} | Holdfast | |", "|---|---:|---:|---:|"]
        lines += [
            f"| {row.what} | {row.rival:g} {row.unit} | {row.ours:g} {row.unit} | **{row.word}** |"
            for row in rows
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, REMARKS])


def plot(tables: dict[str, list[Row]]) -> str:
    """Bars on a logarithmic axis; to the right of the line we are ahead."""
    rows = [row for each in tables.values() for row in each]
    most = math.log10(max(row.factor for row in rows))
    least = min(0.0, math.log10(min(row.factor for row in rows)))
    width, height = LEFT + BAR + 140, LINE * (len(rows) + 2)

    def across(factor: float) -> float:
        return LEFT + BAR * (math.log10(factor) - least) / (most - least)

    drawn = []
    for place, row in enumerate(rows):
        y = LINE * (place + 1)
        start, end = sorted((across(1), across(row.factor)))
        colour = "#2da44e" if row.factor >= 1 else "#cf222e"
        drawn += [
            f'<text x="{LEFT - 12}" y="{y + 16}" text-anchor="end">{html.escape(row.what)}</text>',
            f'<rect x="{start:.1f}" y="{y + 4}" width="{max(end - start, 1):.1f}" height="{LINE - 8}" '
            f'rx="3" fill="{colour}"/>',
            f'<text x="{end + 8:.1f}" y="{y + 16}">{row.word}</text>',
        ]
    line = f'<line x1="{across(1):.1f}" y1="{LINE}" x2="{across(1):.1f}" y2="{height - LINE}" stroke="#888"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            "<title>How many times faster Holdfast is, on a logarithmic axis</title>",
            "<style>text{font:13px system-ui,sans-serif;fill:#57606a}</style>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *drawn,
            line,
            "</svg>\n",
        ]
    )


def take_over(record: dict[str, Any], run: dict[str, Any]) -> None:
    """The medians of a run into those rows of a record that name their measure."""
    bars = {
        (bar["measure"], bar["against"]): bar for bar in run["bars"] if bar["rival_p50"] and bar["ours_p50"]
    }
    for rival, rows in record.items():
        for row in rows if isinstance(rows, list) else ():
            against = row.get("against") or rival.partition(" ")[0].lower()
            if (bar := bars.get((row.get("measure"), against))) is not None:
                row |= {"rival": round(bar["rival_p50"], 3), "ours": round(bar["ours_p50"], 3)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("runs", nargs="*", type=Path)
    for run in options.parse_args().runs:
        tree = json.loads(RECORD.read_text("utf-8"))
        take_over(tree, json.loads(run.read_text("utf-8")))
        RECORD.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", "utf-8")
    about, tables = read()
    PAGE.write_text(page(about, tables), "utf-8")
    PLOT.write_text(plot(tables), "utf-8")


if __name__ == "__main__":
    main()
