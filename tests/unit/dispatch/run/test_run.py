"""One run from its claim to its end, with a worker that pretends and a clock that jumps."""

import json
from typing import Any

import pytest

from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.verbs.reviews import Review
from holdfast.dispatch.rules.runsteps import ANSWERED_S
from holdfast.dispatch.run.run import marks
from holdfast.errors import Unreachable, UsageError
from tests.support.fakes import Act, Scene, dispatching


async def only_run(scene: Scene, task: Task) -> Run:
    await scene.dispatch(once=True)
    [run] = scene.store.runs(task.id)
    return run


def write(scene: Scene, task: Task, name: str, text: str) -> None:
    (scene.home / "board" / task.id / name).write_text(text, "utf-8")


async def test_what_a_run_left_is_kept_and_its_mark_is_gone(scene: Scene) -> None:
    task = scene.create()
    scene.supervisor.cast = lambda _wish: Act(
        said=b"all is well\n", does=lambda _wish: write(scene, task, "new.txt", "made\n")
    )
    run = await only_run(scene, task)
    end = json.loads(scene.store.file(task.id, run.id, "end.json"))
    assert end["judged"] == {"kind": "complete", "summary": "all is well"}
    assert end["changed"]["paths"] == ["A new.txt"]
    assert b"+made\n" in scene.store.file(task.id, run.id, "diff.patch")
    assert scene.store.file(task.id, run.id, "output") == b"all is well\n"
    assert list(marks(scene.home).iterdir()) == []


@pytest.mark.parametrize(
    ("wishes", "failure", "words"),
    [
        ({"workspace_kind": "dir", "workspace": "/proc/nonexistent"}, "task", "could not be prepared"),
        ({"report_only": True}, "handoff", "cannot be asked for its report"),
    ],
)
async def test_a_run_that_cannot_begin_tells_the_board_why_and_starts_nothing(
    scene: Scene, wishes: dict[str, Any], failure: str, words: str
) -> None:
    report_only = wishes.pop("report_only", False)
    task = scene.create(**wishes)
    if report_only:
        scene.store.database.write(
            lambda tx: tx.select("UPDATE tasks SET report_only = 1 WHERE id = :id", {"id": task.id})
        )
    run = await only_run(scene, task)
    assert run.failure == failure
    assert words in (run.error or "")
    assert scene.supervisor.started == []


async def test_a_worker_that_the_supervisor_refuses_is_the_tasks_failure(scene: Scene) -> None:
    scene.supervisor.fail = [UsageError("the prompt is too long")]
    run = await only_run(scene, scene.create())
    assert (run.failure, run.error) == ("task", "it could not be started: the prompt is too long")


@pytest.mark.parametrize(
    ("lingers_s", "stopped"), [(ANSWERED_S - 1, False), (ANSWERED_S + 1, True)], ids=["ends", "lingers"]
)
async def test_a_worker_that_answered_may_end_by_itself_for_a_while(
    scene: Scene, lingers_s: float, stopped: bool
) -> None:
    """It answers after a second; whether it is stopped depends on how long it goes on then."""
    task = scene.create()

    def answer() -> None:
        [run] = scene.store.runs(task.id)
        scene.store.complete(run.ref, "k", "I did it")

    def cast(_wish: WorkerSpec) -> Act:
        scene.loop.call_later(1.0, answer)
        return Act(seconds=1.0 + lingers_s)

    scene.supervisor.cast = cast
    run = await only_run(scene, task)
    assert (run.outcome, scene.task(task).result) == ("completed", "I did it")
    assert bool(scene.supervisor.stopped) is stopped


async def test_work_without_a_report_is_a_failed_handoff_with_its_diff(scene: Scene) -> None:
    (scene.home / "worker-profiles.toml").write_text('[agent]\nagent = "shell"\nprompt = "{body}"\n', "utf-8")
    scene.context.profiles.look(anyway=True)
    task = scene.create(assignee="agent", max_attempts=1)
    scene.supervisor.cast = lambda _wish: Act(does=lambda _wish: write(scene, task, "done.txt", "work\n"))
    run = await only_run(scene, task)
    assert (run.outcome, scene.task(task).status) == ("handoff_failed", TaskStatus.HANDOFF_FAILED)
    assert b"+work\n" in scene.store.file(task.id, run.id, "diff.patch")


async def test_checks_run_one_after_the_other_once_the_worker_has_ended(scene: Scene) -> None:
    task = scene.create(checks=("first", "second"))
    await only_run(scene, task)
    assert scene.task(task).status is TaskStatus.DONE
    prompts = [scene.supervisor.workers[name].wish.prompt for name in scene.supervisor.started]
    assert prompts == ["true", "first", "second"]


async def test_a_failed_check_is_told_and_spends_an_attempt(scene: Scene) -> None:
    task = scene.create(checks=("grep good work",), max_attempts=1)
    scene.supervisor.cast = lambda wish: Act(
        exit_code=int(wish.prompt == "grep good work"), said=b"no good", state="failed"
    )
    await only_run(scene, task)
    assert scene.task(task).status is TaskStatus.REVIEW
    [comment] = scene.store.show(task.id).comments
    assert "exit code 1" in comment.body
    assert comment.body.endswith("no good")


async def test_a_check_is_ended_when_a_person_decides(scene: Scene) -> None:
    task = scene.create(checks=("sleep 1000",))

    def cast(wish: WorkerSpec) -> Act:
        if wish.prompt != "sleep 1000":
            return Act()
        scene.loop.call_later(9.0, lambda: scene.store.review(task.id, Review(approve=True, anyway=True)))
        return Act(seconds=None)

    scene.supervisor.cast = cast
    await only_run(scene, task)
    assert scene.task(task).status is TaskStatus.DONE
    assert len(scene.supervisor.stopped) == 1


async def test_setup_and_teardown_run_around_the_worker(scene: Scene) -> None:
    text = '[agent]\nagent = "shell"\nprompt = "{body}"\nsuccess = "exit"\nsetup = "up"\nteardown = "down"\n'
    (scene.home / "worker-profiles.toml").write_text(text, "utf-8")
    scene.context.profiles.look(anyway=True)
    task = scene.create(assignee="agent")
    await only_run(scene, task)
    assert scene.task(task).status is TaskStatus.DONE
    prompts = [scene.supervisor.workers[name].wish.prompt for name in scene.supervisor.started]
    assert prompts == ["up", "true", "down"]


async def test_a_run_that_was_cancelled_before_it_began_starts_nothing(scene: Scene) -> None:
    task = scene.create()
    won = scene.store.claim("b", worker="here", host="here")
    assert won is not None
    scene.store.move(task.id, Move.CANCEL)
    marks(scene.home).mkdir(parents=True)
    (marks(scene.home) / won[1].id).write_text("{}", "utf-8")
    await scene.dispatch(once=True)
    assert scene.supervisor.started == []
    assert list(marks(scene.home).iterdir()) == []


async def test_a_script_is_no_cli_that_is_compared_with_the_host_and_a_command_is(scene: Scene) -> None:
    (scene.home / "worker-profiles.toml").write_text('[mine]\ncommand = ["sh", "-c", "{prompt}"]\n', "utf-8")
    scene.context.profiles.look()
    for assignee in ("script", "mine"):
        await only_run(scene, scene.create(assignee=assignee))
    assert [worker.wish.compared for worker in scene.supervisor.workers.values()] == [False, True]


async def test_what_a_predecessor_owed_is_found_although_the_store_does_not_answer_at_first(
    scene: Scene,
) -> None:
    scene.create()
    won = scene.store.claim("b", worker="here", host="here")
    assert won is not None
    scene.store.complete(won[1].ref, "said", "it is done")
    marks(scene.home).mkdir(parents=True)
    (marks(scene.home) / won[1].id).write_text("{}", "utf-8")
    scene.async_store.fail = [Unreachable("the PostgreSQL server does not answer")] * 12
    async with dispatching(scene):
        await scene.until(lambda: list(marks(scene.home).iterdir()) == [])
