"""A board that is kept going while what makes it go is killed with -9, by a seed.

    python -m tests.support.board_chaos --kills 300 --seed 1 --seed 2

A kill is a victim and a moment. The moment is a step of some run, as the board's log and the files of the
home show it, and a random delay after that, so that it falls on the step itself or before the next.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import background, daemons
from holdfast.board.rules.rows import TaskEvent
from holdfast.board.rules.transitions import TaskStatus
from tests.support import proc
from tests.support.board_aftermath import all_tasks, complaints, nudge, wrong
from tests.support.dispatch import Yard, own_yard
from tests.support.patience import patient
from tests.support.proc import Pid

ORPHAN_S: Final = patient(10.0)
AT_ONCE: Final = 4  # runs
FEWEST, MOST = 6, 10  # tasks that are not done, while killing goes on
MOMENT_S: Final = 4.0  # after that it is killed at whatever moment that is
LOOK_S: Final = 0.01  # between looks for the moment
NUDGE_S: Final = 0.3  # between changes that nobody but time would make
VICTIM_S: Final = patient(
    20.0
)  # for a victim that is not there at the moment: another was killed just before
LATER_S: Final = 0.25  # how long after the moment, at most
SETTLE_S: Final = patient(240.0)  # for the rest of the work once killing is over
MAX_EVENTS: Final = 500

# An exec server takes all workers with it, so that it is killed less often than others.
VICTIMS: Final = {"dispatcher": 5, "service": 4, "supervisor": 4, "worker": 5, "exec server": 2}

_HOLDFAST: Final = shlex.join([sys.executable, "-m", "holdfast", "handoff"])
_SAYS_WHO: Final = (
    r"""set -e; run=$(sed -n 's/.*"run":"\([^"]*\)".*/\1/p' .holdfast/run.json); echo $run >> effects; """
)
_REPORT: Final = (
    "{h} comment --id c-$run --channel {channel} $run; {more}"
    "{h} complete --id d-$run --channel {channel} $run; {h} complete --id d-$run --channel {channel} $run"
)
_TREE: Final = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000 & "
_EXIT: Final = _SAYS_WHO + "sleep 0.2; echo done"
_CHILD: Final = f"{_HOLDFAST} create --id n-$run --assignee script --body {shlex.quote(_EXIT)} child-$run; "


def _report(channel: str, more: str = "") -> str:
    return _SAYS_WHO + _REPORT.format(h=_HOLDFAST, channel=channel, more=more)


# Kind of task -> profile and script.
WORK: Final = {
    "exit": ("script", _EXIT),
    "exit-tree": ("script", _SAYS_WHO + _TREE + "sleep 0.2; echo done"),
    "socket": ("online", _report("auto")),
    "outbox": ("offline", _report("outbox")),
    "outbox-tree": ("offline", _SAYS_WHO + _TREE + _report("auto").removeprefix(_SAYS_WHO)),
    "parent": ("online", _report("auto", more=_CHILD)),
}


class Story:
    """What has happened so far, by moments of runs. Each is a set that only grows."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._after = 0
        self._events: list[TaskEvent] = []
        self._seen: dict[str, set[Hashable]] = {name: set() for name in MOMENTS}

    def read(self) -> None:
        while found := self._yard.store.events("b", after=self._after, limit=MAX_EVENTS):
            self._events += found
            self._after = found[-1].seq

    def told(self, *kinds: str) -> set[Hashable]:
        return {event.seq for event in self._events if event.kind in kinds}

    def files(self, pattern: str) -> set[Hashable]:
        return set(self._yard.home.glob(pattern))

    def effects(self) -> set[Hashable]:
        found: set[Hashable] = set()
        for path in self._yard.home.glob("board/*/effects"):
            with contextlib.suppress(OSError):
                found.add((path, path.stat().st_size))
        return found

    def happened(self, moment: str) -> bool:
        """Has it, since it was last asked?"""
        self.read()
        now = MOMENTS[moment](self)
        news = bool(now - self._seen[moment])
        self._seen[moment] |= now
        return news


# In the order of a run's life.
MOMENTS: Final[dict[str, Callable[[Story], set[Hashable]]]] = {
    "whenever": lambda story: {time.monotonic()},
    "claimed": lambda story: story.told("claim"),
    "workspace made": lambda story: story.files("board/t_*"),
    "marked": lambda story: story.files("board/runs/*"),
    "told where": lambda story: story.told("run_updated"),
    "worker starting": lambda story: story.files("workers/*"),
    "worker running": lambda story: story.effects(),
    "report in the outbox": lambda story: story.files("board/*/.holdfast/outbox/*.json"),
    "report carried out": lambda story: story.told("commented", "complete"),
    "keeping": lambda story: story.told("kept"),
    "end told": lambda story: story.told("complete", "wait"),
}


class Rampage:
    """One board and one seed. `kills` counts by victim and moment."""

    def __init__(self, yard: Yard, seed: int) -> None:
        self.yard = yard
        self.kills: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._dice = random.Random(seed)  # noqa: S311 - a schedule
        self._story = Story(yard)
        self._dispatcher: subprocess.Popen[bytes] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._made = 0
        self._nudge_at = 0.0
        for name, network in (("online", True), ("offline", False)):
            yard.profile(name, agent="shell", prompt="{body}", network=network)

    async def rage(self, kills: int) -> None:
        """Kill this often, let all work come to its end, and look what is wrong."""
        try:
            while self.kills.total() < kills:
                await self._kill_somebody()
            await self._settle()
        finally:
            self._end_dispatcher()
            await asyncio.gather(*self._watching)

    # --- the board

    def _keep_going(self, *, more: bool = True) -> int:
        """How many tasks are not done."""
        if time.monotonic() > self._nudge_at:
            nudge(self.yard)
            self._nudge_at = time.monotonic() + NUDGE_S
        if self._dispatcher is None or self._dispatcher.poll() is not None:
            self._dispatcher = self._started()
        stats = self.yard.store.stats("b")
        left = sum(count for status, count in stats.tasks.items() if status != TaskStatus.DONE)
        if more and left < FEWEST:
            while left < MOST:
                left += self._create()
        return left

    def _create(self) -> int:
        kind = list(WORK)[self._made % len(WORK)]
        profile, script = WORK[kind]
        self.yard.create(script, title=kind, assignee=profile, max_attempts=100)
        self._made += 1
        return 1

    def _started(self) -> "subprocess.Popen[bytes]":
        words = ["dispatch", "--board", "b", "--store", self.yard.address, "--home", str(self.yard.home)]
        words += ["--max-load", "0", "--min-free-memory", "0"]
        with open(self.yard.folder / "dispatch.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "holdfast", *words, "--max", str(AT_ONCE)],
                env={"PATH": os.environ["PATH"], "HOME": str(self.yard.user)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _end_dispatcher(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.kill()
            self._dispatcher.wait()

    # --- the killing

    async def _kill_somebody(self) -> None:
        victim = self._dice.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        moment = self._dice.choice(list(MOMENTS))
        later, which = self._dice.uniform(0.0, LATER_S), self._dice.random()
        self._keep_going()
        self._story.happened(moment)  # what was before does not count
        until = time.monotonic() + MOMENT_S
        while not self._story.happened(moment):
            if time.monotonic() > until:
                moment = "whenever"
            self._keep_going()
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(later)
        until = time.monotonic() + VICTIM_S
        while not (killed := await self._killed(victim, which)) and time.monotonic() < until:
            self._keep_going()
            await asyncio.sleep(LOOK_S)
        self.kills[victim, moment] += killed

    async def _killed(self, victim: str, which: float) -> bool:
        home = self.yard.home
        match victim:
            case "dispatcher":
                process = None if self._dispatcher is None else proc.known(self._dispatcher.pid)
            case "service":
                hearing = daemons.find_by_role(home, daemons.DISPATCHER)  # who listens on the runs' sockets
                process = proc.known(hearing[0].process.pid) if hearing else None
            case "supervisor":
                process = proc.listener(background.supervisor_socket(home))
            case "exec server":
                process = proc.listener(home / "exec.sock")
            case _:
                found = proc.at_work_in(home / "board")
                process = found[int(which * len(found))] if found else None
        owned = proc.below(process.pid) if process is not None and victim == "exec server" else []
        if not proc.kill(process) or process is None:
            return False
        if await proc.gone([process], ORPHAN_S):
            self.wrong.append(f"the {victim} cannot be killed")
        if owned:
            watching = asyncio.get_running_loop().create_task(self._without_its_server(owned))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
        return True

    async def _without_its_server(self, owned: list[Pid]) -> None:
        left = await proc.gone(owned, ORPHAN_S)
        self.wrong += [f"process {one.pid} outlived its exec server by {ORPHAN_S:g} s" for one in left]

    # --- the end

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_S):
                while self._keep_going(more=False) or any((self.yard.home / "board" / "runs").iterdir()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.wrong.append(f"not all is done after {SETTLE_S:g} s")
        self._end_dispatcher()
        left = await proc.gone(proc.at_work_in(self.yard.home / "board"), ORPHAN_S)
        self.wrong += [f"process {one.pid} of a worker is left" for one in left]
        self.wrong += wrong(self.yard) + complaints(self.yard)

    def record(self) -> dict[str, object]:
        """What was done and found."""
        runs = Counter(run.outcome for task in all_tasks(self.yard) for run in self.yard.store.runs(task.id))
        by: dict[str, Counter[str]] = {"victims": Counter(), "moments": Counter()}
        for (victim, moment), count in self.kills.items():
            by["victims"][victim] += count
            by["moments"][moment] += count
        return {
            "kills": self.kills.total(),
            **{name: dict(sorted(counts.items())) for name, counts in by.items()},
            "tasks": len(all_tasks(self.yard)),
            "runs": {str(outcome): count for outcome, count in sorted(runs.items(), key=str)},
            "wrong": self.wrong,
        }


async def _seed(seed: int, kills: int) -> dict[str, object]:
    began = time.monotonic()
    async with own_yard() as yard:
        rampage = Rampage(yard, seed)
        await rampage.rage(kills)
        record = rampage.record()
    return {"seed": seed, **record, "seconds": round(time.monotonic() - began)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="of each seed")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--record", type=Path, help="where the results are written")
    asked = parser.parse_args()
    found = [asyncio.run(_seed(seed, asked.kills)) for seed in asked.seed or [1]]
    text = json.dumps({"schema": 1, "seeds": found}, indent=1) + "\n"
    if asked.record is not None:
        asked.record.write_text(text, "utf-8")
    sys.stdout.write(text)
    return any(one["wrong"] for one in found)


if __name__ == "__main__":
    sys.exit(main())
