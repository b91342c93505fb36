"""python -m bench.board: our board beside that of the real Hermes Agent, and a large one beside a small."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench import boardcrowd, boardscale, report
from bench.boardcrowd import Player
from bench.client import Failed
from bench.contest import Rounds
from bench.servers import RESULTS, ROOT, Side
from bench.table import Bar, higher, lower
from tools import get_hermes

CROWD: Final = 8


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    calls: int = 100  # of each verb, in a round
    starts: int = 4
    writes: int = 60  # tasks that each process of a crowd makes, claims and completes
    races: int = 100
    large: int = 50_000


QUICK: Final = Plan(rounds=2, calls=40, starts=3, writes=25, races=30, large=10_000)


class Subject(NamedTuple):
    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]


BESIDE: Final = (lower(1, Side.HERMES),)
SUBJECTS: Final = (
    Subject("create", "create", "ms", BESIDE),
    Subject("claim", "claim", "ms", BESIDE),
    Subject("complete", "complete", "ms", BESIDE),
    Subject("page", "list page of 50", "ms", BESIDE),
    Subject("start-list", "command: list", "ms", (lower(150, None), lower(1, Side.HERMES))),
    Subject("start-create", "command: create", "ms", (lower(150, None), lower(1, Side.HERMES))),
    Subject("write-1", "1 process, kept", "writes/s", (higher(1, Side.HERMES), higher(1, Side.MENDED))),
    Subject(
        f"write-{CROWD}",
        f"{CROWD} processes, kept",
        "writes/s",
        (higher(5, Side.HERMES), higher(1, Side.MENDED)),
    ),
    # What the peer says it wrote, into files that are gone, is not speed; it is shown all the same.
    Subject(f"said-{CROWD}", f"{CROWD} processes, acknowledged", "writes/s", (higher(1, Side.HERMES),)),
    Subject("lost", f"{CROWD} processes, acknowledged and gone", "%", (lower(0, None),)),
    Subject("race", f"{CROWD} processes race", "winners per task", (lower(1, None),)),
    *(
        Subject(f"{kind}-{verb}", f"{kind}: {verb}, large board", "ms", (lower(1.5, Side.SMALL),))
        for kind in ("sqlite", "postgres")
        for verb in boardscale.VERBS
    ),
)


class Notes(NamedTuple):
    """What is told beside the numbers: files that were damaged, errors, what could not be measured."""

    facts: list[str]
    failures: list[str]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.board", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a smaller large board")
    parser.add_argument("--holdfast-only", action="store_true", help="without Hermes")
    parser.add_argument("--no-scale", action="store_true", help="without the large boards")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed or was not measured")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    plan = QUICK if options.quick else Plan()
    results: dict[str, Rounds] = {}
    notes = Notes([], [])
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="board-", dir=RESULTS, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        beside(plan, folder, results, notes, alone=options.holdfast_only)
        if not options.no_scale:
            for kind in ("sqlite", "postgres"):
                attempt(notes, kind, scale(plan, kind, folder, results))
    about = {**report.facts(), "plan": asdict(plan), "hermes": get_hermes.VERSION, "notes": notes.facts}
    chosen = [subject for subject in SUBJECTS if subject.name in results]
    lines = report.rows(chosen, results, Side.HERMES)
    print(report.table(lines))
    for text in [*notes.facts, *(f"not measured: {failure}" for failure in notes.failures)]:
        print(text)
    given = {"quick": options.quick, "holdfast": options.holdfast_only, "small": options.no_scale}
    stem = "-".join(["board", *(word for word, on in given.items() if on)])
    for path in report.write(RESULTS, stem, lines, report.document(lines, results, about)):
        print(f"wrote {path.relative_to(ROOT)}")
    if notes.failures:
        return 2
    return 1 if options.check and not all(row.met for row in lines) else 0


def beside(plan: Plan, folder: Path, results: dict[str, Rounds], notes: Notes, *, alone: bool) -> None:
    """Everything that both sides do, in turns."""
    players = [boardcrowd.ours(_made(folder, "ours"))]
    if not alone:
        python = get_hermes.installed() or get_hermes.install()
        players += [Player(side, python, _made(folder, side)) for side in (Side.HERMES, Side.MENDED)]
    both = [player for player in players if player.side is not Side.MENDED]
    for player in both:
        attempt(notes, f"board of {player.side}", prepared(player))
    for _ in range(plan.rounds):
        for player in both:
            attempt(notes, f"verbs of {player.side}", calls(plan, player, results))
            attempt(notes, f"commands of {player.side}", commands(plan, player, results))
        for player in players:
            attempt(notes, f"writers of {player.side}", writers(plan, player, results, notes))
    for player in players:
        attempt(notes, f"race of {player.side}", race(plan, player, results))


def attempt(notes: Notes, what: str, steps: Iterator[str]) -> None:
    """A failure is noted and spoils nothing but itself."""
    try:
        for step in steps:
            print(f"… {what}: {step}", file=sys.stderr, flush=True)
    except (Failed, OSError) as error:
        notes.failures.append(f"{what}: {error}")


def prepared(player: Player) -> Iterator[str]:
    """A board of a thousand tasks, and everything loaded once: bytecode is written, files are read."""
    yield "fill"
    boardcrowd.said(player, _file(player, "calls"), "fill", boardscale.SMALL)
    boardcrowd.said(player, _file(player, "calls"), "each", 5)
    for command in _commands(player).values():
        boardcrowd.command_ms(command, _environment(player), 1)


def calls(plan: Plan, player: Player, results: dict[str, Rounds]) -> Iterator[str]:
    yield f"{plan.calls} of each"
    [said] = boardcrowd.said(player, _file(player, "calls"), "each", plan.calls)
    if said["errors"]:
        raise Failed(f"{said['errors']}")
    for verb, samples in said["ms"].items():
        _add(results, verb, player.side, samples)


def commands(plan: Plan, player: Player, results: dict[str, Rounds]) -> Iterator[str]:
    """A command from its start to its end."""
    for name, command in _commands(player).items():
        yield name
        samples = boardcrowd.command_ms(command, _environment(player), plan.starts)
        _add(results, name, player.side, samples)


def _commands(player: Player) -> dict[str, list[str]]:
    if player.side is Side.OURS:
        program = str(player.python.parent / "holdfast")
        return {
            "start-list": [program, "task", "list", "--board", "b"],
            "start-create": [program, "task", "create", "x", "--board", "b"],
        }
    program = str(player.python.parent / "hermes")
    return {
        "start-list": [program, "kanban", "list"],
        "start-create": [program, "kanban", "create", "x", "--assignee", "coder"],
    }


def _environment(player: Player) -> dict[str, str]:
    file = _file(player, "calls")
    return player.environment() | {"HOLDFAST_STORE": file, "HERMES_KANBAN_DB": file}


def writers(plan: Plan, player: Player, results: dict[str, Rounds], notes: Notes) -> Iterator[str]:
    for processes in (1, CROWD):
        yield f"{processes}"
        name = f"write-{processes}"
        file = _file(player, f"{name}-{len(results.get(name, {}).get(player.side, []))}")
        boardcrowd.said(player, file, "ready", 1)  # the file is there before they come
        found = boardcrowd.write(player, file, plan.writes, processes=processes)
        _add(results, name, player.side, [found.kept_per_s])
        if processes == CROWD:
            _add(results, "lost", player.side, [found.lost_percent])
            _add(results, f"said-{CROWD}", player.side, [found.operations / found.seconds])
        if not found.sound or found.errors or found.kept < found.operations:
            notes.facts.append(
                f"{player.side}, {processes} processes: of {found.operations} acknowledged writes "
                f"{found.operations - found.kept} are gone; the file is "
                f"{'sound' if found.sound else 'DAMAGED'}; errors {dict(found.errors)}"
            )


def race(plan: Plan, player: Player, results: dict[str, Rounds]) -> Iterator[str]:
    yield f"{CROWD} processes"
    winners = boardcrowd.wins_per_task(player, _file(player, "race"), plan.races, processes=CROWD)
    _add(results, "race", player.side, [winners])


def scale(plan: Plan, kind: str, folder: Path, results: dict[str, Rounds]) -> Iterator[str]:
    yield f"fill {plan.large}"
    with boardscale.stage(kind, _made(folder, kind), plan.large) as stage:
        boardscale.measured(stage, plan.calls // 4)  # not counted
        for number in range(plan.rounds):
            yield f"round {number + 1}"
            for side, verbs in boardscale.measured(stage, plan.calls).items():
                for verb, samples in verbs.items():
                    _add(results, f"{kind}-{verb}", side, samples)


def _add(results: dict[str, Rounds], name: str, side: Side, samples: list[float]) -> None:
    results.setdefault(name, {}).setdefault(side, []).append(samples)


def _made(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


def _file(player: Player, name: str) -> str:
    return str(player.home / f"{name}.db")


if __name__ == "__main__":
    sys.exit(main())
