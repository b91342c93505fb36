"""Work for other machines without one: environments that a test takes away, on a loop whose clock jumps."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agents.fleet import looking
from holdfast.agents.fleet.facts import EnvironmentFacts, follow_on
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.commands.task.look import describe_return
from holdfast.dispatch.rules.fleet import WAITS
from holdfast.dispatch.rules.profiles import BUILTIN, WorkerProfile
from holdfast.errors import Unreachable
from holdfast.handoff.envelope import Grant
from tests.support.dispatch import a_run, a_task
from tests.support.fakes import Act, Scene


class Fleet:
    """The environment `box` of a scene, with one processor: four slots."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.away = ""
        self.unconfined = ""
        self.looks = 0

    async def look(
        self, home: Path, name: str, before: EnvironmentFacts | None, now: float
    ) -> EnvironmentFacts:
        assert name == "box"
        self.looks += 1
        found = EnvironmentFacts(
            at=now, reached=not self.away, since=now, error=self.away, cpus=1, unconfined=self.unconfined
        )
        return follow_on(before, found)

    def create(self, **wishes: Any) -> Task:
        return self.scene.create(environment="box", **wishes)


@pytest.fixture
def fleet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    (scene.home / "environments.toml").write_text('[[environments]]\nid = "box"\nurl = "ws://127.0.0.1:9"\n')
    made = Fleet(scene)
    monkeypatch.setattr(looking, "look", made.look)
    return made


@contextlib.asynccontextmanager
async def dispatching(scene: Scene) -> AsyncIterator[None]:
    serving = asyncio.get_running_loop().create_task(scene.dispatch())
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def note(scene: Scene, task: Task) -> str:
    return scene.store.runs(task.id)[-1].note


async def test_work_for_a_machine_that_is_away_waits_to_be_claimed(scene: Scene, fleet: Fleet) -> None:
    fleet.away = "nobody listens"
    task, here = fleet.create(), scene.create()
    async with dispatching(scene):
        await scene.until(lambda: scene.task(here).status is TaskStatus.DONE)
        await asyncio.sleep(100)
        assert scene.task(task).status is TaskStatus.READY
        assert scene.task(task).attempts == 0
        assert "environment box: unreachable since" in scene.store.why(task.id).reason
        assert "nobody listens" in scene.store.why(task.id).reason
        fleet.away = ""
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE, 60)
    assert scene.task(task).attempts == 1
    [run] = scene.store.runs(task.id)
    assert run.environment == "box"
    assert [worker.wish.host for worker in scene.supervisor.workers.values()] == [None, "box"]


async def test_nobody_dials_a_machine_that_no_work_is_for(scene: Scene, fleet: Fleet) -> None:
    scene.create()
    async with dispatching(scene):
        await asyncio.sleep(100)
    assert fleet.looks == 0


async def test_a_machine_that_is_lost_while_a_run_begins_is_waited_for(scene: Scene, fleet: Fleet) -> None:
    scene.supervisor.fail = [Unreachable("no route") for _ in range(20)]
    task = fleet.create(max_attempts=1)
    async with dispatching(scene):
        await scene.until(lambda: scene.store.runs(task.id) and note(scene, task))
        assert note(scene, task) == f"{WAITS}: box: no route"
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert (scene.task(task).attempts, len(scene.store.runs(task.id))) == (1, 1)
    assert len(scene.supervisor.started) == 1


async def test_a_run_that_waits_to_begin_can_be_cancelled(scene: Scene, fleet: Fleet) -> None:
    scene.supervisor.fail = [Unreachable("no route") for _ in range(1_000)]
    task = fleet.create()
    async with dispatching(scene):
        await scene.until(lambda: scene.store.runs(task.id) and note(scene, task))
        scene.store.move(task.id, Move.CANCEL)
        await scene.until(lambda: ("ended", task.id) in scene.told, 60)
    assert scene.supervisor.started == []
    assert [run.outcome for run in scene.store.runs(task.id)] == ["cancelled"]


async def test_a_run_goes_on_when_its_machine_comes_back_and_says_meanwhile_that_it_waits(
    scene: Scene, fleet: Fleet
) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=30)
    task = fleet.create(max_attempts=1)
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        [worker] = scene.supervisor.workers.values()
        worker.away, fleet.away = True, "no route"
        await scene.until(lambda: note(scene, task))
        assert note(scene, task) == f"{WAITS}: box: no route"
        await asyncio.sleep(100)
        assert scene.task(task).status is TaskStatus.RUNNING
        worker.away = False
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE, 60)
    assert (scene.task(task).attempts, scene.supervisor.stopped) == (1, [])
    assert len(scene.supervisor.started) == 1


async def test_a_dispatcher_that_comes_while_a_machine_is_away_begins_nothing_twice(
    scene: Scene, fleet: Fleet
) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=30)
    task = fleet.create(max_attempts=1)
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        [worker] = scene.supervisor.workers.values()
        worker.away, fleet.away = True, "no route"
        await scene.until(lambda: note(scene, task))
    async with dispatching(scene):
        await asyncio.sleep(100)
        assert note(scene, task).startswith(WAITS)
        worker.away, fleet.away = False, ""
        await scene.until(lambda: not note(scene, task) or scene.task(task).status is TaskStatus.DONE, 60)
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE, 60)
    assert len(scene.supervisor.started) == 1
    assert len(scene.store.runs(task.id)) == 1


async def test_work_that_was_reported_is_waited_for_and_not_ended(scene: Scene, fleet: Fleet) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=30)
    task = fleet.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        [run] = scene.store.runs(task.id)
        [worker] = scene.supervisor.workers.values()
        worker.away = True
        await scene.until(lambda: note(scene, task))
        scene.store.complete(run.ref, "e1", "done")
        await asyncio.sleep(100)
        assert scene.supervisor.stopped == [], "its result is over there"
        assert ("ended", task.id) not in scene.told
        worker.away = False
        await scene.until(lambda: ("ended", task.id) in scene.told, 60)
    assert scene.task(task).status is TaskStatus.DONE


async def test_a_run_whose_machine_is_gone_for_good_can_be_cancelled(scene: Scene, fleet: Fleet) -> None:
    scene.supervisor.cast = lambda _wish: Act(seconds=None)
    task = fleet.create()
    async with dispatching(scene):
        await scene.until(scene.supervisor.running)
        [worker] = scene.supervisor.workers.values()
        worker.away = True
        await scene.until(lambda: note(scene, task))
        scene.store.move(task.id, Move.CANCEL)
        await scene.until(lambda: ("ended", task.id) in scene.told, 60)
    assert scene.supervisor.stopped == scene.supervisor.started


async def test_a_start_that_came_to_nothing_is_made_again_in_the_same_run(scene: Scene, fleet: Fleet) -> None:
    def cast(_wish: WorkerSpec) -> Act:
        return Act(seconds=None if len(scene.supervisor.started) < 5 else 1.0)

    def begun(count: int) -> bool:
        return len(scene.supervisor.started) == count

    scene.supervisor.cast = cast
    task = fleet.create(max_attempts=1)
    async with dispatching(scene):
        for count in range(1, 6):
            await scene.until(functools.partial(begun, count))
            scene.supervisor.workers.clear()  # as a supervisor that lost the link before the worker ran
        await scene.until(lambda: scene.task(task).status is TaskStatus.DONE)
    assert (scene.task(task).attempts, len(scene.store.runs(task.id))) == (1, 1)


async def test_a_machine_gets_no_more_work_than_it_has_slots(scene: Scene, fleet: Fleet) -> None:
    most = 0

    def cast(_wish: WorkerSpec) -> Act:
        nonlocal most
        most = max(most, 1 + len(scene.supervisor.running()))
        return Act(seconds=10)

    scene.supervisor.cast = cast
    tasks = [fleet.create() for _ in range(9)]
    async with dispatching(scene):
        await scene.until(lambda: len(scene.supervisor.running()) == 4)
        waiting = [task for task in tasks if scene.task(task).status is TaskStatus.READY]
        assert "all 4 slots are taken" in scene.store.why(waiting[0].id).reason
        await scene.until(lambda: all(scene.task(task).status is TaskStatus.DONE for task in tasks))
    assert most == 4


async def test_a_machine_that_cannot_confine_gets_no_work(scene: Scene, fleet: Fleet) -> None:
    fleet.unconfined = "no namespaces"
    task = fleet.create()
    async with dispatching(scene):
        await asyncio.sleep(60)
        assert "it cannot confine a worker: no namespaces" in scene.store.why(task.id).reason
    assert scene.supervisor.started == []


async def test_what_only_works_here_is_refused_in_words_before_anything_starts(
    scene: Scene, fleet: Fleet
) -> None:
    (scene.home / "worker-profiles.toml").write_text('[own]\nagent = "shell"\nsetup = "make"\n', "utf-8")
    scene.context.profiles.look(anyway=True)
    task = fleet.create(assignee="own", max_attempts=1)
    async with dispatching(scene):
        await scene.until(lambda: scene.task(task).status is TaskStatus.FAILED)
    assert "setup and teardown are not run on another machine" in (scene.store.runs(task.id)[0].error or "")
    assert scene.supervisor.started == []


async def test_what_of_this_machine_is_not_for_another_one_stays_here(
    scene: Scene, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No path, no key that nobody named, and no token but its own; what is named goes along."""
    environ = scene.context.environ
    assert isinstance(environ, dict)
    monkeypatch.setitem(environ, "OPENAI_API_KEY", "secret")
    monkeypatch.setitem(environ, "NAMED", "value")
    task, run = a_task(), msgspec.structs.replace(a_run(), environment="box")
    place = scene.home / "board/t_1"
    own = WorkerProfile(name="own", agent="codex", env=("NAMED",))

    def spec(profile: WorkerProfile) -> WorkerSpec:
        return scene.context.worker_spec(run, task, profile, place, "do it", place / "run.json")

    ours, theirs = spec(BUILTIN["codex"]), spec(own)
    assert "OPENAI_API_KEY" not in ours.env
    assert theirs.env["NAMED"] == "value"
    assert (ours.host, ours.alone, ours.mcp) == ("box", True, None)
    for paths in (ours.readable, ours.writable, ours.sockets, ours.needed, ours.secret):
        assert paths == []
    assert ours.handover is not None
    grant = msgspec.json.decode(ours.handover.grant, type=Grant)
    assert (grant.run, grant.socket, grant.outbox, grant.command) == (run.id, "", "", ["holdfast"])
    assert str(scene.home) not in ours.handover.grant
    assert "HOLDFAST_RUN" not in ours.env, "the path of it is known over there alone"
    check = scene.context.script_spec(run, task, own, place, "check-1", "make", 1.0)
    assert (check.host, check.alone, check.handover) == ("box", True, None), "it has no token"
    here = scene.context.worker_spec(a_run(), task, own, place, "do it", place / "run.json")
    assert here.host is None
    assert here.handover is None


async def test_work_that_did_not_come_back_is_not_done(scene: Scene, fleet: Fleet) -> None:
    scene.supervisor.cast = lambda _wish: Act(unreturned="the disk over there is gone")
    task = fleet.create()
    async with dispatching(scene):
        await scene.until(lambda: scene.task(task).status is TaskStatus.HANDOFF_FAILED)
    [run] = scene.store.runs(task.id)
    assert run.error == "it ended well, but its work is not here: the disk over there is gone"
    assert scene.task(task).attempts == 0
    assert describe_return(run) == ["    its work is not here: the disk over there is gone"]


async def test_nothing_is_checked_of_work_that_did_not_come_back(scene: Scene, fleet: Fleet) -> None:
    def answer(_wish: WorkerSpec) -> None:
        [run] = scene.store.runs(task.id)
        scene.store.complete(run.ref, "e1", "done")

    scene.supervisor.cast = lambda _wish: Act(unreturned="it was too much", does=answer)
    task = fleet.create(checks=("true",), max_attempts=1)
    async with dispatching(scene):
        await scene.until(lambda: ("ended", task.id) in scene.told)
    assert len(scene.supervisor.started) == 1, "no check was run"
    assert scene.task(task).status is TaskStatus.REVIEW
    [comment] = scene.store.show(task.id).comments
    assert "its work did not come back: it was too much" in comment.body


def test_what_is_told_of_work_elsewhere_obeys_no_terminal() -> None:
    run = msgspec.structs.replace(a_run(), metadata={"unreturned": "a\x1b[2Jb", "left_out": ["x\x07", 3]})
    assert [line for line in describe_return(run) if "\x1b" in line or "\x07" in line] == []
    odd = msgspec.structs.replace(a_run(), metadata={"unreturned": ["no text"], "left_out": "no list"})
    assert describe_return(odd) == []
