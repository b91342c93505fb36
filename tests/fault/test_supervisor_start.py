"""What goes wrong, or is wanted otherwise, while a worker is being started."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.agents.evidence.evidence import Evidence, Exited, Source, Vanished
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor import supervisor as supervising
from holdfast.agents.supervisor.beginning import start_process
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import worker as following
from holdfast.agents.worker.book import WorkerRecords
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.client.events.ordering import Output
from holdfast.client.process import Process
from holdfast.errors import ConnectionLost, HoldfastError, NotFound, OperationFailed, UsageError
from tests.support.arena import PLACE, end_exec_server
from tests.support.patience import patient

WITHIN_S: Final = patient(40.0)


class Start:
    """A supervisor, and one worker to be started by it that would run for long."""

    def __init__(self, folder: Path, supervisor: Supervisor) -> None:
        self.folder, self.supervisor = folder, supervisor
        self.wish = WorkerSpec(
            agent="shell", id="w", cwd=str(folder), env={"PATH": "/usr/bin:/bin"}, prompt="sleep 1000"
        )


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    folder = Path(tempfile.mkdtemp(prefix="arena-", dir=PLACE))
    supervisor = Supervisor(folder / "h")
    await supervisor.open()
    try:
        yield Start(folder, supervisor)
    finally:
        await supervisor.aclose()
        await end_exec_server(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("error", [TimeoutError(), OSError(24, "Too many open files")])
async def test_a_start_that_fails_in_any_way_is_over(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(background, "reach_exec_server", failing)
    with pytest.raises(type(error)):
        await start.supervisor.run(start.wish)
    worker = start.supervisor.find("w")
    assert worker.done.is_set()
    assert worker.status.failure == "launch"


async def test_a_worker_that_is_still_for_a_while_is_looked_at_less_often(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await start.supervisor.run(start.wish)
    while worker.process is None:
        await asyncio.sleep(0)
    at = following.now()

    def due(after_s: float) -> bool:
        monkeypatch.setattr(following, "now", lambda: at + after_s)
        return worker.is_due

    assert due(0.5), "it has only just begun"
    still_s = 1000.0
    for after_s in (still_s / 2, still_s):  # the first one finds that it stalls, which is news
        assert due(after_s)
        worker.tick()
    assert not due(still_s + following.STILL_LOOK_S - 0.1)
    assert due(still_s + following.STILL_LOOK_S)
    worker.tick()
    await worker._take(worker.process, Output(10**6, "stdout", b"a word"))
    assert due(still_s + following.STILL_LOOK_S + 0.1), "it has said something"


@pytest.mark.parametrize(
    ("script", "state", "code"), [("echo said", "completed", 0), ("echo said; exit 3", "failed", 3)]
)
async def test_a_program_on_a_terminal_that_ends_at_once_is_judged_by_its_end_and_its_output_is_kept(
    start: Start, monkeypatch: pytest.MonkeyPatch, script: str, state: str, code: int
) -> None:
    """Its terminal is given its size only when it is gone."""
    real, refused = Process.resize, []

    async def too_late(process: Process, rows: int, cols: int) -> None:
        while Path(f"/proc/{process.pid}").exists():
            await asyncio.sleep(0.01)
        try:
            await real(process, rows, cols)
        except HoldfastError as exc:
            refused.append(exc)
            raise

    monkeypatch.setattr(Process, "resize", too_late)
    wish = msgspec.structs.replace(start.wish, prompt=script, tty=True)
    async with asyncio.timeout(WITHIN_S):
        worker = await start.supervisor.run(wish)
        await worker.done.wait()
    assert refused, "it was too late for its size"
    assert (worker.status.state, worker.status.failure) == (state, None if not code else "crash")
    [end] = [item.claim for item in worker.evidence() if isinstance(item.claim, Exited)]
    assert end.code == code
    assert b"said" in (start.supervisor.book.folder("w") / "output.log").read_bytes()
    assert "said" in worker.channel.shown()


@pytest.mark.parametrize("where", ["record", "files", "server"])
async def test_a_start_on_a_full_disk_leaves_nothing_and_can_be_made_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whoever is asked again would otherwise find a worker that nobody follows."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def full_there(*_: object) -> None:
        full()

    with monkeypatch.context() as patched:
        match where:
            case "record":
                patched.setattr(WorkerRecords, "write", full)
            case "files":
                patched.setattr(supervising, "FollowedWorker", full)
            case _:
                patched.setattr(background, "reach_exec_server", full_there)
        with pytest.raises(OperationFailed, match="No space left"):
            await start.supervisor.run(start.wish)
        with pytest.raises(NotFound):
            start.supervisor.find("w")
    worker = await start.supervisor.run(start.wish)
    assert worker.record.pid is not None
    worker.stop(grace_s=0.0)
    async with asyncio.timeout(WITHIN_S):
        await worker.done.wait()


async def test_the_end_of_a_worker_on_a_full_disk_is_written_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    worker = await start.supervisor.run(start.wish)
    book = start.supervisor.book
    with monkeypatch.context() as patched:
        patched.setattr(type(book), "write", full)
        worker.stop(grace_s=0.0)
        async with asyncio.timeout(WITHIN_S):
            await worker.done.wait()
        assert (worker.owes, worker.status.failure) == (True, "killed")
        assert book.read("w").phase == "started"
    async with asyncio.timeout(WITHIN_S):
        while worker.owes:
            await asyncio.sleep(0.02)
    assert book.read("w").phase == "ended"


async def test_a_worker_that_is_stopped_while_it_starts_does_not_run_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await start_process(*args, **more)

    monkeypatch.setattr(supervising, "start_process", slow)
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        group.create_task(start.supervisor.run(start.wish))
        await reached.wait()
        worker = start.supervisor.find("w")
        worker.stop()
        go_on.set()
        await worker.done.wait()
    assert worker.status.failure == "killed"


async def test_a_start_that_was_cut_short_before_there_was_a_record_can_be_made_again(start: Start) -> None:
    (start.supervisor.book.folder("w") / "state" / "tmp").mkdir(parents=True)
    worker = await start.supervisor.run(start.wish)
    worker.stop(grace_s=0.0)
    async with asyncio.timeout(WITHIN_S):
        await worker.done.wait()
    with pytest.raises(UsageError):
        await start.supervisor.run(start.wish)


async def test_a_start_whose_worker_was_given_up_meanwhile_says_so_and_writes_nothing_more(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are closed; the next ones that are opened get the same numbers."""
    others: list[Any] = []

    async def given_up(*_: Any, **__: Any) -> None:
        worker = start.supervisor.find("w")
        worker.vanished("its exec server is gone")
        others.extend(open(start.folder / str(number), "w+b") for number in range(8))  # noqa: ASYNC230, SIM115
        worker.add(Evidence(Source.DENIAL, 0.0, Vanished("more"), "more"))
        raise ConnectionLost("gone")

    monkeypatch.setattr(supervising, "start_process", given_up)
    try:
        with pytest.raises(ConnectionLost):
            await start.supervisor.run(start.wish)
        assert [os.pread(other.fileno(), 100, 0) for other in others] == [b""] * len(others)
    finally:
        for other in others:
            other.close()
    assert start.supervisor.find("w").status.state == "lost"
