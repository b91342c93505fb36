"""The dispatcher without a process: a clock that jumps, a store in memory, workers that pretend."""

import asyncio
import errno
from pathlib import Path

import pytest

from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.database.database import Transaction
from holdfast.board.rules.assign import Places
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.verbs import runs
from holdfast.client.environments import FILE
from holdfast.dispatch.dispatcher import Dispatcher, DispatchOptions, find_notify
from holdfast.dispatch.run.run import RunDriver, RunMark
from holdfast.errors import OperationFailed, Unreachable
from tests.support.fakes import Act, Scene, dispatching


async def test_a_task_is_claimed_run_and_recorded(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(said=b"all is well\n")
    task = scene.create()
    await scene.dispatch(once=True)
    assert (scene.task(task).status, scene.task(task).result) == (TaskStatus.DONE, "all is well")
    assert scene.told == [("began", task.id), ("ended", task.id)]
    assert [run.outcome for run in scene.store.runs(task.id)] == ["completed"]


async def test_no_more_run_at_once_than_asked_for(scene: Scene) -> None:
    tasks = [scene.create() for _ in range(5)]
    most = 0

    def cast(_wish: WorkerSpec) -> Act:
        nonlocal most
        most = max(most, len(scene.supervisor.running()))
        return Act(seconds=10)

    scene.supervisor.cast = cast
    async with dispatching(scene, most=2):
        await scene.until(lambda: all(scene.task(task).status is TaskStatus.DONE for task in tasks))
    assert most <= 1  # beside the one that begins
    assert len(scene.supervisor.started) == 5


async def test_a_host_that_is_held_up_starts_nothing_more(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=None)
    first, second = scene.create(priority=1), scene.create()
    async with dispatching(scene, held=lambda running, _young: "no memory is free" if running else None):
        await scene.until(lambda: scene.task(first).status is TaskStatus.RUNNING)
        await asyncio.sleep(60)
        assert scene.task(second).status is TaskStatus.READY
    assert len(scene.supervisor.started) == 1


async def test_drained_it_claims_nothing_and_leaves(scene: Scene) -> None:
    task = scene.create()
    await scene.dispatch(drain=True)
    assert scene.task(task).status is TaskStatus.READY


async def test_leases_are_renewed_for_as_long_as_a_worker_runs(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=300)
    task = scene.create()
    await scene.dispatch(once=True, lease_ms=10_000)
    assert scene.task(task).status is TaskStatus.DONE
    assert len(scene.store.runs(task.id)) == 1


async def test_a_worker_whose_run_was_cancelled_is_stopped(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=None)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        scene.store.move(task.id, Move.CANCEL)
        await scene.until(lambda: ("ended", task.id) in scene.told)
    assert scene.supervisor.stopped == scene.supervisor.started
    assert [run.outcome for run in scene.store.runs(task.id)] == ["cancelled"]


async def test_a_store_that_does_not_answer_for_a_while_ends_nothing(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=30)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        scene.async_store.fail = [Unreachable("the store is gone") for _ in range(50)]
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert len(scene.supervisor.started) == 1
    told = scene.context.status.report(scene.loop.time(), runs=(), profiles=())
    assert "the store is gone" in told.error


async def test_a_dispatcher_that_was_ended_is_followed_by_one_that_takes_its_runs_on(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=100)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
    assert scene.task(task).status is TaskStatus.RUNNING
    await scene.dispatch(once=True)
    assert scene.task(task).status is TaskStatus.DONE
    assert len(scene.supervisor.started) == 1


async def test_a_run_that_was_lost_is_ended_before_the_next_run_of_its_task_begins(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=None if not scene.supervisor.started else 1)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        [run] = scene.store.runs(task.id)

        def end_elsewhere(tx: Transaction) -> None:
            tx.select("UPDATE runs SET lease_until_ms = 1 WHERE id = :id", {"id": run.id})
            runs.expire(tx, "b")

        scene.store.database.write(end_elsewhere)
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    first, _ = scene.supervisor.started
    assert scene.supervisor.stopped == [first]
    assert [one.outcome for one in scene.store.runs(task.id)] == ["lost", "completed"]


async def test_a_run_whose_lease_ran_out_while_it_was_driven_goes_on(scene: Scene) -> None:
    """As of a dispatcher that stood still for longer than a lease: no clock has jumped."""
    scene.supervisor.cast = lambda _wish: Act(seconds=10)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        scene.store.database.write(lambda tx: tx.select("UPDATE runs SET lease_until_ms = 1", {}))
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert [one.outcome for one in scene.store.runs(task.id)] == ["completed"]


async def test_a_report_that_is_refused_is_an_event_of_its_task(scene: Scene) -> None:
    def report_badly(wish: WorkerSpec) -> None:
        (Path(wish.cwd) / ".holdfast" / "outbox" / "done.json").write_text("all is well")

    scene.supervisor.cast = lambda _wish: Act(does=report_badly)
    task = scene.create()
    await scene.dispatch(once=True)
    [told] = [event for event in scene.store.events("b", limit=500) if event.kind == runs.FILE_REFUSED]
    assert (told.task_id, told.payload["file"]) == (task.id, "done.json")
    assert told.payload["reason"]


async def test_a_full_disk_costs_no_attempt_however_long_it_lasts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether we write a file ourselves or somebody else tells us so in words of ours."""
    full = True
    write, lay_out = RunDriver._write, RunDriver._lay_out

    def mark(self: RunDriver, found: RunMark) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, found)

    def prepare(self: RunDriver, place: Path) -> Path:
        if full or scene.loop.time() - scene.begun < 120:
            try:
                raise OSError(errno.EROFS, "Read-only file system")
            except OSError as exc:
                raise OperationFailed(f"cannot prepare {place}: {exc.strerror}") from None
        return lay_out(self, place)

    monkeypatch.setattr(RunDriver, "_write", mark)
    monkeypatch.setattr(RunDriver, "_lay_out", prepare)
    task = scene.create(max_attempts=1)
    async with dispatching(scene):
        await asyncio.sleep(60)
        full = False
        await asyncio.sleep(30)
        assert (scene.task(task).status, scene.supervisor.started) == (TaskStatus.RUNNING, [])
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert [run.outcome for run in scene.store.runs(task.id)] == ["completed"]


HOURS_MS = 3 * 3_600_000


@pytest.mark.parametrize("by_ms", [HOURS_MS, -HOURS_MS], ids=["ahead", "back"])
async def test_a_clock_that_jumps_makes_no_run_lost(scene: Scene, by_ms: int) -> None:
    """Neither one of ours nor one of a dispatcher that has not had the time to renew it."""
    scene.supervisor.cast = lambda _wish: Act(seconds=200)
    mine, other = scene.create(), scene.create(assignee="elsewhere")
    won = scene.store.claim("b", worker="w", host="there", assignees=["elsewhere"], lease_ms=30_000)
    assert won is not None
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        scene.jumped_ms += by_ms
        await asyncio.sleep(25)
        assert [scene.task(one).status for one in (mine, other)] == [TaskStatus.RUNNING] * 2
        await scene.until(lambda: scene.task(other).status is not TaskStatus.RUNNING, within_s=15)
        await scene.until(lambda: scene.task(mine).status is TaskStatus.DONE)
    assert len(scene.supervisor.started) == 1
    assert [one.outcome for one in scene.store.runs(mine.id)] == ["completed"]
    assert [one.outcome for one in scene.store.runs(other.id)] == ["lost"]  # one more term, not for ever
    [jump] = [event for event in scene.store.events("b", limit=500) if event.kind == runs.CLOCK_JUMPED]
    assert abs(int(str(jump.payload["by_ms"])) - by_ms) < 5


async def test_a_clock_that_jumped_before_a_dispatcher_came_costs_it_nothing(scene: Scene) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=100)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
    scene.jumped_ms += HOURS_MS
    async with dispatching(scene):
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert [one.outcome for one in scene.store.runs(task.id)] == ["completed"]


async def test_a_newcomer_ends_nothing_that_others_can_renew_within_a_tick(scene: Scene) -> None:
    """It has not seen the clock jump; those whose runs they are have, and look every second."""
    other = scene.create(assignee="elsewhere")
    won = scene.store.claim("b", worker="w", host="there", assignees=["elsewhere"])
    assert won is not None
    offset = scene.store.expire("b").offset_ms
    scene.jumped_ms += HOURS_MS
    async with dispatching(scene):
        await asyncio.sleep(0.5)
        scene.store.expire("b", living=[won[1].ref], offset_ms=offset)
        await asyncio.sleep(30)
        assert scene.task(other).status is TaskStatus.RUNNING


async def test_what_waits_for_the_clock_waits_no_longer_when_that_goes_back(scene: Scene) -> None:
    acts = iter([Act(exit_code=1), Act()])
    scene.supervisor.cast = lambda _wish: next(acts)
    task = scene.create()
    async with dispatching(scene):
        await scene.until(lambda: scene.task(task).status is TaskStatus.WAITING_SYSTEM)
        scene.jumped_ms -= HOURS_MS
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE, within_s=600)


async def test_a_driver_that_fails_begins_again_and_starts_nothing_twice(scene: Scene) -> None:
    scene.supervisor.fail = [OperationFailed("the exec server does not start")]
    task = scene.create()
    await scene.dispatch(once=True)
    assert scene.task(task).status is TaskStatus.DONE
    assert len(scene.supervisor.started) == 1


async def test_two_tasks_in_one_directory_take_turns(scene: Scene, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    wishes = {"workspace_kind": "dir", "workspace": str(project)}
    tasks = [scene.create(**wishes) for _ in range(3)]
    beside = 0

    def cast(_wish: WorkerSpec) -> Act:
        nonlocal beside
        beside = max(beside, len(scene.supervisor.running()))
        return Act(seconds=5)

    scene.supervisor.cast = cast
    async with dispatching(scene):
        await scene.until(lambda: all(scene.task(task).status is TaskStatus.DONE for task in tasks))
    assert beside == 0


async def test_environments_are_looked_for_once_a_file_or_a_profile_names_one(scene: Scene) -> None:
    def find_places() -> Places:
        dispatcher = Dispatcher(scene.context, DispatchOptions(("b",)), lambda *_: None, asyncio.Event())
        return dispatcher._find_places()

    assert find_places() == Places()
    (scene.home / "worker-profiles.toml").write_text('[far]\nagent = "shell"\nenvironment = "box"\n', "utf-8")
    scene.context.profiles.look()
    assert find_places() == Places({}, {"far": "box"})
    (scene.home / FILE).write_text('[[environments]]\nid = "box"\nurl = "ws://127.0.0.1:9"\n', "utf-8")
    assert find_places() == Places({"box": "it has not been checked yet"}, {"far": "box"})


def test_a_person_is_reminded_by_what_is_asked_for_or_by_the_program_of_the_home(tmp_path: Path) -> None:
    assert find_notify(tmp_path, ()) == ()
    program = tmp_path / "notify"
    program.write_text("#!/bin/sh\n")
    assert find_notify(tmp_path, ()) == (), "it is not executable"
    program.chmod(0o755)
    assert find_notify(tmp_path, ()) == (str(program),)
    assert find_notify(tmp_path, ["mine", "-x"]) == ("mine", "-x")
