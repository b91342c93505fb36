"""Processes of one side at one board: started together, listened to, and what they did looked at later."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.client import Failed
from bench.servers import ROOT, Side, environment

SCRIPT: Final = ROOT / "bench" / "boardside.py"
WITHIN_S: Final = 300.0  # one round of one crowd; beyond it something hangs


@dataclass(frozen=True, slots=True)
class Player:
    """A side with its interpreter and a home of its own."""

    side: Side
    python: Path
    home: Path

    def environment(self) -> dict[str, str]:
        return environment(self.home) | {"HERMES_HOME": os.fspath(self.home)}


class Written(NamedTuple):
    """What a crowd of writers did to one file."""

    operations: int  # acknowledged
    kept: int  # of those that are in the file afterwards
    seconds: float
    sound: bool
    errors: Counter[str]

    @property
    def kept_per_s(self) -> float:
        return self.kept / self.seconds

    @property
    def lost_percent(self) -> float:
        return 100 * (self.operations - self.kept) / self.operations if self.operations else 100.0


def ours(home: Path) -> Player:
    return Player(Side.OURS, Path(sys.executable), home)


def said(player: Player, file: str, verb: str, count: int, *, processes: int = 1) -> list[dict[str, Any]]:
    """What each of them said at its end.

    Raises:
        Failed: one of them did not get through.
    """
    with _started(player, file, verb, count, processes) as members:
        for member in members:
            assert member.stdin is not None
            member.stdin.write("\n")
            member.stdin.flush()
        with ThreadPoolExecutor(processes) as readers:
            outputs = list(readers.map(_output, members))
    return [json.loads(output) for output in outputs]


def write(player: Player, file: str, count: int, *, processes: int) -> Written:
    """So many tasks made, claimed and completed by each, and what is left of them."""
    spoken = said(player, file, "write", count, processes=processes)
    acknowledged = [(verb, task) for one in spoken for verb, tasks in one["ids"].items() for task in tasks]
    sound, tasks = look(player, file)
    fine = {"create": None, "claim": {"running", "done"}, "complete": {"done"}}
    kept = sum(
        task in tasks and (fine[verb] is None or tasks[task] in fine[verb])  # type: ignore[operator]
        for verb, task in acknowledged
    )
    took = max(one["ended"] for one in spoken) - min(one["began"] for one in spoken)
    errors: Counter[str] = sum((Counter(one["errors"]) for one in spoken), Counter())
    return Written(len(acknowledged), kept, took, sound, errors)


def look(player: Player, file: str) -> tuple[bool, dict[str, str]]:
    """Whether the file is sound, and the tasks in it; one that cannot be opened is neither."""
    try:
        [found] = said(player, file, "look", 0)
    except (Failed, json.JSONDecodeError):
        return False, {}
    return bool(found["sound"]), found["tasks"]


def wins_per_task(player: Player, file: str, tasks: int, *, processes: int) -> float:
    """How many of those that race for each task are told that they have it."""
    said(player, file, "ready", tasks)
    spoken = said(player, file, "race", 0, processes=processes)
    return sum(len(one["ids"]["claim"]) for one in spoken) / tasks


@contextlib.contextmanager
def _started(
    player: Player, file: str, verb: str, count: int, processes: int
) -> Iterator[Sequence["subprocess.Popen[str]"]]:
    command = [os.fspath(player.python), "-P", os.fspath(SCRIPT), player.side, file, verb, str(count)]
    members = [
        subprocess.Popen(
            command,
            env=player.environment(),
            cwd=player.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(processes)
    ]
    try:
        for member in members:
            assert member.stdout is not None
            if member.stdout.readline() != "here\n":
                raise Failed(f"{player.side} did not open {file}: {_output(member)}")
        yield members
    finally:
        for member in members:
            member.kill()
            member.communicate()


def _output(member: "subprocess.Popen[str]") -> str:
    try:
        output, errors = member.communicate(timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished within {WITHIN_S:g} s") from None
    if member.returncode != 0:
        raise Failed(errors[-1000:])
    return output


def command_ms(argv: Sequence[str], env: dict[str, str], count: int) -> list[float]:
    """How long a command takes from its start to its end."""
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        samples.append((time.perf_counter() - began) * 1e3)
        if done.returncode != 0:
            raise Failed(done.stderr[-1000:])
    return samples
