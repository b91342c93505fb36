"""Workers on other machines, as the supervisor sees to them: a session there, the workspace carried over
before the start, and what became of it brought back before anybody hears of the end.
"""

import asyncio
import contextlib
import os
import posixpath
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.changes.git import Git
from holdfast.agents.fleet import returned, sending, starting, there
from holdfast.agents.fleet.sending import Carried
from holdfast.agents.supervisor import background
from holdfast.agents.worker.book import Record, WorkerRecords
from holdfast.agents.worker.launching import PreparedStart, WorkerSpec
from holdfast.agents.worker.reach import find_unnamed, may_need_names
from holdfast.agents.worker.worker import FollowedWorker, WorkerChannel, now
from holdfast.client.environment import Environment
from holdfast.client.environments import FILE, Environments
from holdfast.client.process import Process
from holdfast.client.recovery import delays, worth_retrying
from holdfast.errors import ConnectionLost, HoldfastError, NotFound, SessionLost
from holdfast.local.atomicfile import replace_file
from holdfast.local.trees import remove_tree

UNREACHED_S: Final = 3600.0  # how long a machine is dialled whose session may still be kept
CUT_SHORT: Final = "the supervisor died before it could start it"
ATTEMPTS: Final = 3  # to bring a result back over links that are lost meanwhile
CARRIED: Final = "carried.json"
FOLDER: Final = "carried"


@dataclass(frozen=True, slots=True)
class FarStart:
    """Everything that a start on another machine needs, besides the session; nothing has been sent yet."""

    ready: PreparedStart
    carried: Carried
    bundle: Path
    place: str
    cwd: str
    home: str
    host: str


async def open_session(home: Path, host: str, *, resume: str | None = None) -> Environment:
    """A session with an environment of this home, or at that address; `resume` is one that was left.

    Raises:
        UsageError: there is no such environment.
        Unreachable: nobody answers there.
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
    """Look at the other machine, and pack what is to be carried there.

    Raises:
        HoldfastError: it cannot be started there.
    """
    machine = await there.look(environment, agent.binary, starting.SECRET)
    if not machine.git:
        raise NotFound(f"git is not on the PATH of {machine.name}, and carries the workspace")
    own = book.folder(worker) / FOLDER
    with contextlib.suppress(FileNotFoundError):  # of a start that came to nothing
        remove_tree(own)
    own.mkdir(mode=0o700, parents=True)
    carried, bundle = await sending.pack(git_of(book.home), Path(wish.cwd), own)
    place = await there.make(environment, machine.place(worker))
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


async def send(book: WorkerRecords, record: Record, start: FarStart, environment: Environment) -> None:
    """Carry the workspace over, and what the CLI needs in its state.

    Raises:
        HoldfastError: it does not get there.
    """
    replace_file(book.folder(record.id) / CARRIED, msgspec.json.encode(start.carried))
    await there.unpack(environment, start.carried, start.bundle, start.place, confined=record.confined)
    start.bundle.unlink(missing_ok=True)
    for path, text in start.ready.files.items():
        await environment.files.make_directory(posixpath.dirname(path), parents=True)
        await environment.files.write(path, text.encode())


def read_carried(book: WorkerRecords, worker: str) -> Carried:
    """Raises NotFound: nothing was carried for it."""
    try:
        return msgspec.json.decode((book.folder(worker) / CARRIED).read_bytes(), type=Carried)
    except (OSError, msgspec.MsgspecError):
        raise NotFound(f"nothing was carried to another machine for {worker}") from None


async def bring_back(book: WorkerRecords, record: Record, environment: Environment) -> None:
    """What it left over there, into our own directory; then nothing of it stays there. The record says so.

    Raises:
        SessionLost: the other machine is not reached any more.
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
    if gathered.ignored:
        record.notes.append(f"ignored, and not brought back: {', '.join(gathered.ignored)}")
    with contextlib.suppress(HoldfastError):  # then `place` says that something is left
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
    """Follows workers on other machines, each over as many links as it takes."""

    def __init__(
        self,
        book: WorkerRecords,
        environments: dict[str, Environment],
        channel_of: Callable[[Record, Agent], WorkerChannel],
        forget: Callable[[FollowedWorker, Environment], Awaitable[None]],
    ) -> None:
        self._book = book
        self._environments = environments
        self._channel_of = channel_of
        self._forget = forget

    async def follow(self, worker: FollowedWorker, held: tuple[Environment, Process] | None) -> None:
        """To its end, with what it changed brought back."""
        worker.returning = lambda: self._bring_back(worker)
        while held is not None:
            environment, process = held
            try:
                await worker.follow(process)
                await self._forget(worker, environment)
                return
            except SessionLost as exc:
                self._environments.pop(worker.record.id, None)
                await environment.leave()
                held = await self._reach_again(worker, str(exc))

    async def take_over(self, worker: FollowedWorker) -> None:
        """One whose supervisor has ended; it may take long to reach."""
        await self.follow(worker, await self._reach_again(worker, "the supervisor was started anew"))

    async def _bring_back(self, worker: FollowedWorker) -> None:
        await bring_back(self._book, worker.record, self._environments[worker.record.id])
        worker.save()

    async def _reach_again(self, worker: FollowedWorker, why: str) -> tuple[Environment, Process] | None:
        """Session and process, once the machine is reached; None if they are gone, or it takes too long."""
        record = worker.record
        worker.unreached(why)
        until, waits = now() + UNREACHED_S, delays(random.random)
        while True:
            try:
                found = await open_session(self._book.home, record.host or "", resume=record.session_id)
                break
            except HoldfastError as exc:
                if not worth_retrying(exc):
                    _give_up(worker, f"{record.host} does not have its session any more: {exc}")
                    return None
                if now() > until or record.ended_by is not None:
                    _give_up(worker, f"{record.host} is not reached: {exc}")
                    return None
            await asyncio.sleep(next(waits))
        self._environments[record.id] = found
        try:
            process = await found.adopt(record.process_id, tty=record.tty, watch=record.watch)
        except HoldfastError as exc:
            if record.phase == "prepared":
                worker.not_started(CUT_SHORT)
            else:
                _give_up(worker, f"its process on {record.host} is gone: {exc}")
            await self._forget(worker, found)
            return None
        record.phase = "started"
        worker.channel = self._channel_of(record, worker.agent)  # which is told everything again
        worker.unreached("")
        return found, process


def _give_up(worker: FollowedWorker, why: str) -> None:
    """What is known, and what is not."""
    record = worker.record
    record.unreturned = f"{why}; what it left may be in {record.place}/work there"
    worker.vanished(f"{why}; whether it ended, and what it did since, is not known")
