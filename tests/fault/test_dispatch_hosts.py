"""Two hosts with homes of their own and one PostgreSQL: work is shared, a host that is cut off replaced."""

import asyncio
import contextlib
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents import background
from holdfast.board.rows import NewTask, Task
from holdfast.board.store import Store, open_store
from holdfast.board.transitions import Status
from holdfast.dispatch.dispatcher import Plan
from holdfast.dispatch.opening import serve
from holdfast.errors import StaleRun
from holdfast.handoff.sender import Sender
from tests.support import postgres
from tests.support.arena import end_exec_server, end_listener
from tests.support.dispatch import PLACE, processes_in

WITHIN_S: Final = 60.0  # a lease and a pause have to pass, on a machine with much to do
LEASE_MS: Final = 4_000
WORK: Final = "echo started >> starts; until [ -e go ]; do sleep 0.05; done; echo done"
_NAME: Final = ".s.PGSQL.5432"

pytestmark = pytest.mark.timeout(240)


class Way:
    """The way of one host to the server: a socket of the same name in another directory."""

    def __init__(self, folder: Path, address: str) -> None:
        found = re.search(r"host=([^&]+)", address)
        assert found is not None
        self._there = f"{found[1]}/{_NAME}"
        self._here = folder / _NAME
        self.address = address.replace(found[1], str(folder))
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def mend(self) -> None:
        self._server = await asyncio.start_unix_server(self._connection, self._here)

    def cut(self) -> None:
        """Nobody gets through, and whoever was through is cut off."""
        if self._server is not None:
            self._server.close()
        self._here.unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._there)
        self._writers |= {writer, back}
        await asyncio.gather(_forward(reader, back), _forward(there, writer))
        self._writers -= {writer, back}


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Host:
    """A dispatcher that runs one task at a time."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.home, self.user = name, folder / name, folder / f"{name}-user"
        self.home.mkdir(mode=0o700)
        self.user.mkdir()

    @contextlib.asynccontextmanager
    async def dispatching(self, address: str) -> AsyncIterator[None]:
        plan = Plan(("b",), most=1, lease_ms=LEASE_MS)
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.user)}
        serving = asyncio.get_running_loop().create_task(
            serve(self.home, address, plan, environ=environ, host=self.name)
        )
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await end_listener(background.supervisor_socket(self.home), signal.SIGTERM)
            await end_exec_server(self.home)

    def workspace(self, task: Task) -> Path:
        return self.home / "board" / task.id

    def started(self, task: Task) -> bool:
        return (self.workspace(task) / "starts").exists()


@pytest.fixture
def address() -> Iterator[str]:
    binaries = postgres.programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: install its server package")
    with postgres.server(binaries) as server:
        yield postgres.fresh(server)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="yard-", dir=PLACE))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with open_store(address) as opened:
        opened.create_board("b")
        yield opened


async def test_a_host_that_is_cut_off_is_replaced_and_its_late_answer_refused(
    store: Store, address: str, folder: Path
) -> None:
    first, second = Host("first", folder), Host("second", folder)
    way = Way(folder, address)
    await way.mend()
    tasks = [store.create("b", NewTask(title="do it", body=WORK, assignee="script")) for _ in range(2)]
    async with asyncio.timeout(WITHIN_S), first.dispatching(way.address), second.dispatching(address):
        while not all(first.started(task) or second.started(task) for task in tasks):
            await asyncio.sleep(0.02)
        [lost] = [task for task in tasks if first.started(task)]
        [other] = [task for task in tasks if second.started(task)]
        late = Sender.find(first.workspace(lost), {})
        way.cut()
        answering = asyncio.get_running_loop().create_task(
            asyncio.to_thread(late.send, "complete", {"summary": "late"}, channel="outbox", wait_s=WITHIN_S)
        )
        (second.workspace(other) / "go").touch()
        while not second.started(lost):
            await asyncio.sleep(0.02)
        await way.mend()
        answer = await answering
        assert answer.error is not None
        assert answer.error.kind == StaleRun.__name__
        while processes_in(first.workspace(lost)):
            await asyncio.sleep(0.02)
        (second.workspace(lost) / "go").touch()
        while any(store.task(task.id).status is not Status.DONE for task in tasks):
            await asyncio.sleep(0.02)
    way.cut()
    assert [(run.host, run.outcome) for run in store.runs(lost.id)] == [
        ("first", "lost"),
        ("second", "completed"),
    ]
    assert [(run.host, run.outcome) for run in store.runs(other.id)] == [("second", "completed")]
    assert "answer_refused" in {event.kind for event in store.events("b", limit=500)}
