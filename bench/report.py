"""Turns samples into rows, and rows into a table, a JSON file and a plot."""

import datetime
import importlib
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.contest import Rounds
from bench.servers import Side
from bench.table import Bar


class Subject(Protocol):
    """What a row says of its measure."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def bars(self) -> tuple[Bar, ...]: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One bar of one measure; what could not be measured is None."""

    measure: Subject
    bar: Bar
    rival: float | None
    ours: float | None

    @property
    def value(self) -> float | None:
        """What the bar is held against: the ratio, or our own number for a bar without a rival."""
        return self.ours if self.bar.rival is None else self.ratio

    @property
    def ratio(self) -> float | None:
        return self.ours / self.rival if self.ours is not None and self.rival else None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.bar.met(self.value)

    @property
    def title(self) -> str:
        suffix = f" (vs {self.bar.rival})" if self.bar.rival not in (None, Side.REFERENCE) else ""
        return f"{self.measure.title}{suffix}, {self.measure.unit}"


def quantile(samples: Sequence[float], part: float) -> float:
    """The smallest sample that at least `part` of all samples do not exceed."""
    return sorted(samples)[max(0, math.ceil(part * len(samples)) - 1)]


def median(rounds: Rounds, side: Side) -> float | None:
    samples = [sample for one in rounds.get(side, []) for sample in one]
    return statistics.median(samples) if samples else None


def rows(
    measures: Sequence[Subject], results: Mapping[str, Rounds], reference: Side = Side.REFERENCE
) -> list[Row]:
    """`reference` is shown beside a bar that is a number."""
    return [
        Row(
            measure,
            bar,
            rival=median(results[measure.name], bar.rival or reference),
            ours=median(results[measure.name], Side.OURS),
        )
        for measure in measures
        for bar in measure.bars
    ]


def table(lines: Sequence[Row]) -> str:
    cells = [["measure", "reference p50", "ours p50", "ratio", "bar", "met"]]
    for row in lines:
        met = "?" if row.met is None else "yes" if row.met else "NO"
        cells.append([row.title, number(row.rival), number(row.ours), number(row.ratio), str(row.bar), met])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    texts = []
    for line in cells:
        first, *others = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        texts.append("  ".join([first, *others]))
    texts.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(texts)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}"


def facts() -> dict[str, object]:
    """The machine, because a number without it says nothing."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


def summary(rounds: Rounds) -> dict[str, object]:
    return {
        side: {
            "p10": quantile(flat, 0.1),  # what a busy machine disturbs least
            "p50": statistics.median(flat),
            "p90": quantile(flat, 0.9),
            "samples": len(flat),
            "round_p50s": [statistics.median(one) for one in per_round],
        }
        for side, per_round in rounds.items()
        if (flat := [sample for one in per_round for sample in one])
    }


def document(
    lines: Sequence[Row], results: Mapping[str, Rounds], about: Mapping[str, object]
) -> dict[str, object]:
    return {
        "about": dict(about),
        "bars": [
            {
                "measure": row.measure.name,
                "unit": row.measure.unit,
                "against": row.bar.rival,
                "rival_p50": row.rival,
                "ours_p50": row.ours,
                "ratio": row.ratio,
                "bar": str(row.bar),
                "met": row.met,
            }
            for row in lines
        ],
        "samples": {name: summary(rounds) for name, rounds in results.items()},
    }


def write(directory: Path, stem: str, lines: Sequence[Row], content: Mapping[str, object]) -> list[Path]:
    """The files written; the plot is missing where matplotlib is."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers, picture = directory / f"{stem}.json", directory / f"{stem}.png"
    numbers.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    drawn = [row for row in lines if row.ratio is not None and row.bar.rival is not None]
    if not drawn:
        return [numbers]
    try:
        plot(picture, drawn)
    except ImportError:
        print("no plot: matplotlib is not installed (requirements/bench.in)", file=sys.stderr)
        return [numbers]
    return [numbers, picture]


def plot(path: Path, drawn: Sequence[Row]) -> None:
    """Ratios on a logarithmic axis, each with its bar as a black mark."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(drawn) + 1.5), layout="constrained")
    for place, row in enumerate(reversed(drawn)):
        axes.barh(place, (row.ratio or 1) - 1, left=1, color="tab:green" if row.met else "tab:red")
        axes.plot([row.bar.limit] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.set_xscale("log")
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(drawn)), [f"{row.title}  {row.bar}" for row in reversed(drawn)])
    axes.set_xlabel("ours / rival, same run (black: the bar)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
