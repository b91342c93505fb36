"""The dispatcher: looks at the board, and does what is to be done about the runs of this host.

Every round begins from what the store says, so one that was killed is simply followed by another: runs that
this host holds and nobody attends to are attended to, whether their workers were started or not.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from holdfast.board.rows import Run, RunRef, Task
from holdfast.board.store import LEASE_MS, Store
from holdfast.dispatch import workspace
from holdfast.dispatch.cleanup import SWEEP_S, sweep
from holdfast.dispatch.house import House
from holdfast.dispatch.notify import Notifier, command
from holdfast.dispatch.run import Attendance, marks
from holdfast.errors import HoldfastError, NotFound, StaleRun

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S: Final = 1.0  # between rounds when nothing is heard: clocks pass without an event
POST_S: Final = 0.2  # between looks into outboxes
AGAIN_S: Final = 1.0  # before a run is attended to again whose attendance failed
BEATS: Final = 4  # heartbeats in one lease: three may be lost
MAX_HERE: Final = (
    100  # runs at once on one host unless told otherwise; the supervisor has room for twice that
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a dispatcher. `once`: what there is room for now, to its end; `drain`: nothing new."""

    boards: tuple[str, ...]
    most: int = MAX_HERE
    once: bool = False
    drain: bool = False
    lease_ms: int = LEASE_MS
    notify: tuple[str, ...] = ()  # a command that is told what waits for a person


class Dispatcher:
    """`told` hears of every run that begins and of every one that is done with."""

    def __init__(self, house: House, plan: Plan, told: Callable[[str, Run], None]) -> None:
        self._house = house
        self._plan = plan
        self._told = told
        self._attended: dict[str, Attendance] = {}
        self._places: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._claiming = not plan.drain
        self._looked = False
        self._beat_at = self._expired_at = 0.0
        program = command(house.home, plan.notify)
        self._notifier = Notifier(house.home, house.desk, plan.boards, program, house.environ)

    async def serve(self) -> None:
        """Until there is nothing to do any more, or for ever; cancelled, it leaves the workers alone."""
        async with asyncio.TaskGroup() as group:
            aside = [group.create_task(self._carry_post()), group.create_task(self._sweep())]
            aside.append(group.create_task(self._notifier.serve()))
            for run in await self._owed():
                self._attend(group, run)
            while True:
                self._house.desk.news.clear()
                try:
                    await self._round(group)
                except HoldfastError as exc:  # workers go on, and so do we when it is back
                    log.warning("the board does not answer", extra={"missing": type(exc).__name__})
                if self._looked and not self._claiming and not self._attended:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._house.desk.news.wait()
            for task in aside:
                task.cancel()
        with contextlib.suppress(HoldfastError, OSError):
            await self._notifier.look()  # of what happened last

    async def _round(self, group: asyncio.TaskGroup) -> None:
        ask, plan = self._house.desk.ask, self._plan
        held = {run.id: run for run in await ask(lambda store: store.held(self._house.host))}
        for run in held.values():
            self._attend(group, run)
        for id, attendance in self._attended.items():
            if id not in held:
                attendance.over.set()
        now = time.monotonic()
        if now - self._beat_at > plan.lease_ms / 1000 / BEATS:
            for run in held.values():
                await ask(lambda store, run=run: _beat(store, run, plan.lease_ms))  # type: ignore[misc]
            self._beat_at = now
        if now - self._expired_at > TICK_S:
            for board in plan.boards:
                await ask(lambda store, board=board: store.expire(board))  # type: ignore[misc]
            self._expired_at = now
        if self._claiming:
            for board in plan.boards:
                await self._claim(group, board)
            self._claiming = not plan.once
        self._looked = True

    async def _claim(self, group: asyncio.TaskGroup, board: str) -> None:
        house, plan = self._house, self._plan
        profiles = sorted(house.launchers)

        def claim(store: Store) -> tuple[Task, Run] | None:
            return store.claim(
                board, worker=house.host, host=house.host, lease_ms=plan.lease_ms, assignees=profiles
            )

        while len(self._attended) < plan.most:
            won = await house.desk.ask(claim)
            if won is None:
                return
            self._attend(group, won[1])

    def _attend(self, group: asyncio.TaskGroup, run: Run) -> None:
        if run.id not in self._attended:
            attendance = self._attended[run.id] = Attendance(self._house, run)
            if run.outcome is not None:
                attendance.over.set()
            self._told("began", run)
            group.create_task(self._attended_to(attendance))

    async def _attended_to(self, attendance: Attendance) -> None:
        run, desk = attendance.run, self._house.desk
        for before in list(self._attended.values()):  # two workers are never in one workspace
            if before.run.task_id == run.task_id and before.run.generation < run.generation:
                await before.done.wait()
        task = await self._insisted(run, lambda: desk.ask(lambda store: store.task(run.task_id)))
        place = str(workspace.known(self._house.home, task).path)
        async with self._places.setdefault(place, asyncio.Lock()):  # which several tasks may have
            await self._insisted(run, attendance.attend)
        self._attended.pop(run.id, None)
        attendance.done.set()
        self._told("ended", run)
        desk.news.set()

    async def _insisted(self, run: Run, work: Callable[[], Awaitable[T]]) -> T:
        """What comes of it in the end, however often it fails."""
        while True:
            try:
                return await work()
            except (HoldfastError, TimeoutError) as exc:
                log.warning("a run is attended to again", extra={"run_id": run.id, "missing": str(exc)[:200]})
            except Exception:
                log.exception("a run could not be attended to", extra={"run_id": run.id})
            await asyncio.sleep(AGAIN_S)

    async def _owed(self) -> list[Run]:
        """Runs of which a predecessor did not keep what is to be kept, whoever holds their tasks now."""
        folder = marks(self._house.home)
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        found = []
        for name in names:
            try:
                found.append(await self._house.desk.ask(lambda store, name=name: store.run(name)))  # type: ignore[misc]
            except NotFound:
                log.warning("a run is not on the board any more", extra={"run_id": name})
        return found

    async def _sweep(self) -> None:
        while True:
            try:
                await sweep(self._house)
            except HoldfastError as exc:
                log.warning("workspaces are removed later", extra={"missing": str(exc)[:200]})
            await asyncio.sleep(SWEEP_S)

    async def _carry_post(self) -> None:
        """Answer what workers put into their outboxes."""
        while True:
            await asyncio.sleep(POST_S)
            for attendance in list(self._attended.values()):
                try:
                    await self._house.desk.ask(attendance.ingest)
                except HoldfastError:
                    pass  # the store does not answer; what is in the outbox stays there
                except Exception:
                    log.exception("an outbox could not be read", extra={"run_id": attendance.run.id})


def _beat(store: Store, run: Run, lease_ms: int) -> None:
    with contextlib.suppress(StaleRun):
        store.heartbeat(RunRef(run.id, run.generation), lease_ms=lease_ms, note=run.note)
