"""python -m bench: our exec server against the reference, measured in turns."""

import argparse
import dataclasses
import math
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from bench import contest, report
from bench.client import Failed
from bench.measures import Plan
from bench.servers import RESULTS, ROOT, Side, Spec, find_codex, ours, reference, version
from bench.table import MEASURES, Measure

LAUNCHES: Final = 10  # of each server, over all rounds
MAX_ROUNDS: Final = 100


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"rounds per measure (default {Plan().rounds})")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller rounds, for a first impression"
    )
    names = [measure.name for measure in MEASURES]
    parser.add_argument("--only", action="append", choices=names, help="only this measure; may be repeated")
    parser.add_argument("--holdfast-only", action="store_true", help="without the reference and SWE-ReX")
    parser.add_argument("--ours-python", default=sys.executable, help="interpreter that runs our server")
    parser.add_argument("--codex", help="reference binary (default: CODEX_BIN, .codex/, PATH)")
    parser.add_argument(
        "--profile-dir", type=Path, help="run our server under cProfile; numbers do not count"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed or was not measured")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    if options.rounds is not None:
        plan = dataclasses.replace(plan, rounds=min(max(1, options.rounds), MAX_ROUNDS))
    return dataclasses.replace(plan, launches=math.ceil(LAUNCHES / plan.rounds))


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, leave)
    try:
        return measured(options)
    except Failed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def leave(number: int, _frame: FrameType | None) -> None:
    """Lets the clean-up of every open block run."""
    raise SystemExit(128 + number)


def measured(options: argparse.Namespace) -> int:
    plan = plan_of(options)
    chosen: list[Measure] = [
        measure for measure in MEASURES if not options.only or measure.name in options.only
    ]
    about = {
        **report.facts(),
        "plan": dataclasses.asdict(plan),
        "ours_python": python_version(options.ours_python),
    }
    specs: list[Spec] = []
    if not options.holdfast_only:
        codex = find_codex(options.codex)
        about["codex"] = version(codex)
        specs.append(reference(codex))
    specs.append(ours(options.ours_python))
    if options.profile_dir is not None:
        options.profile_dir.mkdir(parents=True, exist_ok=True)
    with_swerex = not options.holdfast_only and any(measure.name == "start" for measure in chosen)
    with contest.contestants(
        specs, plan, options.profile_dir and options.profile_dir.resolve(), with_swerex=with_swerex
    ) as (contests, rivals):
        outcome = contest.run(chosen, contests, rivals)
    results = outcome.rounds
    lines = report.rows(chosen, results)
    print(report.table(lines))
    if (floor := report.median(results.get("start", {}), Side.FLOOR)) is not None:
        print(f"for context: posix_spawn of /bin/true until its end, p50 {report.number(floor)} ms")
    for failure in outcome.failures:
        print(f"not measured: {failure}")
    for path in report.write(RESULTS, stem_of(options), lines, report.document(lines, results, about)):
        print(f"wrote {path.relative_to(ROOT)}")
    if outcome.failures:
        return 2
    return 1 if options.check and not all(row.met for row in lines) else 0


def stem_of(options: argparse.Namespace) -> str:
    """A partial run must not overwrite the files of a full one."""
    given = {"quick": options.quick, "holdfast": options.holdfast_only, "profiled": options.profile_dir}
    return "-".join([*(options.only or ["all"]), *(name for name, on in given.items() if on)])


def python_version(python: str) -> str:
    done = subprocess.run([python, "-VV"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
