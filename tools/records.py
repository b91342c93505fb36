"""docs/records from what runs of the tests left behind.

python -m tools.records deep                     docs/records/deep.md, from deep.json beside it
python -m tools.records suite FILE.xml [WORDS]   docs/records/suite.md, from a run with --junitxml=FILE.xml;
                                                 WORDS are said about that run
"""

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.markdown import table

RECORDS: Final = Path(__file__).resolve().parent.parent / "docs" / "records"
SLOWEST: Final = 20
MODULES: Final = 20


def deep_page(told: dict[str, Any]) -> str:
    """What each recorded run of `make deep` did, the newest first."""
    rows = [
        (
            run["date"],
            f"`{run['head']}`",
            run.get("of") or "all",
            "; ".join((run["outcome"], *(f"{name}: {why}" for name, why in run.get("failed", {}).items()))),
            _counted(run["tests"]),
            _counted(run["did"]),
            ", ".join(
                f"{name} {took:,} ms ({what})" for name, (took, what) in run.get("slowest", {}).items()
            ),
            f"{run['seconds']} s",
        )
        for run in reversed(told["runs"])
    ]
    head = (
        "date (UTC)",
        "commit",
        "of",
        "outcome",
        "tests",
        "what they did",
        "the slowest (its seed)",
        "took",
    )
    return (
        "# Runs of `make deep`\n\n"
        "Made by `make deep`, which tries again and more often what `make test` tries once.\n\n"
        + table(head, rows)
        + "\n"
    )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


class Case(NamedTuple):
    module: str
    name: str
    seconds: float
    starts: int = 0  # processes


def cases(junit: str) -> list[Case]:
    """The test cases of a junit file."""
    return [
        Case(
            case.get("classname", ""),
            case.get("name", ""),
            float(case.get("time", "0")),
            sum(int(one.get("value", "0")) for one in case.iter("property") if one.get("name") == "starts"),
        )
        for case in ET.fromstring(junit).iter("testcase")  # noqa: S314 - likewise
    ]


def suite_page(found: list[Case], reasons: dict[str, str], about: str) -> str:
    """Where the time of a run went: by folder, by module, by test."""
    folders: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for case in found:
        folder = case.module.split(".")[1] if "." in case.module else case.module
        for counter, key in ((folders, folder), (modules, case.module)):
            counter[key] += case.seconds  # type: ignore[assignment]  # seconds are no integers
        number[folder] += 1
        number[case.module] += 1
    slowest = sorted(found, key=lambda case: -case.seconds)[:SLOWEST]
    return "\n\n".join(
        [
            "# Where the time of the tests goes",
            about,
            f"{len(found):,} tests, {sum(case.seconds for case in found):,.0f} s in all workers together; "
            f"{sum(case.starts > 0 for case in found):,} of them start processes, "
            f"{sum(case.starts for case in found):,} in all.",
            "## By folder",
            table(("folder", "tests", "seconds"), _summed(folders, number)),
            f"## The {MODULES} longest modules",
            table(("module", "tests", "seconds"), _summed(modules, number)[:MODULES]),
            f"## The {SLOWEST} slowest tests",
            table(
                ("seconds", "test", "why"),
                [
                    (f"{case.seconds:.1f}", f"`{case.module}::{case.name}`", reasons.get(_function(case), ""))
                    for case in slowest
                ],
            ),
        ]
    )


def _function(case: Case) -> str:
    return case.name.partition("[")[0]


def _summed(seconds: "Counter[str]", number: "Counter[str]") -> list[tuple[str, str, str]]:
    return [(f"`{name}`", str(number[name]), f"{total:.1f}") for name, total in seconds.most_common()]


def main(words: list[str]) -> int:
    match words:
        case ["deep"]:
            told = json.loads((RECORDS / "deep.json").read_text("utf-8"))
            (RECORDS / "deep.md").write_text(deep_page(told), "utf-8")
        case ["suite", junit, *about]:
            reasons = json.loads((RECORDS / "slow_tests.json").read_text("utf-8"))
            text = suite_page(cases(Path(junit).read_text("utf-8")), reasons, " ".join(about))
            (RECORDS / "suite.md").write_text(text + "\n", "utf-8")
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
