"""The dispatcher killed with -9, and hosts that are cut off. Every start of a worker is a line in a file."""

import json
import signal
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import background
from holdfast.agents.worker.book import WorkerRecords
from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.context import worker_of
from holdfast.dispatch.dispatcher import host_name
from holdfast.errors import StaleRun
from holdfast.handoff import envelope, outbox
from holdfast.handoff.broker import Broker
from holdfast.handoff.sender import Sender
from holdfast.local import homekey
from tests.support.arena import end_exec_server, end_listener
from tests.support.dispatch import Yard, dispatcher, fresh_yard_fixture

__all__ = ["fresh_yard_fixture"]

WORK: Final = "echo started >> starts; until [ -e go ]; do sleep 0.05; done; echo done"


def workspace(yard: Yard, task: Task) -> Path:
    return yard.home / "board" / task.id


def starts(yard: Yard, task: Task) -> int:
    found = workspace(yard, task) / "starts"
    return len(found.read_text("utf-8").splitlines()) if found.exists() else 0


def is_answered(yard: Yard, task: Task) -> bool:
    """Whether its supervisor has heard of its start: one that ends before that has its start undone."""
    [run] = yard.store.runs(task.id)
    return WorkerRecords(yard.home).read(worker_of(run.id)).phase == "started"


async def test_the_next_dispatcher_takes_the_worker_over_and_starts_none_twice(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
    assert yard.living(task)
    assert yard.store.task(task.id).status is TaskStatus.RUNNING
    async with dispatcher(yard, "--drain") as second:
        (workspace(yard, task) / "go").touch()
        assert await second.left() == 0
    assert yard.store.task(task.id).status is TaskStatus.DONE
    assert starts(yard, task) == 1
    [run] = yard.store.runs(task.id)
    assert run.outcome == "completed"


async def test_a_worker_that_ended_while_nobody_looked_is_seen_to_its_end(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
    (workspace(yard, task) / "go").touch()
    await yard.gone(task)
    async with dispatcher(yard, "--drain") as second:
        assert await second.left() == 0
    assert yard.store.task(task.id).result == "done"
    assert starts(yard, task) == 1


async def test_a_run_that_was_claimed_and_never_started_is_started(yard: Yard) -> None:
    task = yard.create("echo done")
    won = yard.store.claim("b", worker="w", host=host_name(yard.home), task=task.id)
    assert won is not None
    async with dispatcher(yard, "--drain") as process:
        assert await process.left() == 0
    assert yard.store.task(task.id).status is TaskStatus.DONE
    assert [run.id for run in yard.store.runs(task.id)] == [won[1].id]


async def test_a_worker_that_answered_before_the_dispatcher_died_is_ended_and_what_it_left_is_kept(
    yard: Yard,
) -> None:
    task = yard.create(f"echo work > new; {WORK}")
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
    [run] = yard.store.runs(task.id)
    yard.store.complete(run.ref, "e", "answered")
    async with dispatcher(yard, "--drain") as second:
        assert await second.left() == 0
    await yard.gone(task)
    assert b"+work\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert not list((yard.home / "board" / "runs").iterdir())


async def test_a_dispatcher_that_is_told_to_go_leaves_its_workers(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard) as process:
        await yard.when(lambda: starts(yard, task))
        laid = json.loads((workspace(yard, task) / ".holdfast" / "run.json").read_bytes())
        heard = Path(laid["place"]).parent / outbox.SOCKET
        assert heard.exists()
        assert await process.end(signal.SIGTERM) == 0
    assert yard.living(task)
    assert not heard.exists()


async def test_there_is_one_dispatcher_for_each_home(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task))
        async with dispatcher(yard) as second:
            assert await second.left() == 4


async def test_a_supervisor_that_is_killed_costs_nothing(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard, "--once") as process:
        await yard.when(lambda: starts(yard, task) and is_answered(yard, task))
        await end_listener(background.supervisor_socket(yard.home), signal.SIGKILL)
        (workspace(yard, task) / "go").touch()
        assert await process.left() == 0
    assert yard.store.task(task.id).status is TaskStatus.DONE
    assert starts(yard, task) == 1


async def test_with_the_exec_server_die_its_workers_and_the_task_is_tried_again(yard: Yard) -> None:
    task = yard.create(WORK)
    async with dispatcher(yard, "--once") as process:
        await yard.when(lambda: starts(yard, task))
        await end_listener(yard.home / "exec.sock", signal.SIGKILL)
        await yard.gone(task)
        assert await process.left() == 0
    await yard.gone(task)
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.failure) == ("failed", "infra")
    assert yard.store.task(task.id).status is TaskStatus.WAITING_SYSTEM


async def test_two_workers_are_never_in_one_workspace(yard: Yard) -> None:
    """The lease of a run ends, and the same host gets the task again while the first worker is there."""
    task = yard.create(f"exec 9> lock; flock -n 9 || echo two > two; trap '' TERM; {WORK}")
    async with dispatcher(yard):
        await yard.when(lambda: starts(yard, task) == 1)
        yard.lose(yard.store.runs(task.id)[0])
        await yard.when(lambda: starts(yard, task) == 2)
        (workspace(yard, task) / "go").touch()
        await yard.until(task, TaskStatus.DONE)
    assert not (workspace(yard, task) / "two").exists()
    assert [run.outcome for run in yard.store.runs(task.id)] == ["lost", "completed"]


async def test_a_run_lost_to_another_host_is_stopped_and_its_late_answer_refused(yard: Yard) -> None:
    """As when the first host was cut off for longer than its lease; then it hears of it."""
    other = yard.folder / "other"
    task = yard.create(WORK)
    try:
        async with dispatcher(yard):
            await yard.when(lambda: starts(yard, task))
            [run] = yard.store.runs(task.id)
            grant = Sender.find(workspace(yard, task), {}).grant
            late = envelope.seal(grant, "complete", {"summary": "late"}, id="late")
            yard.store.set_cap("b", "host", run.host, 0)
            yard.lose(run)
            async with dispatcher(yard, home=other):
                await yard.gone(task)
                answer = Broker(yard.store, homekey.load(yard.home), task.id).carry_out(late)
                assert answer.error is not None
                assert answer.error.kind == StaleRun.__name__
                await yard.when(lambda: (other / "board" / task.id / "starts").exists())
                (other / "board" / task.id / "go").touch()
                await yard.until(task, TaskStatus.DONE)
    finally:
        await end_listener(background.supervisor_socket(other), signal.SIGTERM)
        await end_exec_server(other)
    assert [each.outcome for each in yard.store.runs(task.id)] == ["lost", "completed"]
    assert (
        starts(yard, task),
        len((other / "board" / task.id / "starts").read_text("utf-8").splitlines()),
    ) == (1, 1)


async def test_tasks_of_one_directory_are_worked_on_one_after_the_other(yard: Yard) -> None:
    """There is one place for a capability in it."""
    shared = yard.folder / "shared"
    shared.mkdir()
    line = r"""run=$(sed -n 's/.*"run":"\([^"]*\)".*/\1/p' .holdfast/run.json); echo $run >> beats; """
    script = line + "sleep 0.3; " + line
    tasks = [yard.create(script, workspace_kind="dir", workspace=str(shared)) for _ in range(3)]
    async with dispatcher(yard, "--once") as process:
        assert await process.left() == 0
    ran = [yard.store.runs(task.id)[0].id for task in tasks]
    said = (shared / "beats").read_text("utf-8").splitlines()
    assert sorted(said) == sorted([*ran, *ran])
    assert said[::2] == said[1::2]
