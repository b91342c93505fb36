"""A board that is kept going while its clock jumps and its disks are full or read-only, by a seed.

    python -m tests.support.board_faults --faults 20 --seed 1

The store and the home are file systems of their own, small ones in memory, in mounts that only this process
and what it starts can see; so an ordinary user can do this, too. Full is real: every byte is taken. Read-only
is a mount in front, so that whatever is opened meanwhile can only be read, also by a dispatcher that starts
then.
A dispatcher is never started again because of a fault: it has to go on by itself.
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.board.database.database import Transaction
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.errors import Unreachable
from holdfast.sandbox.kernel import kernel, namespaces
from tests.support import faked_clock
from tests.support.board_aftermath import all_tasks, complaints, wrong
from tests.support.board_chaos import MOMENTS, WORK, Story
from tests.support.dispatch import PLACE, Yard, end_daemons
from tests.support.patience import patient

AT_ONCE: Final = 4  # runs
FEWEST, MOST = 3, 5  # tasks that are not done, while faults go on
STORE_BYTES, HOME_BYTES = 24 << 20, 48 << 20
MOMENT_S: Final = 4.0  # after that the fault comes at whatever moment that is
LOOK_S: Final = 0.02
SHORTEST_S, LONGEST_S = 0.2, 2.5  # how long a disk is at fault: also longer than three tries
SETTLE_S: Final = patient(120.0)
MAX_SAID: Final = 6000  # of a log, in characters
HOURS_S: Final = 3 * 3600
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 0x1, 0x20, 0x1000
_MNT_DETACH: Final = 2

CLOCK: Final = ("clock ahead", "clock back")
FAULTS: Final = (*CLOCK, "store full", "store read-only", "home full", "home read-only")

_mount = kernel.named(
    "mount", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p
)
_umount = kernel.named("umount2", ctypes.c_char_p, ctypes.c_int)


def own_mounts() -> None:
    """Mounts of our own from now on; an ordinary user gets a user namespace for that, as who it is."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        kernel.unshare(kernel.CLONE_NEWUSER)
        namespaces.map_ids(uid=uid, gid=gid)
    kernel.unshare(kernel.CLONE_NEWNS)
    _mount(None, b"/", None, 1 << 18 | 1 << 14, None)  # private, and all below


class Disk:
    """A file system of so many bytes at a directory."""

    def __init__(self, place: Path, size: int) -> None:
        self._place = place
        _mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, f"size={size},mode=0700".encode())

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        filler = self._place / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                for size in (1 << 16, 1 << 12, 1):
                    with contextlib.suppress(OSError):
                        while file.write(bytes(size)):
                            pass
            yield
        finally:
            filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        place = os.fsencode(self._place)
        _mount(place, place, None, _MS_BIND | 1 << 14, None)
        try:
            _mount(None, place, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None)
            yield
        finally:
            _umount(place, _MNT_DETACH)


class FaultyYard(Yard):
    """A yard on two small disks, whose clock can be set."""

    def __init__(self, folder: Path) -> None:
        self.store_disk = Disk(folder, STORE_BYTES)
        (folder / "h").mkdir(mode=0o700)
        self.home_disk = Disk(folder / "h", HOME_BYTES)
        super().__init__(folder)
        self.store.close()
        self.wrong_s = 0
        self.store = open_store(self.address, clock=self._now_ms)

    def _now_ms(self) -> int:
        return (time.time_ns() // 1_000_000) + self.wrong_s * 1000


class Trouble:
    """One board and one seed. `faults` counts by kind and moment."""

    def __init__(self, yard: FaultyYard, seed: int, clock: Path) -> None:
        self.yard = yard
        self.faults: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._dice = random.Random(seed)  # noqa: S311 - a schedule
        self._story = Story(yard)
        self._clock = clock
        self._log = clock.parent / "dispatch.log"
        self._library = faked_clock.library()
        self._dispatcher: subprocess.Popen[bytes] | None = None
        self._made = 0
        faked_clock.set_clock(clock, 0)
        for name, network in (("online", True), ("offline", False)):
            yard.profile(name, agent="shell", prompt="{body}", network=network)

    async def trouble(self, faults: int, wanted: Sequence[str] = FAULTS) -> None:
        """So many faults, each kind in turn; let all work come to its end, and look what is wrong."""
        kinds = [kind for kind in wanted if self._library is not None or kind not in CLOCK]
        try:
            self._start_dispatcher()
            await self._until_work_is_done()
            for number in range(faults):
                if number % len(kinds) == 0:
                    self._dice.shuffle(kinds)
                await self._make_fault(kinds[number % len(kinds)])
            await self._settle()
        finally:
            self._end_dispatcher()

    async def _until_work_is_done(self) -> None:
        """A daemon that cannot even begin says so and ends; here they have begun."""
        async with asyncio.timeout(SETTLE_S):
            while not self._story.happened("end told"):
                self._keep_going()
                await asyncio.sleep(LOOK_S)

    # --- the board

    def _keep_going(self, *, more: bool = True) -> int:
        """How many tasks are not done; while the store is at fault, as many as before."""
        try:
            self._nudge()
            stats = self.yard.store.stats("b")
            left = sum(count for status, count in stats.tasks.items() if status != TaskStatus.DONE)
            if more and left < FEWEST:
                while left < MOST:
                    left += self._create()
            return left
        except Unreachable:
            return MOST
        finally:
            if self._dispatcher is not None and self._dispatcher.poll() is not None:
                said = self._log.read_text("utf-8", "replace")[-MAX_SAID:]
                self.wrong.append(f"the dispatcher has ended: {self._dispatcher.returncode}: {said}")
                self._start_dispatcher()

    def _nudge(self) -> None:
        def sooner(tx: Transaction) -> None:
            tx.select("UPDATE tasks SET wake_ms = 1 WHERE status = 'waiting_system' AND wake_ms > 1", {})

        self.yard.store.database.write(sooner)

    def _create(self) -> int:
        kind = list(WORK)[self._made % len(WORK)]
        profile, script = WORK[kind]
        self.yard.create(script, title=kind, assignee=profile, max_attempts=100)
        self._made += 1
        return 1

    def _start_dispatcher(self) -> None:
        words = ["dispatch", "--board", "b", "--store", self.yard.address, "--home", str(self.yard.home)]
        words += ["--max-load", "0", "--min-free-memory", "0", "--max", str(AT_ONCE)]
        faked = faked_clock.environment(self._library, self._clock) if self._library is not None else {}
        path = {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        with self._log.open("ab") as log:
            self._dispatcher = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.support.faked_clock", *words],
                env={"PATH": os.environ["PATH"], "HOME": str(self.yard.user), **path, **faked},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _end_dispatcher(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.kill()
            self._dispatcher.wait()

    # --- the faults

    async def _make_fault(self, kind: str) -> None:
        moment = self._dice.choice(list(MOMENTS))
        lasts_s = self._dice.uniform(SHORTEST_S, LONGEST_S)
        self._keep_going()
        self._story.happened(moment)  # what was before does not count
        until = time.monotonic() + MOMENT_S
        while not self._story.happened(moment):
            if time.monotonic() > until:
                moment = "whenever"
            self._keep_going()
            await asyncio.sleep(LOOK_S)
        async with self._fault(kind):
            await self._last(lasts_s)
        self.faults[kind, moment] += 1

    @contextlib.asynccontextmanager
    async def _fault(self, kind: str) -> AsyncIterator[None]:
        what, _, how = kind.partition(" ")
        if what == "clock":
            self.yard.wrong_s += HOURS_S if how == "ahead" else -HOURS_S
            faked_clock.set_clock(self._clock, self.yard.wrong_s)
            yield
            return
        disk = self.yard.store_disk if what == "store" else self.yard.home_disk
        with disk.full() if how == "full" else disk.read_only():
            if kind == "store read-only":  # what has the file open can write it: let another open it
                self._end_dispatcher()
                self._start_dispatcher()
            yield

    async def _last(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._keep_going()
            await asyncio.sleep(LOOK_S)

    # --- the end

    async def _settle(self) -> None:
        marks = self.yard.home / "board" / "runs"
        try:
            async with asyncio.timeout(SETTLE_S):
                while self._keep_going(more=False) or any(marks.iterdir()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.wrong.append(f"not all is done after {SETTLE_S:g} s")
        self._end_dispatcher()
        self.wrong += wrong(self.yard) + complaints(self.yard)
        log = self._log.read_text("utf-8", "replace")
        if "Traceback" in log:
            self.wrong.append(f"dispatch.log: {log[log.find('Traceback') - 300 :][:3000]}")
        # A worker whose own workspace is full fails by itself; nothing else costs a run.
        own = (
            {"completed", "failed"}
            if any(kind.startswith("home") for kind, _ in self.faults)
            else {"completed"}
        )
        for task in all_tasks(self.yard):
            lost = [run for run in self.yard.store.runs(task.id) if run.outcome not in own]
            self.wrong += [f"{run.id} of {task.title} is {run.outcome}: {run.error}" for run in lost]

    def record(self) -> dict[str, object]:
        """What was done and found."""
        runs = [run for task in all_tasks(self.yard) for run in self.yard.store.runs(task.id)]
        outcomes = Counter(run.outcome for run in runs)
        by: dict[str, Counter[str]] = {"kinds": Counter(), "moments": Counter()}
        for (kind, moment), count in self.faults.items():
            by["kinds"][kind] += count
            by["moments"][moment] += count
        return {
            "faults": self.faults.total(),
            **{name: dict(sorted(counts.items())) for name, counts in by.items()},
            "tasks": len(all_tasks(self.yard)),
            "runs": {str(outcome): count for outcome, count in sorted(outcomes.items(), key=str)},
            "failed": sorted({str(run.error) for run in runs if run.outcome == "failed"}),
            "wrong": self.wrong,
        }


async def _seed(seed: int, faults: int, kinds: Sequence[str]) -> dict[str, object]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="yard-", dir=PLACE, ignore_cleanup_errors=True) as name:
        folder, clock = Path(name) / "y", Path(name) / "clock"
        folder.mkdir()
        yard = FaultyYard(folder)
        try:
            trouble = Trouble(yard, seed, clock)
            await trouble.trouble(faults, kinds)
            record = trouble.record()
        finally:
            yard.store.close()
            await end_daemons(yard.home)
            for place in (yard.home, folder):
                _umount(os.fsencode(place), _MNT_DETACH)
    return {"seed": seed, **record, "seconds": round(time.monotonic() - began)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="of each seed")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--kind", choices=FAULTS, action="append", help="all of them unless named")
    asked = parser.parse_args()
    own_mounts()
    kernel.adopt_orphans()
    found = [asyncio.run(_seed(seed, asked.faults, asked.kind or FAULTS)) for seed in asked.seed or [1]]
    sys.stdout.write(json.dumps({"schema": 1, "seeds": found}, indent=1) + "\n")
    return any(one["wrong"] for one in found)


if __name__ == "__main__":
    sys.exit(main())
