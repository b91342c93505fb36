"""Sessions that drop and come back while their processes talk: no byte is lost or doubled.

The clients recover as the protocol asks of them: resume, read after the last event, repeat unanswered
writes under the same id. HOLDFAST_FUZZ_SEED=n makes other sessions; a failure names seed and session.
Thousands of sessions in `make deep`.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.executor import Executor
from holdfast.server.processes.process import SessionProcess
from holdfast.wire.methods import METHODS, decode_params
from holdfast.wire.processes import ProcessParams
from tests.support.accounting import (
    FINISH_S,
    RESUME_S,
    Account,
    Census,
    Client,
    grandchildren,
    open_files,
    settled,
)
from tests.support.mutator import chosen_seed
from tests.support.patience import patient
from tests.support.peer import ENV
from tests.support.servers import ServerProcess
from tests.support.tiers import sizes

AT_ONCE: Final = 12  # sessions: enough to keep both ends busy on two cores
DETACHED_S: Final = patient(8.0)  # shorter than in real life, so that the end can be waited for
PART_BYTES: Final = 60_000
PARTS: Final = 8
MOST_KEPT: Final = 1024 * 1024  # what a client may miss and still find: no droppable process says more
FLOOD_BYTES: Final = 4 * 1024 * 1024  # for a slow reader: more than all buffers on the way
MORE_KIB_BUSY: Final = 192 * 1024  # closed processes of the last seconds, each with its output
MORE_KIB_AFTER: Final = 8 * 1024  # pages with one object left in them
MORE_OBJECTS: Final = 2000  # caches; one object per session would be twice that in the long run

SERVER: Final = """
import asyncio, ctypes, gc, json, signal, sys
import uvloop
from holdfast import log
from holdfast.server.edges.address import parse
from holdfast.server.executor import Clocks, Executor
from holdfast.server.edges.binding import ServeOptions
from holdfast.server.edges.listen import Server

async def main():
    log.set_up(style="text", level="warning")
    executor = Executor(clocks=Clocks(detached_s={seconds}, closed_s={seconds}))
    server = Server(ServeOptions(parse(sys.argv[-1])), executor)
    def report():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is merely kept for later use is no leak
        held = [len(asyncio.all_tasks()), len(executor.sessions), len(gc.get_objects())]
        print(json.dumps(held), flush=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    loop.add_signal_handler(signal.SIGUSR1, report)
    await server.serve(lambda url: print(url, flush=True))

uvloop.run(main())
"""


@dataclass
class Room:
    """What all sessions share: where to connect, the parts their processes write, a place for files."""

    url: str
    parts: list[Path]
    flood: Path
    files: Path


Check = Callable[[Account], None]
Write = tuple[str, dict[str, str]]  # method and params


def _writes(name: str, dice: random.Random) -> tuple[bytes, list[Write]]:
    """Lines for a process, and the requests that bring them there and then end its input."""
    lines = [
        dice.randbytes(dice.randrange(1, 400)).hex().encode() + b"\n" for _ in range(dice.randrange(1, 25))
    ]
    requests: list[Write] = [
        ("process/write", {"processId": name, "chunk": base64.b64encode(line).decode(), "writeId": f"w{at}"})
        for at, line in enumerate(lines)
    ]
    return b"".join(lines), [*requests, ("process/closeStdin", {"processId": name})]


def _says(stream: str, wanted: bytes, *, code: int = 0) -> Check:
    def check(account: Account) -> None:
        got = account.output(stream)
        assert (len(got), hashlib.sha256(got).digest()) == (len(wanted), hashlib.sha256(wanted).digest())
        assert account.exit_code == code

    return check


class Talk:
    """Processes with known output, and a connection that breaks again and again."""

    def __init__(self, client: Client, dice: random.Random, room: Room) -> None:
        self._client = client
        self._dice = dice
        self._room = room
        self._todo: list[Write] = []
        self._checks: list[tuple[str, Check]] = []

    async def run(self) -> None:
        await self._client.attach()
        kinds = (self._writer, self._writer, self._hasher, self._echo, self._terminal)
        for number in range(self._dice.randrange(1, 4)):
            await self._dice.choice(kinds)(f"p{number}")
        drops = self._dice.randrange(5)
        async with asyncio.timeout(FINISH_S):
            while drops or self._todo or not await self._client.finished(self._dice.random() / 20):
                if drops and self._dice.random() < 0.3:
                    drops -= 1
                    await self._break()
                elif self._todo:
                    await self._write()
                elif drops and await self._client.finished(self._dice.random() / 20):
                    drops = 0
        for name, check in self._checks:
            check(self._client.accounts[name])

    async def _write(self) -> None:
        method, params = self._todo[0]
        assert (await self._client.peer.call(method, params))["status"] == "accepted"
        self._todo.pop(0)

    async def _break(self) -> None:
        """Drop, often with a write under way: whether it arrived or not, it is repeated afterwards."""
        if self._todo and self._dice.random() < 0.7:
            await self._client.peer.ask(*self._todo[0])
        await asyncio.sleep(self._dice.choice((0, 0, 0.005)))
        await self._client.drop()
        await asyncio.sleep(self._dice.random() / 5)
        await self._client.attach()

    async def _writer(self, name: str) -> None:
        """Both streams, with pauses, within what is kept for a client that is away."""
        commands, wanted = [], {"stdout": b"", "stderr": b""}
        for _ in range(self._dice.randrange(1, 16)):
            part = self._dice.choice(self._room.parts)
            stream = self._dice.choice(("stdout", "stderr"))
            wanted[stream] += part.read_bytes()
            commands.append(
                f"cat {part} >&{1 if stream == 'stdout' else 2}; sleep 0.0{self._dice.randrange(10)}"
            )
        assert sum(map(len, wanted.values())) < MOST_KEPT
        code = self._dice.randrange(3)
        await self._client.start(name, "; ".join(commands) + f"; exit {code}")
        self._checks += [(name, _says(stream, data, code=code)) for stream, data in wanted.items()]

    async def _hasher(self, name: str) -> None:
        data, writes = _writes(name, self._dice)
        await self._client.start(name, "exec sha256sum", pipeStdin=True)
        self._todo += writes
        self._checks.append((name, _says("stdout", hashlib.sha256(data).hexdigest().encode() + b"  -\n")))

    async def _echo(self, name: str) -> None:
        data, writes = _writes(name, self._dice)
        await self._client.start(name, 'while read -r line; do echo "$line"; done', pipeStdin=True)
        self._todo += writes
        self._checks.append((name, _says("stdout", data)))

    async def _terminal(self, name: str) -> None:
        part = self._dice.choice(self._room.parts)
        await self._client.start(name, f"stty raw -echo; cat {part}; sleep 0.1; cat {part}", tty=True)
        self._checks.append((name, _says("pty", part.read_bytes() * 2)))


async def talk(client: Client, dice: random.Random, room: Room) -> None:
    await Talk(client, dice, room).run()


async def slow_reader(client: Client, dice: random.Random, room: Room) -> None:
    """Much output, read with pauses: the process waits, and all of it arrives."""
    await client.attach()
    await client.start("p", f"cat {room.flood}")
    for _ in range(4):
        client.peer.link.transport.pause_reading()
        await asyncio.sleep(dice.random() / 5)
        client.peer.link.transport.resume_reading()
        await client.finished(0.01)
    assert await client.finished()
    _says("stdout", room.flood.read_bytes())(client.accounts["p"])


async def terminated(client: Client, dice: random.Random, room: Room) -> None:
    """Endless output, ended by force: the story stops with an exit and a close, without a gap."""
    await client.attach()
    await client.start(
        "p", "echo first; (while :; do echo more; sleep 0.001; done) & while :; do echo x; done"
    )
    await client.finished(dice.random() / 10)
    assert (await client.peer.call("process/terminate", {"processId": "p"})) == {"running": True}
    assert await client.finished()
    begin = client.accounts["p"].output("stdout")[:6]
    assert begin == b"first\n"[: len(begin)]  # it may have been ended before its first word
    assert client.accounts["p"].exit_code == 137


async def lost_start(client: Client, dice: random.Random, room: Room) -> None:
    """The connection breaks during a start: nobody knows if it happened, so it is ended afterwards."""
    await client.attach()
    for number in range(4):
        name = f"p{number}"
        command = ["/bin/sh", "-c", "echo up; sleep 1000"]
        params = {
            "processId": name,
            "argv": command,
            "cwd": "file:///tmp",
            "env": ENV,
            "tty": number % 2 == 1,
        }
        await client.peer.ask("process/start", params)
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0.0005)
        await client.drop()
        await client.attach()
        await client.peer.call("process/terminate", {"processId": name})


async def abandoned(client: Client, dice: random.Random, room: Room) -> None:
    """Gone for good, with processes, open files, a watch and a long poll left behind."""
    await client.attach()
    await client.start("p", "sleep 1000 & echo up; exec sleep 1000")
    await client.start("t", "sleep 1000 & exec sleep 1000", tty=True)
    file = room.files / f"f{dice.random()}"
    path = {"path": file.as_uri()}
    await client.peer.call("fs/writeFile", path | {"dataBase64": "AAAA"})
    await client.peer.call("fs/open", path | {"handleId": "h"})
    await client.peer.call("fs/remove", path)
    await client.peer.call("fs/watchMissing", {"watchId": 1, "missing": [path["path"]]})
    await client.peer.ask("process/read", {"processId": "t", "afterSeq": 99, "waitMs": 60_000})
    await client.drop()


Kind = Callable[[Client, random.Random, Room], Coroutine[None, None, None]]
KINDS: Final[tuple[Kind, ...]] = (*[talk] * 8, slow_reader, terminated, lost_start, abandoned)


async def _session(number: int, room: Room) -> int:
    """One session, all of it decided by the seed and its number; how often it dropped."""
    dice = random.Random(f"{chosen_seed()}:{number}")  # noqa: S311 - repeatable is the point
    kind = dice.choice(KINDS)
    client = Client(room.url)
    try:
        await kind(client, dice, room)
        if kind is not abandoned:
            await client.detach()
    except BaseException as exc:
        client.peer.link.transport.abort()
        exc.add_note(f"session {number} ({kind.__name__}), HOLDFAST_FUZZ_SEED={chosen_seed()}")
        raise
    return client.drops


class Held(NamedTuple):
    tasks: int
    sessions: int
    objects: int


async def _held(server: ServerProcess) -> Held:
    """What the server says it holds."""
    assert server._process is not None
    assert server._process.stdout is not None
    os.kill(server.pid, signal.SIGUSR1)
    async with asyncio.timeout(RESUME_S):
        return Held(*json.loads(await server._process.stdout.readline()))


@asynccontextmanager
async def _server(home: Path) -> AsyncIterator[ServerProcess]:
    home.mkdir()
    server = ServerProcess([sys.executable, "-c", SERVER.format(seconds=DETACHED_S)], home)
    await server.start()
    try:
        yield server
    except BaseException as exc:
        exc.add_note(f"stderr of the server: {server.log[-2000:] or '(empty)'}")
        raise
    finally:
        await server.stop()


def _furnished(place: Path, url: str) -> Room:
    dice = random.Random(chosen_seed())  # noqa: S311 - repeatable is the point
    (place / "files").mkdir()
    parts = [place / f"part{number}" for number in range(PARTS)]
    for part in parts:
        part.write_bytes(dice.randbytes(dice.randrange(1, PART_BYTES)))
    flood = place / "flood"
    flood.write_bytes(dice.randbytes(FLOOD_BYTES))
    return Room(url, parts, flood, place / "files")


@pytest.mark.timeout(600)
@sizes("sessions", quick=36, deep=2000)
async def test_sessions_come_and_go_and_nothing_is_lost_or_left(
    tmp_path: Path, sessions: int, record_property: Callable[[str, object], None]
) -> None:
    async with _server(tmp_path / "home") as server:
        room = _furnished(tmp_path, server.url)
        await abandoned(Client(room.url), random.Random(0), room)  # noqa: S311 - makes it open what it keeps
        while (idle := await _held(server)).sessions:
            await asyncio.sleep(0.1)
        before = Census.of(server.pid)
        numbers = itertools.count(1)
        first = await _soak(server, room, itertools.islice(numbers, sessions // 3))
        await _nothing_left(server, before, idle)
        middle, kept = Census.of(server.pid), await _held(server)
        second = await _soak(server, room, itertools.islice(numbers, sessions - sessions // 3))
        await _nothing_left(server, before, idle)
        after, held = Census.of(server.pid), await _held(server)
        assert first.drops + second.drops > sessions // 20
        record_property("sessions", sessions)
        record_property("drops", first.drops + second.drops)
        assert max(first.busiest_kib, second.busiest_kib) - before.private_kib < MORE_KIB_BUSY
        assert after.private_kib - middle.private_kib < MORE_KIB_AFTER
        assert held.objects - kept.objects < MORE_OBJECTS
        assert not list(room.files.iterdir())
        assert {path.name for path in (tmp_path / "home").iterdir()} == {"server.log"}
        assert server.log == ""


@dataclass
class Tally:
    drops: int = 0
    busiest_kib: int = 0


async def _soak(server: ServerProcess, room: Room, numbers: Iterator[int]) -> Tally:
    """Sessions of these numbers, several at a time."""
    tally = Tally()

    async def sessions() -> None:
        for number in numbers:
            tally.drops += await _session(number, room)
            tally.busiest_kib = max(tally.busiest_kib, Census.of(server.pid).private_kib)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(sessions())
    return tally


async def _nothing_left(server: ServerProcess, before: Census, idle: Held) -> None:
    """Once the last session has expired, the server holds what it held before the first."""
    async with asyncio.timeout(4 * DETACHED_S):
        while (held := await _held(server)).sessions or held.tasks > idle.tasks:
            await asyncio.sleep(0.1)
    await settled(lambda: not grandchildren(server.pid), DETACHED_S, lambda: grandchildren(server.pid))
    await settled(
        lambda: Census.of(server.pid).files <= before.files, DETACHED_S, lambda: open_files(server.pid)
    )
    assert Census.of(server.pid).children == before.children


@pytest.mark.parametrize("how", ["connection lost", "terminated", "session ended"])
async def test_a_start_taken_back_at_the_last_moment_leaves_nothing(how: str) -> None:
    executor = Executor(ENV)
    executor.open()
    try:
        session = executor.attach(mock.Mock(), None, extended=False)
        before, others = Census.of(os.getpid()).files, set(grandchildren(os.getpid()))
        start = {"processId": "p", "argv": ["sleep", "1000"], "cwd": "file:///", "env": ENV, "tty": False}
        params = decode_params(METHODS["process/start"], start | {"pipeStdin": True})
        starting = asyncio.ensure_future(session.processes.start(params))
        entries = session.processes._entries
        while not any(
            not isinstance(entry, SessionProcess) and entry.task.done() for entry in entries.values()
        ):
            await asyncio.sleep(0)  # one step at a time: it runs, and its request does not know it yet
        if how == "connection lost":
            starting.cancel()
        elif how == "terminated":
            assert session.processes.terminate(ProcessParams("p")).running
        else:
            executor.end(session)
        with pytest.raises(asyncio.CancelledError if how == "connection lost" else InvalidRequest):
            await starting
        await settled(
            lambda: others.issuperset(grandchildren(os.getpid())),
            DETACHED_S,
            lambda: grandchildren(os.getpid()),
        )
        assert Census.of(os.getpid()).files == before
    finally:
        await executor.aclose()
