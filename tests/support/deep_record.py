"""What a run of the deep tests did, kept in a file: `pytest -m deep --record-deep docs/records/deep.json`."""

import datetime
import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

KEPT: Final = 20  # runs in the file; older ones are in the history of the repository
ROOT: Final = Path(__file__).resolve().parents[2]


class DeepRecord:
    """Counts tests by their outcome, and what they say they did with `record_property`.

    A number is added up; a list of milliseconds and what they were needed for is a time, of which the longest
    is kept. `of` says which tests were asked for, if not all.
    """

    def __init__(self, file: Path, of: str = "") -> None:
        self._file = file
        self._of = of
        self._head = head()  # of what is tried: at the end somebody may have gone on
        self._begun = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._did: Counter[str] = Counter()
        self._slowest: dict[str, list[Any]] = {}
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if isinstance(report, pytest.SubtestReport):
            return  # its test fails too
        if report.when == "call" or not report.passed:
            self._outcomes["failed" if report.failed else report.outcome] += 1
        if report.failed:
            self._failed[report.nodeid.rpartition("::")[2]] = str(report.longrepr).strip().splitlines()[-1]
        if report.when == "teardown":  # has what setup and call said as well
            for name, value in report.user_properties:
                if isinstance(value, int):
                    self._did[name] += value
                elif isinstance(value, list):
                    self._slowest[name] = max(value, self._slowest.get(name, value))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        entry = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
            "head": self._head,
            "of": self._of,
            "outcome": "green" if exitstatus == 0 else "red",
            "tests": dict(sorted(self._outcomes.items())),
            "did": dict(sorted(self._did.items())),
            "slowest": dict(sorted(self._slowest.items(), key=lambda named: -named[1][0])),
            "failed": self._failed,
            "seconds": round(time.monotonic() - self._begun),
        }
        self._file.write_text(json.dumps(added(entry, self._read()), indent=1) + "\n", "utf-8")

    def _read(self) -> list[dict[str, Any]]:
        if not self._file.exists():
            return []
        runs: list[dict[str, Any]] = json.loads(self._file.read_text("utf-8"))["runs"]
        return runs


def added(entry: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The file's content with this run as the last. What was run again since goes first, then the oldest."""
    kept = [*runs, entry]
    while len(kept) > KEPT:
        newest = {one["of"]: number for number, one in enumerate(kept)}
        again = [number for number, one in enumerate(kept) if newest[one["of"]] != number]
        del kept[again[0] if again else 0]
    return {"schema": 1, "runs": kept}


def head() -> str:
    """Which commit was tried, and whether something was changed since."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "not a git checkout"
