"""The supervisor: starts workers through its exec server, follows them, and takes them over after a restart.

The order of a start makes it safe to be killed at any point: first the record, then the session, then the
process under an id that is in the record. The next supervisor finds the process by that id, or finds that it
was never started.
"""

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import describe_unknown, find_agent
from holdfast.agents.catalog.known import read_known
from holdfast.agents.evidence.evidence import MAX_SEEN, Evidence, Source
from holdfast.agents.evidence.status import WorkerLimits
from holdfast.agents.fleet import starting, there
from holdfast.agents.supervisor import background, elsewhere
from holdfast.agents.supervisor.beginning import (
    adopt_process,
    find_unkept,
    give_input,
    note_enforcement,
    note_lost_trace,
    prepare_tracing,
    start_process,
    write_files,
)
from holdfast.agents.supervisor.elsewhere import CUT_SHORT
from holdfast.agents.worker import channels, logins, ownsandbox
from holdfast.agents.worker.book import (
    KEPT_BYTES,
    KEPT_S,
    Record,
    WorkerRecords,
    choose_oldest,
    describe,
    new_id,
    note_reach,
)
from holdfast.agents.worker.launching import Handover, PreparedStart, WorkerSpec, prepare
from holdfast.agents.worker.ownfiles import link_below, remove_below
from holdfast.agents.worker.ownsandbox import KnownVersions, OwnSandboxPlaces
from holdfast.agents.worker.preflight import PreflightProblem, preflight
from holdfast.agents.worker.reach import find_unnamed, may_need_names
from holdfast.agents.worker.surroundings import WorkerSurroundings
from holdfast.agents.worker.worker import FollowedWorker, WorkerChannel, now
from holdfast.client.environment import Environment
from holdfast.client.process import Process
from holdfast.client.recovery import LinkState
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    InvalidRequest,
    NotFound,
    OperationFailed,
    SandboxUnavailable,
    SessionLost,
    Unreachable,
    UsageError,
    is_storage_fault,
)
from holdfast.local.tasks import TaskSet

log = logging.getLogger(__name__)

TICK_S: Final = 0.5  # between looks at a worker: a decision prompt must be seen within 2 s
RETAIN_S: Final = 3600.0  # between removals of expired workers
MAX_ALIVE: Final = 200  # workers at once; more means a runaway caller
_GONE: Final = "its exec server is gone, and with it what it owned"


class Supervisor:
    """All workers of one home."""

    def __init__(self, home: Path, limits: WorkerLimits = WorkerLimits()) -> None:  # noqa: B008 - nobody changes it
        self.book = WorkerRecords(home)
        self._known = read_known(home)
        self._surroundings: WorkerSurroundings | None = None
        self._limits = limits
        self.workers: dict[str, FollowedWorker] = {}
        self._environments: dict[str, Environment] = {}
        self._hearers: set[Callable[[FollowedWorker], None]] = set()
        self._logins: dict[str, logins.SharedLogin] = {}
        self._tasks = TaskSet()
        self._versions: KnownVersions | None = None
        self._unnamed: str | None = None  # why hosts cannot be reached by name here; "": they can
        self._begun = asyncio.Event()  # set while there is, or was a moment ago, a worker to look at

    async def open(self) -> None:
        """Take over the workers that have not ended."""
        self.book.prepare()
        waiting = [record for record in self.book if record.phase != "ended"]
        await asyncio.gather(*(self._take_over(record) for record in waiting))
        self._tasks.start(self._tick())
        self._tasks.start(self._retain())

    async def aclose(self) -> None:
        """Leave the workers to the next supervisor."""
        if self._surroundings is not None:
            await self._surroundings.aclose()
        await self._tasks.aclose()
        for environment in self._environments.values():
            await environment.leave()

    @functools.cached_property
    def _far(self) -> elsewhere.FarWorkers:
        """Created for the first worker on another machine."""
        return elsewhere.FarWorkers(self.book, self._environments, self._channel_of, self._forget, self._undo)

    @property
    def surroundings(self) -> WorkerSurroundings:
        """Created for the first worker that is compared with the host."""
        self._surroundings = self._surroundings or WorkerSurroundings(self.book)
        return self._surroundings

    @property
    def alive(self) -> list[FollowedWorker]:
        return [worker for worker in self.workers.values() if not worker.done.is_set()]

    def hear(self, handle: Callable[[FollowedWorker], None]) -> Callable[[], None]:
        """Call `handle` on every change of a status; the returned function ends that."""
        self._hearers.add(handle)
        return lambda: self._hearers.discard(handle)

    def find(self, worker: str) -> FollowedWorker:
        """Return a worker of this home, also one that ended long ago.

        Raises:
            NotFound: there is none, or it could not be taken over.
        """
        if (found := self.workers.get(worker)) is None:
            record = self.book.read(worker)
            if record.phase != "ended":
                raise NotFound(f"worker {worker} is not followed")
            found = self.workers[worker] = self._worker(record, self._agent_of(record))
            found.closed()
        return found

    async def prune(self, kept_s: float, kept_bytes: int) -> list[tuple[Record, int]]:
        """Remove data of ended workers that are too old, or too much; return their records and sizes."""
        found = await asyncio.to_thread(self.book.list_ended)
        gone = []
        for one in choose_oldest(found, time.time(), kept_s=kept_s, kept_bytes=kept_bytes):
            worker = self.find(one.id)
            if worker.done.is_set() and not worker.owes:
                self.workers.pop(one.id)
                try:
                    await asyncio.to_thread(self.book.remove, one.id)
                except OSError as exc:
                    log.warning("a worker cannot be removed", extra={"error": exc.strerror})
                    continue
                gone.append((worker.record, one.size))
        return gone

    async def _retain(self) -> None:
        while True:
            try:
                await self.prune(KEPT_S, KEPT_BYTES)
            except Exception:
                log.exception("workers that have ended are removed later")
            self.let_go()
            await asyncio.sleep(RETAIN_S)

    def let_go(self) -> None:
        """Drop workers that ended a while ago from memory; `find` reads them again. Many end in two weeks."""
        for id, one in list(self.workers.items()):
            if one.done.is_set() and not one.owes and now() - one.status.since > RETAIN_S:
                del self.workers[id]

    # --- starting

    async def run(self, wish: WorkerSpec) -> FollowedWorker:
        """Start a worker.

        Raises:
            UsageError: the request is invalid.
            HoldfastError: it does not start; its record says why.
        """
        if len(self.alive) >= MAX_ALIVE:
            raise InvalidRequest(f"{MAX_ALIVE} workers run already", remedy="holdfast worker list")
        worker_id = wish.id or new_id(wish.agent)
        self._known = read_known(self.book.home)  # includes records written since
        if wish.host is not None:
            return await self._run_there(worker_id, wish)
        own, obstacle = await self._find_own_sandbox(worker_id, wish)
        unnamed = await self._find_unnamed(wish)
        state = str(self.book.folder(worker_id) / "state")
        unkept = find_unkept()
        ready = prepare(wish, state=state, known=self._known, own=own, unnamed=unnamed, unkept=unkept)
        record = describe(worker_id, wish, ready)
        record.own_sandbox, record.one_sandbox = own is not None, obstacle
        worker = self._add(record, wish, ready)
        await self._starting(worker, self._start(worker, ready, wish))
        return worker

    def _add(self, record: Record, wish: WorkerSpec, ready: PreparedStart) -> FollowedWorker:
        """Write the record of a worker that is about to be started."""
        worker_id = record.id
        if worker_id in self.workers:
            raise UsageError(f"there is a worker {worker_id} already")
        try:
            self.book.add(record)
            self.book.add_wish(worker_id, wish)
            if ready.request is not None:
                self.book.add_request(worker_id, ready.request)
            worker = self.workers[worker_id] = self._worker(record, ready.agent, ready.secrets)
        except OSError as exc:
            self.book.discard(worker_id)
            raise OperationFailed(f"no record can be kept of {worker_id}: {exc.strerror}") from exc
        return worker

    async def _starting(
        self, worker: FollowedWorker, start: Coroutine[None, None, None], *, handed: bool = False
    ) -> None:
        """Await the start. Raises what it raises, after noting that in the record."""
        record = worker.record
        try:
            await start
        except Exception as exc:  # of any kind, because otherwise the worker would remain without a follower
            if is_storage_fault(exc) and record.phase == "prepared":  # it may pass: as if never asked for
                await self._undo(worker)
                raise OperationFailed(f"{record.id} cannot be started now: {exc}") from exc
            if handed and isinstance(exc, ConnectionLost) and record.phase == "prepared":  # may pass, too
                await self._undo(worker)
                raise Unreachable(f"{record.host} was lost while it was started: {exc}") from exc
            worker.not_started(str(exc) or type(exc).__name__)
            if (environment := self._environments.get(record.id)) is not None:
                await self._forget(worker, environment)
            raise

    async def _undo(self, worker: FollowedWorker) -> None:
        environment = self._environments.get(worker.record.id)
        if environment is not None:
            await self._forget(worker, environment)
        del self.workers[worker.record.id]
        worker.closed()
        self.book.discard(worker.record.id)

    async def _find_own_sandbox(
        self, worker_id: str, wish: WorkerSpec
    ) -> tuple[OwnSandboxPlaces | None, str | None]:
        """Return the places for a CLI's own sandbox; or why a CLI that supports one does not get it."""
        agent = self._known.get(wish.agent)
        if agent is None or agent.own_sandbox is None:
            return None, None
        obstacle = ownsandbox.find_obstacle(agent, wish)
        if obstacle is None:
            search = wish.env.get("PATH", os.defpath)
            program = shutil.which(agent.binary, path=search)
            if program is None:
                return None, None  # `prepare` is about to report that
            environment = await background.reach_exec_server(self.book.home)
            try:
                self._versions = self._versions or KnownVersions()
                version = await self._versions.find(environment, program, search)
            finally:
                await environment.aclose()
            obstacle = ownsandbox.judge_version(agent.own_sandbox, version)
        if obstacle is None:
            return ownsandbox.make_places(worker_id, self.book.folder(worker_id) / "tmp"), None
        log.info(
            "a worker shares one sandbox with its commands", extra={"agent": agent.name, "reason": obstacle}
        )
        return None, obstacle

    async def _find_unnamed(self, wish: WorkerSpec) -> str | None:
        """Return why hosts cannot be reached by name here; tried once, for the first worker that needs it."""
        agent = self._known.get(wish.agent)
        if agent is None or not may_need_names(wish, agent):
            return None
        if self._unnamed is None:
            environment = await background.reach_exec_server(self.book.home)
            try:
                self._unnamed = await find_unnamed(environment) or ""
            finally:
                await environment.aclose()
        return self._unnamed or None

    async def _start(self, worker: FollowedWorker, ready: PreparedStart, wish: WorkerSpec) -> None:
        record = worker.record
        looking = self._tasks.start(asyncio.to_thread(self.book.add_baseline, record))
        await self._give_own_files(worker, ready)
        environment = await background.reach_exec_server(self.book.home)
        self._environments[record.id] = environment
        record.session_id = environment.session_id
        troubles: list[PreflightProblem] = []
        if ready.agent.state or ready.base is not None:  # otherwise there is nothing to try
            troubles = await preflight(
                environment,
                ready.agent,
                cwd=record.cwd,
                variables=ready.environment,
                policy=ready.policy,
                state=ready.state,
                base=ready.base,
            )
        record.preflight = [trouble.words() for trouble in troubles]
        self.book.write(record)
        for trouble in reversed(troubles):  # preflight lists the most important first; evidence has it last
            if trouble.claim is not None:
                worker.add(Evidence(Source.DENIAL, now(), trouble.claim, trouble.words()[:MAX_SEEN]))
        explaining = prepare_tracing(record, ready)
        before = await looking  # the worker may cause any change from now on
        try:
            process = await start_process(environment, worker, ready, traced=explaining is not None)
        except (SandboxUnavailable, InvalidRequest) as exc:
            if ready.commands is None:
                raise
            log.info(
                "a worker shares one sandbox with its commands",
                extra={"agent": record.agent, "reason": str(exc)},
            )
            record.own_sandbox, record.one_sandbox = False, str(exc)
            unnamed = await self._find_unnamed(wish)
            unkept = find_unkept()
            ready = prepare(wish, state=ready.state, known=self._known, unnamed=unnamed, unkept=unkept)
            note_reach(record, ready)
            write_files(ready)
            process = await start_process(environment, worker, ready, traced=explaining is not None)
        record.pid, record.phase = process.pid, "started"
        note_enforcement(record, process, ready)
        if record.one_sandbox is not None and wish.own_sandbox:
            record.weakened.append(f"its commands share its sandbox and its network: {record.one_sandbox}")
        if record.weakened:
            record.notes.append(f"its sandbox is weaker than asked: {'; '.join(record.weakened)}")
        for note in record.notes:
            log.warning(
                "a worker starts otherwise than in a terminal", extra={"reason": f"{record.id}: {note}"}
            )
        if record.compared:
            self.surroundings.begin(record, ready, environment)
        worker.save()
        if record.tty:
            with contextlib.suppress(HoldfastError):  # it may have ended already; the start succeeded
                await process.resize(record.rows, record.cols)
        if explaining is not None and record.pid is not None:
            worker.explaining = explaining
            await explaining.begin(record.pid, watched=record.watch and record.unwatched is None)
            record.untraced = explaining.off
            worker.save()
        self._tasks.start(self._see_to(worker, self._follow, environment, process))
        self._tasks.start(asyncio.to_thread(self.book.complete_baseline, record, before))
        await give_input(process, ready)

    # --- on another machine

    async def _run_there(self, worker_id: str, wish: WorkerSpec) -> FollowedWorker:
        """Start a worker on another machine; if that is not reachable, no record remains."""
        starting.check(wish)
        agent = find_agent(self._known, wish.agent)
        with contextlib.suppress(NotFound):
            self.book.read(worker_id)
            raise UsageError(f"there is a worker {worker_id} already")
        environment = await elsewhere.open_session(self.book.home, wish.host or "")
        try:
            start = await elsewhere.prepare(self.book, worker_id, wish, agent, environment)
            record = describe(worker_id, wish, start.ready)
            record.host, record.source, record.place = wish.host, wish.cwd, start.place
            record.cwd, record.home = start.cwd, start.home
            record.session_id = environment.session_id
            record.notes += [f"not carried: {one}" for one in start.carried.left_out]
            worker = self._add(record, wish, start.ready)
        except BaseException:
            await environment.aclose()
            raise
        self._environments[worker_id] = environment
        begun = self._start_there(worker, start, wish.handover, environment)
        await self._starting(worker, begun, handed=wish.handover is not None)
        return worker

    async def _start_there(
        self,
        worker: FollowedWorker,
        start: elsewhere.FarStart,
        handover: Handover | None,
        environment: Environment,
    ) -> None:
        record, ready = worker.record, start.ready
        try:
            await elsewhere.send(self.book, record, start, handover, environment)
            process = await start_process(environment, worker, ready, traced=False)
        except HoldfastError as exc:
            if handover is not None and isinstance(exc, SessionLost):  # it may or may not run
                self._environments.pop(record.id, None)
                await environment.leave()
                self._tasks.start(self._see_to(worker, self._far.take_over))
                return
            with contextlib.suppress(HoldfastError):  # if this fails, `place` stays set
                await there.clear(environment, start.place)
                record.place = ""
            raise
        record.phase = "started"
        note_enforcement(record, process, ready)
        if record.confined and process.enforcement is None:
            record.weakened.append("its server does not say what it enforces")
        watched = record.watch and record.unwatched is None
        record.notes += starting.describe_unseen(watched=watched, why=record.unwatched)
        worker.save()
        self._tasks.start(self._see_to(worker, self._far.follow, (environment, process)))
        await give_input(process, ready)

    # --- files of its user

    async def _give_own_files(self, worker: FollowedWorker, ready: PreparedStart) -> None:
        """Place the files that it gets; the user's files are removed again when it has ended."""
        record = worker.record
        record.placed = list(ready.placed)
        worker.leaving = lambda: self._leave(record)
        self.book.write(record)  # so that the next supervisor knows what to remove
        write_files(ready)
        for path, target in ready.links.items():
            with contextlib.suppress(OSError):  # then it runs without this file
                link_below(ready.state, Path(path).relative_to(ready.state).parts, target)
        if ready.login is None:
            return
        try:
            login = self._open_login(record, logins.login_of(ready.login))
            await login.begin()
        except (OSError, ValueError) as exc:
            record.given.append(f"{ready.login.path} is left out: {exc}")
            return
        self._save_login(record.id, login)
        record.given.append(login.words())

    def _open_login(self, record: Record, saved: logins.LoginState) -> logins.SharedLogin:
        agent = self._agent_of(record)
        login = logins.SharedLogin.find(
            agent, saved, state=record.state, user=record.home, home=self.book.home
        )
        self._logins[record.id] = login
        return login

    def _sync_login(self, worker: str) -> None:
        login = self._logins[worker]
        if login.sync():
            self._save_login(worker, login)

    def _save_login(self, worker: str, login: logins.SharedLogin) -> None:
        with contextlib.suppress(OSError):
            self.book.keep(worker, logins.FILE, msgspec.json.encode(login.saved))

    def _adopt_own_files(self, worker: FollowedWorker) -> None:
        record = worker.record
        worker.leaving = lambda: self._leave(record)
        with contextlib.suppress(OSError, msgspec.MsgspecError, StopIteration):
            kept = (self.book.folder(record.id) / logins.FILE).read_bytes()
            self._open_login(record, decoding.decode(kept, logins.LoginState)).adopt()

    def _leave(self, record: Record) -> None:
        if (login := self._logins.pop(record.id, None)) is not None:
            login.end()
            self._save_login(record.id, login)
        for place in record.placed:
            remove_below(record.state, tuple(place.split("/")))

    # --- taking over

    async def _take_over(self, record: Record) -> None:
        """Take over one worker. Raises OSError for a storage fault, which may pass."""
        try:
            await self._find_again(record)
        except Exception as exc:  # a failure with one worker must not affect the others
            if is_storage_fault(exc):
                raise
            log.exception("a worker could not be taken over", extra={"reason": record.id})

    async def _find_again(self, record: Record) -> None:
        worker = self.workers[record.id] = self._worker(record, self._agent_of(record))
        if record.host is not None:
            self._tasks.start(self._see_to(worker, self._far.take_over))  # may take long
            return
        self._adopt_own_files(worker)
        if record.session_id is None:
            worker.not_started(CUT_SHORT)
            return
        try:
            environment = await background.resume_session(self.book.home, record.session_id)
        except HoldfastError as exc:
            worker.vanished(f"{_GONE}: {exc}")
            return
        self._environments[record.id] = environment
        try:
            process = await adopt_process(environment, worker)
        except HoldfastError as exc:
            if record.phase == "started":
                worker.vanished(f"its process is gone: {exc}")
            else:
                worker.not_started(CUT_SHORT)
            await self._forget(worker, environment)
            return
        record.phase = "started"
        if record.trace:
            await note_lost_trace(record, process)
            self.book.write(record)
        self._tasks.start(self._see_to(worker, self._follow, environment, process))

    # --- following

    def _agent_of(self, record: Record) -> Agent:
        """Return the agent as known now: its record may be gone or invalid since the worker was started."""
        return self._known.get(record.agent) or describe_unknown(record.agent)

    def _worker(self, record: Record, agent: Agent, secrets: tuple[str, ...] = ()) -> FollowedWorker:
        self._begun.set()
        limits = replace(
            self._limits,
            start_s=agent.start_limit_s,
            wall_s=record.wall_limit_s,
            idle_s=record.idle_limit_s,
            one_turn=record.headless,
        )
        channel = self._channel_of(record, agent, secrets)
        return FollowedWorker(record, self.book, agent, channel, limits, self._changed)

    def _channel_of(self, record: Record, agent: Agent, secrets: tuple[str, ...] = ()) -> WorkerChannel:
        request = self.book.request(record.id) if record.acp else None
        here = record.relocated and record.host is None
        state = str(self.book.folder(record.id) / "state") if here else None
        return channels.channel_of(agent, record, secrets, request, state)

    async def _follow(self, worker: FollowedWorker, environment: Environment, process: Process) -> None:
        await worker.follow(process)
        if self._surroundings is not None:
            await self._surroundings.settled(worker.record.id)
        await self._forget(worker, environment)

    async def _see_to(
        self, worker: FollowedWorker, follow: Callable[..., Coroutine[None, None, None]], *how: object
    ) -> None:
        """Follow it to its end. If following fails, end it: its output would not be read any more."""
        try:
            await follow(worker, *how)
        except Exception as exc:
            log.exception("a worker cannot be followed", extra={"reason": worker.record.id})
            worker.vanished(f"the supervisor failed over it: {type(exc).__name__}: {exc}"[:MAX_SEEN])
            if (environment := self._environments.get(worker.record.id)) is not None:
                await self._forget(worker, environment)

    async def _forget(self, worker: FollowedWorker, environment: Environment) -> None:
        self._environments.pop(worker.record.id, None)
        await environment.aclose()
        if worker.record.own_sandbox:
            ownsandbox.remove_places(worker.record.id)

    def _changed(self, worker: FollowedWorker) -> None:
        for hear in list(self._hearers):
            hear(worker)

    async def _tick(self) -> None:
        while True:
            await self._begun.wait()  # without workers there is nothing to look at
            await asyncio.sleep(TICK_S)
            if not self.alive and not any(one.owes for one in self.workers.values()):
                self._begun.clear()
            _attempt(self._give_up_orphans)
            for name in list(self._logins):
                _attempt(self._sync_login, name)
            for worker in [one for one in self.workers.values() if one.owes]:
                _attempt(worker.save)
            for worker in [one for one in self.alive if one.is_due]:
                _attempt(worker.tick)

    def _give_up_orphans(self) -> None:
        """Give up workers of a dead exec server: without a listener on its socket, redialling is useless."""
        lost = []
        for id, one in self._environments.items():
            recovering = one.state is LinkState.RECOVERING
            worker = self.workers.get(id)
            if worker is None:  # removed while its session was being closed
                continue
            if worker.record.host is not None:
                if one.state is not LinkState.FAILED:
                    worker.unreached("the link is lost, and dialled again" if recovering else "")
            elif recovering:
                lost.append(id)
        if lost and not background.is_listening(self.book.home):
            for id in lost:
                self.workers[id].vanished(_GONE)
                self._tasks.start(self._environments[id].aclose())


def _attempt(look: Callable[..., object], *about: object) -> None:
    """Run a step for one worker; a failure is logged, so that it does not affect the others."""
    try:
        look(*about)
    except Exception:
        log.exception("a worker could not be looked at")
