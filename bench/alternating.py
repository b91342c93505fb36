"""python -m bench.alternating: this tree and an older one in turns: did a change make anything slower?

python -m bench.alternating --before ../old/.venv/bin/python --only confined-start [--times 9] [--record FILE]

Each turn is `python -m bench --quick --only …` with the interpreter that runs one of the trees, so both are
measured by the same code. What drifts on the machine drifts for both. A measure holds when the median of the
turns of this tree lies within the spread of the other's turns, or on the better side of it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.servers import RESULTS, ROOT, Side
from bench.table import MEASURES

TURN_WITHIN_S: Final = 900.0
HEAD: Final = """# Alternating runs

Made by `python -m bench.alternating`: an older tree and this one in turns, on one machine. The median of the
turns and, of the older tree, their spread.

| date (UTC) | before | after | turns | measure | before (spread) | after | |
|---|---|---|---:|---|---:|---:|---|
"""
Turns = list[float]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.alternating", description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help="interpreter of the older tree")
    names = [measure.name for measure in MEASURES]
    parser.add_argument("--only", action="append", choices=names, required=True, help="may be repeated")
    parser.add_argument("--times", type=int, default=9, help="turns of each tree (default 9)")
    parser.add_argument("--record", type=Path, help="add the rows to this file")
    return parser.parse_args()


def measure(python: str, names: Sequence[str]) -> Mapping[str, float]:
    """One turn: the p50 of each measure."""
    only = [word for name in names for word in ("--only", name)]
    subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--holdfast-only", "--ours-python", python, *only],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=TURN_WITHIN_S,
    )
    written = RESULTS / f"{'-'.join(names)}-quick-holdfast.json"
    found = json.loads(written.read_text("utf-8"))["samples"]
    return {name: found[name][Side.OURS]["p50"] for name in names}


def holds(before: Turns, after: Turns, *, lower: bool) -> bool:
    """Is it no worse than the older tree sometimes was?"""
    now = statistics.median(after)
    return now <= max(before) if lower else now >= min(before)


def find_head(python: str) -> str:
    """The commit of the tree that this interpreter's package is linked to."""
    code = "import holdfast, os; print(os.path.dirname(holdfast.__file__))"
    with tempfile.TemporaryDirectory() as nowhere:
        folder = subprocess.run(
            [python, "-c", code], cwd=nowhere, check=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()
    asked = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def main() -> int:
    options = arguments()
    sides = {"before": options.before, "after": sys.executable}
    turns: dict[str, dict[str, Turns]] = {side: {name: [] for name in options.only} for side in sides}
    for turn in range(options.times):
        for side, python in sides.items():
            for name, value in measure(python, options.only).items():
                turns[side][name].append(value)
        print(f"turn {turn + 1} of {options.times}", file=sys.stderr)
    heads = {side: find_head(python) for side, python in sides.items()}
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    lines, fine = [], True
    for one in (one for one in MEASURES if one.name in options.only):
        before, after = turns["before"][one.name], turns["after"][one.name]
        held = holds(before, after, lower=one.bars[0].better == "lower")
        fine = fine and held
        lines.append(
            f"| {now} | {heads['before']} | {heads['after']} | {options.times} | {one.title}, {one.unit} "
            f"| {statistics.median(before):.3g} ({min(before):.3g} to {max(before):.3g}) "
            f"| {statistics.median(after):.3g} | {'holds' if held else '**slower**'} |\n"
        )
    print("".join(lines), end="")
    if options.record:
        if not options.record.exists():
            options.record.write_text(HEAD, "utf-8")
        with options.record.open("a", encoding="utf-8") as record:
            record.writelines(lines)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
