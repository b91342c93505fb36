"""Runs the measures in turns: a round of a measure visits every contestant before the next round begins."""

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bench import fixtures, swerex
from bench.client import Failed
from bench.measures import LIGHT, Contest, Plan, spawn_floor
from bench.servers import Server, Side, Spec, profiled, running
from bench.table import Measure

# samples of one measure: contestant → one list per round
Rounds: TypeAlias = dict[Side, list[list[float]]]
Rivals: TypeAlias = Mapping[Side, Callable[[Plan], list[float]]]


class Outcome(NamedTuple):
    rounds: dict[str, Rounds]
    failures: list[str]


@contextlib.contextmanager
def contestants(
    specs: Sequence[Spec], plan: Plan, profile_dir: Path | None, *, with_swerex: bool
) -> Iterator[tuple[list[Contest], Rivals]]:
    """Every server up and every file made, until the end of the block."""
    with contextlib.ExitStack() as stack:
        # Not in /tmp: the reference cannot confine anything when its home is there. Not in this checkout:
        # nobody's commands run in the folder that Holdfast itself is imported from.
        scratch = tempfile.TemporaryDirectory(
            prefix="holdfast-bench-", dir="/var/tmp", ignore_cleanup_errors=True
        )
        root = Path(stack.enter_context(scratch))
        made = fixtures.make(subdirectory(root, "files"))
        contests = []
        for spec in specs:
            watched = spec
            if profile_dir is not None and spec.side is Side.OURS:
                watched = profiled(spec, profile_dir)
            server = stack.enter_context(running(watched, subdirectory(root, f"home-{spec.side}")))
            home = subdirectory(root, f"launch-{spec.side}")
            contests.append(Contest(Server(spec, server.pid, server.url), plan, made, home))
        rivals: dict[Side, Callable[[Plan], list[float]]] = {Side.FLOOR: spawn_floor}
        if with_swerex:
            try:
                client = stack.enter_context(swerex.running(subdirectory(root, "home-swerex")))
            except Failed as error:
                print(f"SWE-ReX is left out: {error}", file=sys.stderr)
            else:
                rivals[Side.SWEREX] = client.execute_true
        yield contests, rivals


def subdirectory(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir()
    return path


def run(measures: Sequence[Measure], contests: Sequence[Contest], rivals: Rivals) -> Outcome:
    outcome = Outcome({}, [])
    for measure in measures:
        print(f"… {measure.name}", file=sys.stderr, flush=True)
        rounds: Rounds = {}
        able = [contest for contest in contests if takes_part(measure, contest)]
        if measure.warms:
            able = [contest for contest in able if attempt(measure, warm_up(contest), outcome) is not None]
        for _ in range(1 if measure.once else contests[0].plan.rounds):
            for contest in able:
                if (samples := attempt(measure, contest, outcome)) is not None:
                    rounds.setdefault(contest.server.spec.side, []).append(samples)
                if contest.server.spec.side is not Side.OURS:
                    continue
                for side, run_it in measure.beside.items():
                    if (samples := attempt(measure._replace(run=run_it), contest, outcome)) is not None:
                        rounds.setdefault(side, []).append(samples)
            if measure.name == "start":
                for side, sample in rivals.items():
                    rounds.setdefault(side, []).append(sample(contests[0].plan))
        outcome.rounds[measure.name] = rounds
    return outcome


def takes_part(measure: Measure, contest: Contest) -> bool:
    return not measure.ours_only or contest.server.spec.side is Side.OURS


def warm_up(contest: Contest) -> Contest:
    return dataclasses.replace(contest, plan=LIGHT)


def attempt(measure: Measure, contest: Contest, outcome: Outcome) -> list[float] | None:
    """One round's samples; a failure is noted and spoils nothing but itself."""
    try:
        return measure.run(contest)
    except (Failed, OSError) as error:
        outcome.failures.append(f"{measure.name} on {contest.server.spec.side}: {error}")
        return None
