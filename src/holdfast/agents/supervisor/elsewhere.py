"""How the supervisor handles workers on other machines: it opens a session there, sends the workspace before
the start, and brings the result back before it reports the end.
"""

import asyncio
import contextlib
import math
import os
import posixpath
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.catalog.agent import Agent
from holdfast.agents.changes.git import Git
from holdfast.agents.fleet import returned, sending, starting, there
from holdfast.agents.fleet.courier import Courier
from holdfast.agents.fleet.sending import Carried
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.beginning import adopt_process
from holdfast.agents.worker.book import Record, WorkerRecords
from holdfast.agents.worker.launching import Handover, PreparedStart, WorkerSpec
from holdfast.agents.worker.reach import find_unnamed, may_need_names
from holdfast.agents.worker.worker import FollowedWorker, WorkerChannel, now
from holdfast.client.environment import Environment
from holdfast.client.environments import FILE, Environments
from holdfast.client.process import Process
from holdfast.client.recovery import delays, worth_retrying
from holdfast.errors import ConnectionLost, HoldfastError, NotFound, SessionLost
from holdfast.local.atomicfile import replace_file
from holdfast.local.trees import remove_tree

UNREACHED_S: Final = 3600.0  # how long we redial a machine that may still keep the session
CUT_SHORT: Final = "the supervisor died before it could start it"
STARTS: Final = 50  # start attempts of one worker over failing links: each may leave a directory there
CARRY_S: Final = 0.5  # between rounds that carry a worker's letters
LAST_LOOKS: Final = 100  # rounds for the outbox of a worker that has ended
ATTEMPTS: Final = 3  # to bring a result back over failing links
CARRIED: Final = "carried.json"
FOLDER: Final = "carried"


@dataclass(frozen=True, slots=True)
class FarStart:
    """Everything that a start on another machine needs, except the session; nothing has been sent yet."""

    ready: PreparedStart
    carried: Carried
    bundle: Path
    place: str
    cwd: str
    home: str
    host: str


async def open_session(home: Path, host: str, *, resume: str | None = None) -> Environment:
    """Open a session with an environment of this home, or at that address, or `resume` a session.

    Raises:
        UsageError: there is no such environment.
        Unreachable: no server answers there.
        InvalidRequest: the session to resume does not exist any more.
    """
    if "://" in host:
        return await Environment.open(host, resume=resume)
    file = home / FILE
    return await Environments.load(file if file.exists() else None).open(host, resume=resume)


def git_of(home: Path) -> Git:
    return Git(home, os.environ.get("HOME", "/"), background.reach_exec_server)


async def prepare(
    book: WorkerRecords, worker: str, wish: WorkerSpec, agent: Agent, environment: Environment
) -> FarStart:
    """Examine the other machine, and pack the workspace for it.

    Raises:
        HoldfastError: it cannot be started there.
    """
    machine = await there.look(environment, agent.binary, starting.SECRET)
    if not machine.git:
        raise NotFound(f"git is not on the PATH of {machine.name}, and carries the workspace")
    own = book.folder(worker) / FOLDER
    with contextlib.suppress(FileNotFoundError):  # left by a failed start
        remove_tree(own)
    own.mkdir(mode=0o700, parents=True)
    carried, bundle = await sending.pack(git_of(book.home), Path(wish.cwd), own, alone=wish.alone)
    tries = STARTS if wish.handover is not None else 1
    place = await there.make(environment, machine.place(worker), tries=tries)
    try:
        ready = starting.prepare(
            wish,
            agent,
            machine,
            place=place,
            below=carried.below,
            limited=environment.info.capabilities.holdfast_limits,
            unnamed=await find_unnamed(environment) if may_need_names(wish, agent) else None,
            unkept="" if environment.info.capabilities.holdfast_secrets else "the server there keeps none",
        )
    except HoldfastError:
        await there.clear(environment, place)
        raise
    cwd = posixpath.join(place, "work", carried.below).rstrip("/")
    return FarStart(ready, carried, bundle, place, cwd, machine.home, machine.name)


async def send(
    book: WorkerRecords, record: Record, start: FarStart, handover: Handover | None, environment: Environment
) -> None:
    """Send the workspace, the files beside it, and the files that the CLI needs in its state.

    Raises:
        HoldfastError: the transfer fails.
    """
    replace_file(book.folder(record.id) / CARRIED, msgspec.json.encode(start.carried))
    await there.unpack(environment, start.carried, start.bundle, start.place, confined=record.confined)
    start.bundle.unlink(missing_ok=True)
    if handover is not None:
        await Courier(handover, start.cwd).lay_out(environment)
    for path, text in start.ready.files.items():
        await environment.files.make_directory(posixpath.dirname(path), parents=True)
        await environment.files.write(path, text.encode())


def read_carried(book: WorkerRecords, worker: str) -> Carried:
    """Read what was sent for a worker. Raises NotFound if nothing was."""
    try:
        return decoding.decode((book.folder(worker) / CARRIED).read_bytes(), Carried)
    except (OSError, msgspec.MsgspecError):
        raise NotFound(f"nothing was carried to another machine for {worker}") from None


async def bring_back(book: WorkerRecords, record: Record, environment: Environment) -> None:
    """Bring the result into our own directory and remove the remote one; note the outcome in the record.

    Raises:
        SessionLost: the session with the other machine is lost.
    """
    try:
        carried = read_carried(book, record.id)
        gathered = await _gather(environment, carried, record.place)
        message = f"Work of {record.id} on {record.host}"
        own = book.folder(record.id) / FOLDER
        record.returned = await returned.receive(git_of(book.home), carried, own, gathered, message)
    except SessionLost:
        raise
    except (HoldfastError, OSError) as exc:
        record.unreturned = f"{exc}; its files are in {record.place}/work on {record.host}"
        return
    record.unreturned = None
    ignored = [name for name in gathered.ignored if name.rstrip("/").rpartition("/")[2] != ".holdfast"]
    if ignored:
        record.notes.append(f"ignored, and not brought back: {', '.join(ignored)}")
    with contextlib.suppress(HoldfastError):  # if this fails, `place` stays set
        await there.clear(environment, record.place)
        record.place = ""


async def _gather(environment: Environment, carried: Carried, place: str) -> there.Gathered:
    for left in reversed(range(ATTEMPTS)):
        try:
            return await there.gather(environment, carried, place)
        except SessionLost:
            raise
        except ConnectionLost:
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


class FarWorkers:
    """Follows workers on other machines, reconnecting as often as needed."""

    def __init__(
        self,
        book: WorkerRecords,
        environments: dict[str, Environment],
        channel_of: Callable[[Record, Agent], WorkerChannel],
        forget: Callable[[FollowedWorker, Environment], Awaitable[None]],
        undo: Callable[[FollowedWorker], Awaitable[None]],
    ) -> None:
        self._book = book
        self._environments = environments
        self._channel_of = channel_of
        self._forget = forget
        self._undo = undo

    async def follow(self, worker: FollowedWorker, held: tuple[Environment, Process] | None) -> None:
        """Follow a worker to its end; carry its letters meanwhile, and bring its result back at the end."""
        courier = self._find_courier(worker)
        worker.returning = lambda: self._bring_back(worker, courier)
        while held is not None:
            environment, process = held
            carrying = asyncio.get_running_loop().create_task(_carry(courier, environment))
            try:
                await worker.follow(process)
                await self._forget(worker, environment)
                return
            except SessionLost as exc:
                self._environments.pop(worker.record.id, None)
                await environment.leave()
                held = await self._reach_again(worker, str(exc))
            finally:
                carrying.cancel()
                await asyncio.gather(carrying, return_exceptions=True)

    async def take_over(self, worker: FollowedWorker) -> None:
        """Take over a worker after a supervisor restart; it may take long to reach."""
        await self.follow(worker, await self._reach_again(worker, "the supervisor was started anew"))

    def _find_courier(self, worker: FollowedWorker) -> Courier | None:
        """Return the courier of a worker; None if it does not report to a dispatcher."""
        with contextlib.suppress(NotFound):
            handover = self._book.wish(worker.record.id).wish.handover
            if handover is not None:
                return Courier(handover, worker.record.cwd)
        return None

    async def _bring_back(self, worker: FollowedWorker, courier: Courier | None) -> None:
        record, environment = worker.record, self._environments[worker.record.id]
        if courier is not None:
            try:
                await _fetch_last(courier, environment)
            except SessionLost:
                raise
            except (HoldfastError, OSError) as exc:
                record.notes.append(f"what it said last did not come back: {exc}")
        await bring_back(self._book, record, environment)
        worker.save()

    async def _reach_again(self, worker: FollowedWorker, why: str) -> tuple[Environment, Process] | None:
        """Reconnect; return session and process, or None if they are gone or it takes too long.

        For a worker that reports to a dispatcher we wait without limit, until it is reached or is to be
        ended.
        """
        record = worker.record
        worker.unreached(why)
        courier = self._find_courier(worker)
        until, waits = math.inf if courier is not None else now() + UNREACHED_S, delays(random.random)
        while True:
            try:
                found = await open_session(self._book.home, record.host or "", resume=record.session_id)
                break
            except HoldfastError as exc:
                if not worth_retrying(exc):
                    await self._salvage(worker, courier, f"does not have its session any more: {exc}")
                    return None
                if now() > until or record.ended_by is not None:
                    _give_up(worker, f"{record.host} is not reached: {exc}")
                    return None
            await asyncio.sleep(next(waits))
        self._environments[record.id] = found
        try:
            process = await adopt_process(found, worker)
        except HoldfastError as exc:
            if record.phase != "prepared":
                _give_up(worker, f"its process on {record.host} is gone: {exc}")
            elif courier is None:
                worker.not_started(CUT_SHORT)
            else:
                await self._take_back(worker, found)
                return None
            await self._forget(worker, found)
            return None
        if record.phase == "prepared" and courier is not None:  # it may lack its input, so it is started anew
            with contextlib.suppress(HoldfastError):
                await process.terminate()
            await self._take_back(worker, found)
            return None
        record.phase = "started"
        worker.channel = self._channel_of(record, worker.agent)  # new, because all output is read again
        worker.unreached("")
        return found, process

    async def _take_back(self, worker: FollowedWorker, environment: Environment) -> None:
        """Undo a start of which nothing runs, as if it had never been requested; the caller may ask again."""
        with contextlib.suppress(HoldfastError):
            await there.clear(environment, worker.record.place)
        await self._undo(worker)

    async def _salvage(self, worker: FollowedWorker, courier: Courier | None, why: str) -> None:
        """Bring the files back of a worker that its server ended together with its session."""
        record = worker.record
        try:
            found = await open_session(self._book.home, record.host or "")
        except HoldfastError:
            _give_up(worker, f"{record.host} {why}")
            return
        self._environments[record.id] = found
        if record.phase == "prepared" and courier is not None:
            await self._take_back(worker, found)
            return
        try:
            await self._bring_back(worker, courier)
        except HoldfastError as exc:
            record.unreturned = f"{exc}; what it left may be in {record.place}/work on {record.host}"
        worker.vanished(f"{record.host} {why}; how it ended is not known")
        await self._forget(worker, found)


async def _carry(courier: Courier | None, environment: Environment) -> None:
    """Carry letters until cancelled; failures are retried in the next round."""
    while courier is not None:
        with contextlib.suppress(HoldfastError, OSError):
            await courier.carry(environment)
        await asyncio.sleep(CARRY_S)


async def _fetch_last(courier: Courier, environment: Environment) -> None:
    """Fetch the last letters of a worker that has ended; no process will read their answers."""
    for _ in range(LAST_LOOKS):
        if not await courier.carry(environment):
            return


def _give_up(worker: FollowedWorker, why: str) -> None:
    """Note in the record that the worker is lost, what is known, and what is not."""
    record = worker.record
    record.unreturned = f"{why}; what it left may be in {record.place}/work there"
    worker.vanished(f"{why}; whether it ended, and what it did since, is not known")
