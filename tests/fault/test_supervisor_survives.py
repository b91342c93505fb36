"""What goes wrong with one worker ends that one at most: the supervisor goes on with the others."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.agents.supervisor import supervisor as supervising
from holdfast.agents.supervisor.daemons import find_process
from holdfast.agents.supervisor.messages import ListParams
from holdfast.agents.supervisor.service import SupervisorService
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import book
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.surroundings import WorkerSurroundings
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.errors import NotFound
from tests.support.arena import PLACE, end_exec_server
from tests.support.patience import patient

WITHIN_S: Final = patient(40.0)


class Scene:
    """A home with a supervisor, and the workers that it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor = Supervisor(folder / "h")

    async def run(self, worker: str, script: str, **more: Any) -> FollowedWorker:
        env = {"PATH": "/usr/bin:/bin"}
        wish = WorkerSpec(agent="shell", id=worker, cwd=str(self.folder), env=env, prompt=script)
        return await self.supervisor.run(msgspec.structs.replace(wish, **more))

    async def check_that_it_goes_on(self) -> None:
        """It looks at a worker that begins now, and ends it when its time is over."""
        worker = await self.run("next", "sleep 1000", wall_limit_s=0.1)
        async with asyncio.timeout(WITHIN_S):
            await worker.done.wait()
        assert worker.status.failure == "timeout"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="arena-", dir=PLACE))
    made = Scene(folder)
    await made.supervisor.open()
    try:
        yield made
    finally:
        await made.supervisor.aclose()
        await end_exec_server(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_worker_whose_output_we_cannot_take_is_ended_and_said_to_be_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a parser of ours has a fault")

    worker = await scene.run("w", "until [ -e go ]; do sleep 0.05; done; echo said; sleep 1000")
    monkeypatch.setattr(worker.channel, "feed", fail)
    process = find_process(worker.record.pid or 0)
    assert process is not None
    (scene.folder / "go").touch()
    async with asyncio.timeout(WITHIN_S):
        await worker.done.wait()
        while find_process(process.pid) == process:
            await asyncio.sleep(0.02)
    assert worker.status.state == "lost"
    assert "a parser of ours has a fault" in worker.status.about
    assert scene.supervisor.book.read("w").phase == "ended"
    await scene.check_that_it_goes_on()


async def test_a_worker_that_is_pruned_while_its_end_is_still_seen_to_stops_no_look_at_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, go_on = asyncio.Event(), asyncio.Event()

    async def settled(_: WorkerSurroundings, worker: str) -> None:
        if worker == "w":
            ended.set()
            await go_on.wait()

    monkeypatch.setattr(WorkerSurroundings, "settled", settled)
    await scene.run("w", "true")
    async with asyncio.timeout(WITHIN_S):
        await ended.wait()
        await scene.supervisor.prune(0.0, 0)
    assert "w" not in scene.supervisor.workers
    await scene.check_that_it_goes_on()
    go_on.set()


async def test_a_worker_whose_folder_somebody_removed_ends_and_leaves_nothing_open(scene: Scene) -> None:
    worker = await scene.run("w", "sleep 1000")
    shutil.rmtree(scene.supervisor.book.folder("w"))
    worker.stop(grace_s=0.0)
    async with asyncio.timeout(WITHIN_S):
        await worker.done.wait()
    assert (worker.status.failure, worker.owes) == ("killed", False)
    await scene.check_that_it_goes_on()


async def test_a_log_that_could_not_be_begun_anew_takes_everything_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left(_: object) -> int:
        raise OSError(24, "Too many open files")

    log = book.Log(tmp_path / "log", 10)
    log.append(b"one two ")
    with monkeypatch.context() as patched:
        patched.setattr(book.Log, "_open", no_descriptor_left)
        log.append(b"three ")
    assert log.owes
    log.append(b"four")
    log.close()
    assert book.tail(tmp_path / "log", 100) == b"one two three four"


async def test_a_record_that_cannot_be_taken_over_keeps_no_supervisor_from_starting(scene: Scene) -> None:
    """Whatever is wrong with what was kept of one."""
    worker = await scene.run("w", "sleep 1000")
    await scene.run("spoilt", "sleep 1000")
    await scene.supervisor.aclose()
    kept = scene.supervisor.book.folder("spoilt") / "read"
    kept.unlink()
    kept.mkdir()
    scene.supervisor = Supervisor(scene.folder / "h")
    await scene.supervisor.open()
    found = scene.supervisor.find("w")
    assert (found.record.pid, found.done.is_set()) == (worker.record.pid, False)
    with pytest.raises(NotFound, match="not followed"):
        scene.supervisor.find("spoilt")
    nobody: Any = None
    listed = await SupervisorService(scene.supervisor)._list(ListParams(ended=True), nobody)
    assert [report.id for report in listed] == ["w"]
    await scene.check_that_it_goes_on()


async def test_a_worker_that_ended_long_ago_takes_no_memory_and_is_found_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = await scene.run("living", "sleep 1000")
    ended = await scene.run("ended", "echo said; exit 3")
    async with asyncio.timeout(WITHIN_S):
        await ended.done.wait()
    scene.supervisor.let_go()
    assert scene.supervisor.workers == {"living": living, "ended": ended}
    monkeypatch.setattr(supervising, "RETAIN_S", 0.0)
    scene.supervisor.let_go()
    assert scene.supervisor.workers == {"living": living}
    found, before = scene.supervisor.find("ended").status, ended.status
    assert (found.state, found.detail, found.failure) == (before.state, before.detail, before.failure)
