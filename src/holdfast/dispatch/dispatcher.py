"""The dispatcher: reads the board and starts, follows and ends the runs of this host.

Every round starts from the state of the store, so after a dispatcher is killed the next one simply continues:
it drives every run that this host holds and that no driver handles, whether the worker was started or not.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from holdfast.agents.changes import changes
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.book import WorkerRecords
from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules import assign, budget
from holdfast.board.rules.assign import Assignment, Places
from holdfast.board.rules.rows import Run, RunRef, Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store
from holdfast.board.verbs.claims import LEASE_MS
from holdfast.board.verbs.lists import MAX_PAGE
from holdfast.client.environments import FILE
from holdfast.dispatch import homefiles
from holdfast.dispatch.context import DispatchContext, worker_of
from holdfast.dispatch.environments import FleetWatch
from holdfast.dispatch.homefiles import only_one
from holdfast.dispatch.installed import InstalledProfiles, notice
from holdfast.dispatch.notify import LOOK_S, PROGRAM, Notifier
from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport, DispatcherStatus, is_news
from holdfast.dispatch.rules.liveness import CallCounts, LivenessLimits, LivenessSample, LivenessWatch
from holdfast.dispatch.rules.pressure import MAX_HERE
from holdfast.dispatch.rules.rounds import TICK_S, Rounds, Starts, find_pause, hold_up, max_tries
from holdfast.dispatch.run import workspace
from holdfast.dispatch.run.run import RunDriver, marks
from holdfast.dispatch.supervisorclient import SupervisorClient
from holdfast.errors import HoldfastError, NotFound, StaleRun, StartupError, UsageError, is_storage_fault
from holdfast.local import homekey
from holdfast.sandbox.plan import prerequisites

log = logging.getLogger(__name__)

T = TypeVar("T")

POST_S: Final = 0.2  # between looks into outboxes
TELL_S: Final = 2.0  # between two writes of its status
FLEET_S: Final = 1.0  # between checks whether an environment is due to be looked at
AGAIN_S: Final = 1.0  # before a run is driven again after its driver failed
LEFT: Final = "the dispatcher was ended; the next one takes the task on again"


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """Options of a dispatcher.

    `once`: run what there is room for now, to its end; `drain`: claim nothing new. `held` returns why nothing
    is to be started now, given how many runs are active here and how many of those have only begun. Once
    `leaving` is set nothing is started, all runs are given back to the board, and the dispatcher ends.
    `began` is set after the first look at the board.
    """

    boards: tuple[str, ...]
    most: int = MAX_HERE
    once: bool = False
    drain: bool = False
    lease_ms: int = LEASE_MS
    liveness: LivenessLimits = field(default_factory=LivenessLimits)
    held: Callable[[int, int], str | None] = lambda _running, _young: None
    notify: tuple[str, ...] = ()  # a command that is run for each task that waits for a person
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    began: asyncio.Event = field(default_factory=asyncio.Event)


class Dispatcher:
    """Drives the runs of this host.

    `told` is called for every run that begins and every run that is finished.

    When `again` is set the profiles are read again.
    """

    def __init__(
        self,
        context: DispatchContext,
        plan: DispatchOptions,
        told: Callable[[str, Run], None],
        again: asyncio.Event,
    ) -> None:
        self._context = context
        self._plan = plan
        self._told = told
        self._again = again
        self._drivers: dict[str, RunDriver] = {}
        self._places: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rounds = Rounds(lease_s=plan.lease_ms / 1000, claiming=not plan.drain, once=plan.once)
        self._starts = Starts()
        self._fleet: FleetWatch | None = None  # once an environment is named
        self._offsets: dict[str, int] = {}  # of the store's clock from a steady one, by board
        self._held: str | None = None
        self._watches: dict[str, LivenessWatch] = {}
        self._written: DispatcherReport | None = None
        self._attended = asyncio.Event()  # set while there are runs to drive, or were a moment ago
        self._status_file = homefiles.StatusFile(context.home)
        program = find_notify(context.home, plan.notify)
        self._notifier = (
            Notifier(context.home, context.store, plan.boards, program, context.environ) if program else None
        )

    async def serve(self) -> None:
        """Run until there is nothing left to do, or for ever; on cancellation, leave the workers running."""
        async with asyncio.TaskGroup() as group:
            aside = [
                group.create_task(_repeat(*chore))
                for chore in (
                    (self._carry_post, POST_S, "outboxes are read later"),
                    (self._sweep, workspace.SWEEP_S, "workspaces are removed later"),
                    (self._reread, 0.0, "profiles are read later"),
                    (self._heed_leaving, AGAIN_S, "it leaves later"),
                    (self._write_status, TELL_S, "how it stands cannot be written"),
                    (self._remind, LOOK_S, "reminders are given later"),
                    (self._look_at_environments, FLEET_S, "environments are looked at later"),
                    (self._watch, self._plan.liveness.look_s, "runs are looked at later"),
                )
            ]
            owed = False  # whether the unfinished runs of a predecessor have been taken over
            if self._plan.once:  # `once` has a single round, which must already know the environments
                with contextlib.suppress(HoldfastError, OSError):
                    await self._look_at_environments()
            while True:
                self._context.store.news.clear()
                pause_s = TICK_S
                try:
                    if not owed:
                        for run in await self._find_owed():
                            self._attend(group, run)
                        owed = True
                    await self._round(group)
                    pause_s = await self._find_pause()
                    self._context.status.so_far.round_at = self._context.wall_clock()
                    self._plan.began.set()
                except Exception as exc:  # workers keep running; we resume with the board
                    self._context.status.note_error(
                        f"{type(exc).__name__}: {exc}", self._context.wall_clock()
                    )
                    unknown = None if isinstance(exc, HoldfastError) else exc
                    log.warning(
                        "the board does not answer", extra={"missing": type(exc).__name__}, exc_info=unknown
                    )
                if self._rounds.is_over(self._drivers):
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._context.store.news.wait()
            for task in aside:
                task.cancel()
        with contextlib.suppress(HoldfastError, OSError):
            await self._remind()  # about the last events
        await self._write_status()

    async def _find_pause(self) -> float:
        """Seconds until the next round without news; longer if time alone cannot move any task."""
        if self._drivers:
            return TICK_S
        return find_pause([await self._context.store.ask(Store.counts, board) for board in self._plan.boards])

    async def _round(self, group: asyncio.TaskGroup) -> None:
        ask, plan, now = self._context.store.ask, self._plan, self._context.clock()
        if plan.leaving.is_set():
            self._rounds.leave()
        held = await ask(Store.held_runs, self._context.host)
        todo = self._rounds.plan(held, self._drivers, now)
        for run in todo.give_back:
            await ask(_give_back, run)
        for run in todo.drive:
            self._attend(group, run)
        for id in todo.over:
            self._drivers[id].over.set()
        for driver in self._drivers.values():
            if driver.hosts is not None and driver.hosts.waits:  # a person may have answered
                self._context.supervisor.look_again(worker_of(driver.run.id))
        for run in todo.renew:
            if await ask(_beat, run, plan.lease_ms):
                self._context.status.so_far.leases_renewed += 1
        for board in plan.boards:
            if todo.expire:
                await self._expire(board, [run.ref for run in held], ends=todo.end_lost)
            if todo.claim:
                await self._claim(group, board)
        self._rounds.finish(todo, now)

    async def _expire(self, board: str, living: list[RunRef], *, ends: bool) -> None:
        """Expire leases. Runs driven here count as living, so a clock jump does not make them lost."""
        found = await self._context.store.ask(
            Store.expire,
            board,
            living=living,
            lease_ms=self._plan.lease_ms,
            offset_ms=self._offsets.get(board),
            ends=ends,
        )
        self._offsets[board] = found.offset_ms
        self._context.status.so_far.leases_renewed += found.renewed
        if found.jump_ms:
            log.warning("the board's clock has jumped", extra={"missing": f"{found.jump_ms / 1000:+.0f} s"})

    async def _heed_leaving(self) -> None:
        """Start the next round at once when `leaving` is set."""
        await self._plan.leaving.wait()
        self._context.store.news.set()

    async def _claim(self, group: asyncio.TaskGroup, board: str) -> None:
        context, plan = self._context, self._plan
        profiles = sorted(context.profiles)

        def claim(store: Store) -> tuple[Task, Run] | None:
            return store.claim(
                board,
                worker=context.host,
                host=context.host,
                lease_ms=plan.lease_ms,
                assignees=profiles,
                places=places,
            )

        while True:
            places = self._find_places()
            if (reason := self._holdup()) is not None:
                break
            won = await context.store.ask(claim)
            if won is None:
                return
            self._starts.add(context.clock())
            context.status.so_far.claims += 1
            self._attend(group, won[1])
        await context.store.ask(Store.offer, board, context.host, profiles, held=reason, places=places)

    async def _remind(self) -> None:
        if self._notifier is not None:
            await self._notifier.look()

    def _find_fleet(self) -> FleetWatch | None:
        """The environments of this home; None while neither its file nor a profile names one."""
        context = self._context
        if self._fleet is None and (
            (context.home / FILE).exists() or any(one.environment for one in context.profiles.values())
        ):
            self._fleet = FleetWatch(context.home, context.wall_clock)
        return self._fleet

    def _find_places(self) -> Places:
        fleet = self._find_fleet()
        if fleet is None:
            return Places()
        running = Counter(driver.run.environment for driver in self._drivers.values())
        return fleet.make_places(running, list(self._context.profiles.values()))

    async def _look_at_environments(self) -> None:
        """Look at the environments that have work; if any was due, wake the loop: runs may start now."""
        fleet = self._find_fleet()
        if fleet is None or not fleet.list_named():
            return
        wanted = {profile.environment for profile in self._context.profiles.values() if profile.environment}
        for board in self._plan.boards:
            wanted.update(await self._context.store.ask(Store.wanted_environments, board))
        wanted.update(driver.run.environment for driver in self._drivers.values())
        if await fleet.look(wanted):
            self._context.store.news.set()

    def _holdup(self) -> str | None:
        """Why this host starts nothing now. A change of the reason is logged."""
        running = len(self._drivers)
        young = self._starts.young(running, self._context.clock())
        reason, full = hold_up(running, young, most=self._plan.most, held=self._plan.held)
        if reason != self._held and not full:
            words = "workers are started again" if reason is None else "no worker is started now"
            log.warning(words, extra={"missing": reason} if reason else {})
            self._held = reason
        return reason

    def _attend(self, group: asyncio.TaskGroup, run: Run) -> None:
        if run.id not in self._drivers:
            driver = self._drivers[run.id] = RunDriver(self._context, run)
            if run.outcome is not None:
                driver.over.set()
            self._attended.set()
            self._told("began", run)
            group.create_task(self._drive(driver))

    async def _drive(self, driver: RunDriver) -> None:
        """Drive a run to its end; a failure of one run does not end the others."""
        run = driver.run
        for before in list(self._drivers.values()):  # two workers must never share a workspace
            if before.run.task_id == run.task_id and before.run.generation < run.generation:
                await before.done.wait()
        try:
            place = await self._insist(driver, driver.locate)
            async with self._places.setdefault(place, asyncio.Lock()):  # several tasks may share it
                await self._insist(driver, driver.drive)
        except Exception as exc:
            await self._give_up(driver, exc)
        self._drivers.pop(run.id, None)
        driver.done.set()
        self._told("ended", run)
        self._context.store.news.set()

    async def _insist(self, driver: RunDriver, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work` until it succeeds and return its result; retry as long as `max_tries` allows.

        Raises:
            Exception: it failed as often as `max_tries` allows for such an error.
        """
        run, failed = driver.run, 0
        while True:
            try:
                return await work()
            except Exception as exc:
                failed += 1
                self._context.status.note_error(f"{run.id}: {exc}", self._context.wall_clock())
                most = max_tries(exc, over=driver.over.is_set())
                known = isinstance(exc, HoldfastError | TimeoutError) or is_storage_fault(exc)
                words = "a run is attended to again" if known else "a run could not be attended to"
                log.warning(
                    words,
                    extra={"run_id": run.id, "missing": repr(exc)[:200]},
                    exc_info=None if known else exc,
                )
                if most is not None and failed >= most:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _give_up(self, driver: RunDriver, exc: Exception) -> None:
        log.error("a run is given up", extra={"run_id": driver.run.id}, exc_info=exc)
        try:
            await self._insist(driver, lambda: driver.give_up(exc))
        except Exception:
            log.exception("a run could not be given up", extra={"run_id": driver.run.id})

    async def _find_owed(self) -> list[Run]:
        """Runs that a predecessor did not finish, whichever host holds their tasks now."""
        folder = marks(self._context.home)
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        found = []
        for name in names:
            if name.startswith("."):  # a predecessor was killed while it wrote this; no process writes it now
                (folder / name).unlink(missing_ok=True)
                continue
            try:
                found.append(await self._context.store.ask(Store.run, name))
            except NotFound:
                log.warning("a run is not on the board any more", extra={"run_id": name})
        return found

    async def _sweep(self) -> None:
        await workspace.sweep(self._context)

    async def _reread(self) -> None:
        """Read worker-profiles.toml again; an invalid file changes only the reported reload error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self._again.wait()
        anyway = self._again.is_set()
        self._again.clear()
        try:
            if await asyncio.to_thread(self._context.profiles.look, anyway=anyway):
                self._context.status.note_reload()
                self._context.store.news.set()
        except (UsageError, StartupError) as exc:
            log.warning("the profiles stay as they were", extra={"missing": str(exc)[:200]})
            self._context.status.note_reload(str(exc))

    async def _write_status(self) -> None:
        report = self._context.status.report(
            self._context.wall_clock(), runs=self._drivers, profiles=self._context.profiles
        )
        if not is_news(self._written, report):
            return
        await asyncio.to_thread(self._status_file.write, report, self._status_file.number())
        self._written = report

    async def _carry_post(self) -> None:
        """Answer what workers put into their outboxes; wait while there are no runs."""
        await self._attended.wait()
        if not self._drivers:
            self._attended.clear()
        for driver in list(self._drivers.values()):
            try:
                await self._context.store.ask(driver.ingest)
            except HoldfastError:
                pass  # the store does not answer; the outbox keeps its content
            except Exception:
                log.exception("an outbox could not be read", extra={"run_id": driver.run.id})

    async def _watch(self) -> None:
        """Look at the runs of this host, and record on the board which of them look stuck."""
        context, limits, before = self._context, self._plan.liveness, self._watches
        held = await context.store.ask(Store.held_runs, context.host)
        self._watches = {run.id: before.get(run.id) or LivenessWatch(limits, stuck=run.stuck) for run in held}
        for run in held:
            driver = self._drivers.get(run.id)
            report = None if driver is None else await context.supervisor.find(worker_of(run.id))
            if driver is None or report is None or driver.place is None:  # it has not begun
                continue
            # A remote worker's changes reach the workspace here only after it has ended.
            files = None if run.environment else await asyncio.to_thread(changes.glance, driver.place)
            reason = self._watches[run.id].look(_sample(report, files, run.note, context.clock()))
            if reason != run.stuck:
                with contextlib.suppress(StaleRun):
                    await context.store.ask(Store.set_stuck, run.ref, reason)


async def _repeat(work: Callable[[], Awaitable[None]], every_s: float, later: str) -> None:
    """Repeat a background chore; its failures are logged and never stop the runs."""
    while True:
        try:
            await work()
        except (HoldfastError, TimeoutError, OSError) as exc:
            log.warning(later, extra={"missing": f"{type(exc).__name__}: {exc}"[:200]})
        except Exception:
            log.exception("something beside the runs failed")
        await asyncio.sleep(every_s)


def _give_back(store: Store, run: Run) -> None:
    with contextlib.suppress(StaleRun):  # it ended meanwhile
        store.give_back(run.ref, reason=LEFT)


def _beat(store: Store, run: Run, lease_ms: int) -> bool:
    with contextlib.suppress(StaleRun):
        store.heartbeat(RunRef(run.id, run.generation), lease_ms=lease_ms, note=run.note)
        return True
    return False


def _sample(report: WorkerReport, files: tuple[int, ...] | None, note: str, now: float) -> LivenessSample:
    told = report.calls
    calls = None
    if told is not None:
        calls = CallCounts(told.fresh, told.in_a_row, told.last, told.recent, told.different)
    return LivenessSample(
        at=now,
        state=report.state,
        state_s=report.for_seconds,
        about=report.about,
        calls=calls,
        files=files,
        note=note,
        asks=any(not one.told for one in report.asked_hosts),
    )


# --- setup and entry points

COMMAND = prerequisites.command()


def find_notify(home: Path, given: Sequence[str]) -> tuple[str, ...]:
    """The command that reminds a person: the given one, or HOME/notify; empty when there is none to run."""
    program = home / PROGRAM
    return tuple(given) or ((str(program),) if os.access(program, os.X_OK) else ())


def host_name(home: Path) -> str:
    """A name that is unique for each home of each machine: a run belongs to the dispatcher of one home."""
    return f"{socket.gethostname()}-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:8]}"


async def serve(
    home: Path,
    address: str,
    plan: DispatchOptions,
    *,
    told: Callable[[str, Run], None] = lambda _kind, _run: None,
    environ: Mapping[str, str] = os.environ,
    host: str | None = None,
    again: asyncio.Event | None = None,
) -> None:
    """Dispatch for some boards according to `plan`.

    When `again` is set, worker-profiles.toml is read again.

    Raises:
        Conflict: this home already has a dispatcher.
        NotFound: there is no such board or store.
        HoldfastError: something that it needs does not start.
    """
    WorkerRecords(home).prepare()
    async with only_one(home):
        homefiles.clear_status(home)
        found = InstalledProfiles(home, environ)
        if (said := notice(home)) is not None:
            log.warning(said)
        secret = homekey.load(home)
        async with contextlib.AsyncExitStack() as opened:
            store = await opened.enter_async_context(AsyncStore.open(address))
            for board in plan.boards:
                await store.ask(Store.stats, board)  # raises NotFound if the board is missing
            supervisor = await opened.enter_async_context(SupervisorClient.open(home))
            name = host or host_name(home)
            status = DispatcherStatus(name, os.getpid(), plan.boards, time.time())
            context = DispatchContext(
                home, address, name, store, supervisor, found, COMMAND, secret, environ, status
            )
            await Dispatcher(context, plan, told, again or asyncio.Event()).serve()


def foresee(
    store: Store,
    board: str,
    host: str,
    profiles: frozenset[str],
    held: str | None = None,
    places: Places = Places(),  # noqa: B008 - nobody changes it
) -> Assignment:
    """What a round would claim now, and why every other ready task waits; for the newest tasks only.

    `held` is the reason why the host starts nothing now, `places` are the environments where it can start
    work.
    """
    capacity, busy = store.capacity(board)
    ready = store.page(board, status=TaskStatus.READY, limit=MAX_PAGE).tasks
    spent = store.spent_budgets(ready)
    shut = {task.id: why for task in ready if (why := places.find_holdup(task)) is not None}
    found = assign.assign(
        [task for task in ready if task.id not in spent | shut],
        hosts={host: profiles},
        capacity=capacity,
        busy=busy,
        now_ms=store.now_ms(),
        held={host: held} if held else None,
    )
    waiting = {task: budget.question(words) for task, words in spent.items()}
    return Assignment(found.claims, {**found.waiting, **shut, **waiting})
