"""Hosts that a run waits for: what is put on the board, what is passed on, and what is written down."""

import asyncio

import pytest

from holdfast.agents.evidence.evidence import AskedHost
from holdfast.board.rules.rows import HostQuestion, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.verbs.hostquestions import LATE, MAX_ASKED
from holdfast.dispatch.rules.liveness import LivenessLimits
from holdfast.dispatch.run.hostasking import GONE, NoteOutcome, PassAnswer, PutQuestion, plan_steps
from holdfast.errors import ConnectionLost, InvalidRequest
from tests.support.fakes import Act, Scene, dispatching
from tests.support.rows import every_row

API = AskedHost(request="n1", host="api.test", port=443, program="/usr/bin/curl")
TOLD = {
    told: AskedHost(request="n1", host="api.test", port=443, told=told) for told in ("allowed", "refused")
}
OTHER = AskedHost(request="n2", host="api.test", port=443)  # of another command of the same worker


def kept(*, answer: str = "", outcome: str = "") -> HostQuestion:
    return HostQuestion(
        task_id="t_1",
        run_id="r_1",
        request="n1",
        host="api.test:443",
        program="",
        pattern="",
        asked_ms=0,
        answer=answer,
        outcome=outcome,
    )


@every_row(
    ("asked", "known", "steps"),
    [
        ([], [], []),
        ([API], [], [PutQuestion(API)]),
        ([API, OTHER], [], [PutQuestion(API)]),
        ([API], [kept()], []),
        ([API, OTHER], [kept()], []),
        ([API], [kept(answer="yes")], [PassAnswer("n1", "host")]),
        ([API], [kept(answer="no")], [PassAnswer("n1", "no")]),
        ([API, OTHER], [kept(answer="pattern")], [PassAnswer("n1", "pattern"), PassAnswer("n2", "pattern")]),
        ([TOLD["allowed"]], [kept(answer="yes")], [NoteOutcome("n1", "allowed")]),
        ([TOLD["allowed"]], [kept()], [NoteOutcome("n1", "allowed")]),
        ([TOLD["refused"], OTHER], [kept(answer="no")], [PassAnswer("n2", "no")]),
        ([], [kept()], [NoteOutcome("n1", GONE)]),
        ([], [kept(answer="yes")], [NoteOutcome("n1", LATE)]),
        ([], [kept(answer="yes", outcome="allowed")], []),
        ([OTHER], [kept(outcome="no answer in time")], [PutQuestion(OTHER)]),
    ],
)
def test_board_and_worker_are_brought_together(
    asked: list[AskedHost], known: list[HostQuestion], steps: list[object]
) -> None:
    assert plan_steps(asked, known) == steps


def test_once_a_worker_has_ended_nobody_waits() -> None:
    assert plan_steps([API], [kept(answer="yes")], ended=True) == [NoteOutcome("n1", LATE)]
    assert plan_steps([API], [], ended=True) == []


# --- with a dispatcher whose clock jumps


def history(scene: Scene) -> list[tuple[str, str, object]]:
    """Who said what about hosts."""
    return [
        (event.kind, event.actor, event.payload.get("answer") or event.payload.get("outcome"))
        for event in scene.store.events("b", limit=500)
        if event.kind.startswith("host_")
    ]


async def running(scene: Scene) -> tuple[Task, str]:
    """A task that runs, and its worker."""
    scene.supervisor.cast = lambda _wish: Act(seconds=None)
    task = scene.create()
    await scene.until(lambda: scene.supervisor.running())
    return task, scene.supervisor.running()[0]


def open_hosts(scene: Scene, task: Task) -> list[str]:
    return [one.host for one in scene.store.asking_tasks("b").get(task.id, [])]


@pytest.mark.parametrize(("said", "option", "outcome"), [("yes", "host", "allowed"), ("no", "no", "refused")])
async def test_a_question_reaches_the_board_and_its_answer_the_worker(
    scene: Scene, said: str, option: str, outcome: str
) -> None:
    async with dispatching(scene):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await scene.until(lambda: open_hosts(scene, task))
        [waiting] = scene.store.inbox("b").waiting
        assert (waiting.task, waiting.status) == (task.id, TaskStatus.RUNNING)
        assert waiting.question == "/usr/bin/curl wants to reach api.test:443"
        assert waiting.next[0] == f"holdfast task answer {task.id} yes api.test:443"
        assert "wants to reach api.test:443" in scene.store.why(task.id).reason
        scene.store.answer_host(task.id, said, "api.test:443", who="ada")
        scene.async_store.news.set()  # as a store of its own says that somebody changed it
        await scene.until(lambda: len(history(scene)) == 3, within_s=1.0)
    assert scene.supervisor.answered == [("n1", option)]
    assert history(scene) == [
        ("host_asked", "board", None),
        ("host_answered", "ada", said),
        ("host_settled", "board", outcome),
    ]
    assert scene.store.inbox("b").waiting == []


async def test_a_dispatcher_that_is_followed_by_another_leaves_the_question_to_it(scene: Scene) -> None:
    async with dispatching(scene):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await scene.until(lambda: open_hosts(scene, task))
    scene.store.answer_host(task.id, "yes", "api.test:443", who="ada")
    async with dispatching(scene):
        await scene.until(lambda: len(history(scene)) == 3)
    assert scene.supervisor.answered == [("n1", "host")]
    assert [kind for kind, _, _ in history(scene)].count("host_asked") == 1


async def test_what_nobody_waits_for_after_a_crash_is_over(scene: Scene) -> None:
    """The supervisor ended as well: its connections were told no."""
    text = '[script]\nagent = "shell"\nsuccess = "exit"\nprompt = "{body}"\nask_network = true\n'
    (scene.home / "worker-profiles.toml").write_text(text, "utf-8")
    scene.context.profiles.look(anyway=True)
    async with dispatching(scene):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await scene.until(lambda: open_hosts(scene, task))
    scene.supervisor.workers[worker].asked.clear()
    scene.store.answer_host(task.id, "yes", "api.test:443", who="ada")
    async with dispatching(scene):
        await scene.until(lambda: len(history(scene)) == 3)
    assert history(scene)[-1] == ("host_settled", "board", LATE)
    assert scene.supervisor.answered == []


async def test_a_worker_that_waits_for_an_answer_keeps_its_run_and_never_looks_stuck(scene: Scene) -> None:
    limits = LivenessLimits(look_s=1.0, nothing_s=5.0)
    async with dispatching(scene, lease_ms=10_000, liveness=limits):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await asyncio.sleep(60.0)
        scene.supervisor.tell_host(worker, "n1", "no answer in time")
        await scene.until(lambda: len(history(scene)) == 2)
        assert (scene.task(task).status, scene.store.stuck_tasks("b")) == (TaskStatus.RUNNING, {})
        await scene.until(lambda: scene.store.stuck_tasks("b"))  # from now on it is its own time
    kinds = [event.kind for event in scene.store.events("b", limit=500)]
    assert kinds.index("looks_stuck") > kinds.index("host_settled")
    assert history(scene)[-1] == ("host_settled", "board", "no answer in time")
    assert len(scene.store.runs(task.id)) == 1
    with pytest.raises(InvalidRequest, match="no answer in time"):
        scene.store.answer_host(task.id, "yes", "api.test:443")


async def test_an_answer_that_is_lost_on_its_way_is_passed_on_again(scene: Scene) -> None:
    async with dispatching(scene):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await scene.until(lambda: open_hosts(scene, task))
        scene.supervisor.fail_answers = [ConnectionLost("it is gone")]
        scene.store.answer_host(task.id, "yes", "api.test:443", who="ada")
        scene.async_store.news.set()
        await scene.until(lambda: len(history(scene)) == 3)
    assert scene.supervisor.answered == [("n1", "host")]
    assert history(scene)[-1] == ("host_settled", "board", "allowed")


async def test_questions_of_a_run_that_is_taken_away_are_over_with_it(scene: Scene) -> None:
    async with dispatching(scene):
        task, worker = await running(scene)
        scene.supervisor.ask_host(worker, "n1", "api.test")
        await scene.until(lambda: open_hosts(scene, task))
        scene.store.move(task.id, Move.CANCEL)
        scene.async_store.news.set()
        assert scene.store.inbox("b").waiting == []
        await scene.until(lambda: len(history(scene)) == 2)
    assert history(scene)[-1] == ("host_settled", "board", GONE)


async def test_a_worker_that_asks_on_and_on_is_refused_without_a_question(scene: Scene) -> None:
    async with dispatching(scene):
        task, worker = await running(scene)
        for number in range(MAX_ASKED + 5):
            scene.supervisor.ask_host(worker, f"n{number:03}", f"h{number:03}.test")
        await scene.until(lambda: len(scene.supervisor.answered) == 5)
        assert len(open_hosts(scene, task)) == MAX_ASKED
        [waiting] = scene.store.inbox("b").waiting
        assert waiting.question.endswith(f"(and {MAX_ASKED - 1} more)")
    assert {option for _, option in scene.supervisor.answered} == {"no"}
