"""Run all of `.ci/run` in a fresh clone of the last commit, and write down how it went.

python -m tools.whole_run [--place FOLDER] [--busy N] [--times N]

FOLDER is where clones are made [default: a new folder in the home directory, mode 0700]; each is removed when
its run is over. With --busy N processes that never rest keep the machine busy. Each run adds a line to
docs/records/whole-runs.md: a run that fails is written down like any other, with what failed.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "docs" / "records" / "whole-runs.md"
HEAD: Final = """# Whole runs

Each line is one `.ci/run` in a fresh clone, by `python -m tools.whole_run`: static checks, every test of
`make test`, generated pages. "Busy" is the number of processes that never rest beside it.

| date (UTC) | head | cores | busy | seconds | of that tests | outcome |
|---|---|---:|---:|---:|---:|---|
"""
LIMIT_S: Final = 5400  # a run that takes longer is no run any more
BUSY: Final = [sys.executable, "-c", "while True: pass"]
_SUMMARY: Final = re.compile(r"^=* ?((?:\d+ \w+,? ?)+) in ([\d.]+)s", re.MULTILINE)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    started = [subprocess.Popen(BUSY) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def clone(place: Path) -> Iterator[Path]:
    """A fresh one; the agent CLIs, which are fetched by digest, are taken from here if they are here."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-run-", dir=place))
    try:
        made = folder / "holdfast"
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(made)], check=True)
        if (clis := ROOT / ".agents-cli").is_dir():
            subprocess.run(["cp", "-al", str(clis), str(made / ".agents-cli")], check=True)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(place: Path, busy: int) -> bool:
    """Whether it passed."""
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    began = datetime.now(UTC)
    with clone(place) as checkout, neighbours(busy), tempfile.TemporaryFile() as output:
        since = time.monotonic()
        done = subprocess.run(
            ["bash", ".ci/run"],
            cwd=checkout,
            env={**os.environ, "CI": "true"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        took_s = time.monotonic() - since
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    found = _SUMMARY.findall(said)
    counts, tests_s = found[-1] if found else ("no tests", "0")
    words = counts.strip()
    if done.returncode != 0:
        failed = ", ".join(dict.fromkeys(_FAILED.findall(said))) or said.strip().splitlines()[-1][:200]
        words = f"**failed**: {words}; {failed}"
        sys.stderr.write(said[max(0, said.find("= FAILURES =")) :])
    if not RECORD.exists():
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(HEAD, "utf-8")
    row = (f"{began:%Y-%m-%d %H:%M}", head, os.cpu_count(), busy, round(took_s), round(float(tests_s)), words)
    with RECORD.open("a", encoding="utf-8") as record:
        record.write(f"| {' | '.join(map(str, row))} |\n")
    print(*row, sep="  ", flush=True)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--times", type=int, default=1)
    asked = parser.parse_args()
    place = asked.place or Path(tempfile.mkdtemp(prefix="whole-runs-", dir=Path.home()))
    try:
        passed = [run(place, asked.busy) for _ in range(asked.times)]
    finally:
        if asked.place is None:
            shutil.rmtree(place, ignore_errors=True)
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
