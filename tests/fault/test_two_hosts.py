"""Two hosts at one real PostgreSQL: dispatchers with homes of their own, and one is cut off in mid-run."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from holdfast.agents.supervisor import background
from holdfast.board.database import postgres as board_postgres
from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import NewTask, Run, Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import tasks
from holdfast.dispatch.homefiles import STATUS
from holdfast.errors import StaleRun, Unreachable
from holdfast.handoff.envelope import HandoffAnswer
from tests.support import postgres, proc
from tests.support.arena import end_exec_server, end_listener
from tests.support.dispatch import PLACE
from tests.support.patience import patient

WITHIN_S: Final = patient(60.0)  # two of everything are started, on a machine with much to do
ORPHAN_S: Final = patient(10.0)
LEASE_MS: Final = 6_000  # heartbeats come four times as often, on a machine that may be late with them
EACH: Final = 2  # runs at once on a host
PORT: Final = ".s.PGSQL.5432"

# It reports when it may, and neither it nor what it started ends by itself.
WORK: Final = (
    r"""run=$(sed -n 's/.*"run":"\([^"]*\)".*/\1/p' .holdfast/run.json); echo $run >> effects; """
    "setsid sleep 1000 & until [ -e go ]; do sleep 0.05; done; "
    f"{shlex.join([sys.executable, '-m', 'holdfast', 'handoff', 'complete'])} --id d-$run --channel %s $run; "
    "sleep 1000"
)


class Cable:
    """The way of one host to the server, a unix socket in a directory of its own. It can be pulled."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._ends: set[asyncio.StreamWriter] = set()
        self.pulled = False

    def pull(self) -> None:
        """Every connection ends at once, and each new one."""
        self.pulled = True
        for end in self._ends:
            end.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        try:
            if self.pulled:
                return
            there, back = await asyncio.open_unix_connection(str(self._server))
            self._ends.add(back)
            await asyncio.gather(_forward(reader, back), _forward(there, writer))
            self._ends.discard(back)
        finally:
            writer.transport.abort()
            self._ends.discard(writer)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


class Host:
    """A dispatcher as a process of its own, with a home of its own."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.name, self.home = name, folder / name
        self.home.mkdir(mode=0o700)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.short_lease", self.home, address),
                *(name, str(EACH), str(LEASE_MS)),
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            cwd=Path(__file__).resolve().parents[2],
        )

    def place(self, run: Run) -> Path:
        return self.home / "board" / run.task_id

    def at_work(self) -> list[proc.Pid]:
        return proc.at_work_in(self.home / "board")

    def allow(self, runs: list[Run]) -> None:
        """Let the workers of these runs go on."""
        for run in runs:
            (self.place(run) / "go").touch()

    def letters(self, run: Run) -> list[Path]:
        return list((self.place(run) / ".holdfast" / "outbox").glob("*.json"))

    def answers(self, run: Run) -> list[HandoffAnswer]:
        found = (self.place(run) / ".holdfast" / "answers").glob("*.json")
        return [msgspec.json.decode(path.read_bytes(), type=HandoffAnswer) for path in found]

    async def aclose(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        await end_listener(background.supervisor_socket(self.home), signal.SIGTERM)
        await end_exec_server(self.home)


class Country:
    """Two hosts, one server. `first` has a cable that can be pulled."""

    def __init__(self, store: Store, first: Host, second: Host, cable: Cable) -> None:
        self.store, self.first, self.second, self.cable = store, first, second, cable

    def create(self, body: str) -> Task:
        return self.store.create("b", NewTask(title="do it", body=body, assignee="script"))

    def held(self, host: Host) -> list[Run]:
        return self.store.held_runs(host.name)

    def refused(self) -> set[str]:
        """The runs whose answers were refused, from the board's log."""
        found = self.store.events("b", limit=500)
        return {str(event.run_id) for event in found if event.kind == "answer_refused"}

    def completed(self) -> list[Run]:
        found = [run for task in self.store.page("b").tasks for run in self.store.runs(task.id)]
        return [run for run in found if run.outcome == "completed"]

    async def at_work(self, host: Host, runs: list[Run]) -> None:
        """Until the workers of these runs have begun."""
        for run in runs:
            effects = host.place(run) / "effects"
            await until(lambda effects=effects, run=run: effects.exists() and run.id in effects.read_text())  # type: ignore[misc]

    async def without_pause(self, met: Callable[[], bool]) -> None:
        """Until this is so; a pause before another try is not waited for."""

        def sooner(tx: Transaction) -> None:
            tx.select("UPDATE tasks SET wake_ms = 1 WHERE status = 'waiting_system'", {})

        def reached() -> bool:
            self.store.database.write(sooner)
            return met()

        await until(reached, every_s=0.2)

    def done(self, runs: list[Run]) -> bool:
        return all(self.store.task(run.task_id).status is TaskStatus.DONE for run in runs)


async def until(met: Callable[[], bool], every_s: float = 0.05) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not met():
            await asyncio.sleep(every_s)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    binaries = postgres.programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: install its server package")
    with postgres.server(binaries) as address:
        yield address


@pytest.fixture
async def country(server: str) -> AsyncIterator[Country]:
    address = postgres.fresh(server)
    where = address.partition("host=")[2].partition("&")[0]
    folder = Path(tempfile.mkdtemp(prefix="yard-", dir=PLACE))
    cable = Cable(Path(where) / PORT)
    async with contextlib.AsyncExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        store = opened.enter_context(open_store(address))
        store.create_board("b")
        (folder / "cable").mkdir()
        carrier = await asyncio.start_unix_server(cable.carry, str(folder / "cable" / PORT))
        opened.callback(carrier.close)
        opened.callback(cable.pull)
        hosts = []
        for name, way in (("first", address.replace(where, str(folder / "cable"))), ("second", address)):
            hosts.append(Host(folder, name, way))
            opened.push_async_callback(hosts[-1].aclose)
        for host in hosts:
            await until((host.home / STATUS).exists)
        yield Country(store, hosts[0], hosts[1], cable)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "channel"), [("pulled", "auto"), ("stopped", "outbox")])
async def test_work_is_shared_and_the_runs_of_a_host_that_is_cut_off_are_done_by_the_other(
    country: Country, fault: str, channel: str
) -> None:
    first, second = country.first, country.second
    for _ in range(2 * EACH):
        country.create(WORK % channel)
    await until(lambda: len(country.held(first)) == len(country.held(second)) == EACH)
    lost, own = country.held(first), country.held(second)
    await country.at_work(first, lost)
    await country.at_work(second, own)

    if fault == "pulled":
        country.cable.pull()
    else:
        first.process.send_signal(signal.SIGSTOP)
    second.allow(own)
    await country.without_pause(lambda: country.done(own))
    await country.without_pause(lambda: tasks_of(country.held(second)) == tasks_of(lost))
    again = country.held(second)
    await country.at_work(second, again)
    second.allow(again)
    await until(lambda: country.done(lost))
    assert first.at_work(), "nobody has told them yet"

    first.allow(lost)  # and so they report
    await until(lambda: all(first.letters(run) for run in lost))
    if fault == "pulled":
        country.cable.pulled = False
    else:
        first.process.send_signal(signal.SIGCONT)
    await until(lambda: len(country.refused()) == len(lost))
    assert country.refused() == {run.id for run in lost}
    for run in lost:
        await until(lambda run=run: not first.letters(run))  # type: ignore[misc]
        [answer] = first.answers(run)
        assert answer.error is not None
        assert answer.error.kind == StaleRun.__name__
        assert [each.outcome for each in country.store.runs(run.task_id)] == ["lost", "completed"]
    await until(lambda: not list((first.home / "board" / "runs").iterdir()))
    assert await proc.gone(first.at_work(), ORPHAN_S) == []

    assert {run.summary for run in country.completed()} == {run.id for run in [*own, *again]}
    assert country.store.faults() == []


def tasks_of(runs: list[Run]) -> set[str]:
    return {run.task_id for run in runs}


def test_a_host_that_hangs_in_the_middle_of_a_change_does_not_hold_the_board(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_postgres, "STALLED_MS", 200)
    address = postgres.fresh(server)
    with open_store(address) as hanging, open_store(address) as other:
        hanging.create_board("b")

        def hang(tx: Transaction) -> None:
            tasks.add(tx, "b", NewTask(title="half done"), who="me")
            tx.select("SELECT slug FROM boards FOR UPDATE", {})
            other.create("b", NewTask(title="done meanwhile"))

        with pytest.raises(Unreachable):
            hanging.database.write(hang)
        assert [task.title for task in hanging.page("b").tasks] == ["done meanwhile"]


def test_a_network_that_swallows_everything_is_noticed_unless_the_address_says_otherwise(server: str) -> None:
    """The kernel does that, where it is told to: there is no such network on one machine."""
    address = postgres.fresh(server)
    for given, wanted in (("", "10"), ("&keepalives_idle=7", "7")):
        database = board_postgres.PostgresDatabase(address + given)
        try:
            assert database._db.info.get_parameters()["keepalives_idle"] == wanted
        finally:
            database.close()
