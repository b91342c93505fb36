"""Tasks whose workers run on another machine: a second exec server with a home of its own."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.dispatch.rules.fleet import WAITS
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.fleet import far_machine
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

REPORT = "holdfast handoff complete 'done there'"


async def test_a_task_runs_on_its_environment_and_its_work_comes_home(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}")
    repository = yard.repository({"kept": "kept\n", "changed": "before\n", ".gitignore": "*.o\n"})
    body = (
        f"pwd; cat .holdfast/task.md | wc -c; echo after > changed; echo new > made; echo o > x.o; {REPORT}"
    )
    task = yard.create(
        body,
        assignee="agent",
        workspace_kind="worktree",
        workspace=str(repository),
        environment="box",
        checks=("grep after changed; pwd",),
    )
    async with far_machine(yard.home, yard.folder / "there") as there, yard.dispatching():
        done = await yard.until(task, TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.HANDOFF_FAILED)
        assert done.status is TaskStatus.DONE, [
            yard.store.file(task.id, one.id, "output") for one in yard.store.runs(task.id)
        ]
        assert done.result == "done there"
        [run] = yard.store.runs(task.id)
        await yard.when(lambda: not list(there.carried.glob("*")))
    [run] = yard.store.runs(task.id)
    assert (run.environment, run.outcome, done.attempts) == ("box", "completed", 1)
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["worker"]["host"] == "box"
    assert end["changed"]["paths"] == ["M changed", "A made"]
    assert end["worker"]["backend"], "what that machine says that it enforced"
    checked = yard.store.file(task.id, run.id, "check-1").decode().splitlines()
    assert checked[0] == "after"
    assert checked[1].startswith(str(there.home)), "what came back is not run here"
    output = yard.store.file(task.id, run.id, "output").decode()
    assert output.startswith(str(there.home)), "it worked on the other machine"
    work = Path(run.workspace)
    assert (work / "changed").read_text("utf-8") == "after\n"
    assert (work / "made").read_text("utf-8") == "new\n"
    assert (repository / "changed").read_text("utf-8") == "before\n", "the repository itself is untouched"


async def test_nothing_is_lost_or_done_twice_over_a_line_that_is_cut_and_a_dispatcher_that_ends(
    yard: Yard,
) -> None:
    yard.profile("far", agent="shell", prompt="{body}", environment="box", success="exit", network=False)
    body = (
        "echo begun >> effects; echo one; holdfast handoff comment 'half of it' || exit 9;"
        " until [ -e go ]; do sleep 0.05; done; rm go; echo ended >> effects; echo two"
    )
    task = yard.create(body, assignee="far", max_attempts=1)
    async with far_machine(yard.home, yard.folder / "there", "--keep", "10m") as there:
        async with yard.dispatching():
            await yard.when(lambda: yard.store.show(task.id).comments)
            [run] = yard.store.runs(task.id)
            there.way.shut = True
            there.way.cut()
            await yard.when(lambda: yard.store.run(run.id).note.startswith(WAITS))
        (there.work(run.id) / "go").touch()  # it ends while nobody hears of it
        await yard.when(lambda: not (there.work(run.id) / "go").exists())
        async with yard.dispatching():
            there.way.shut = False
            await yard.until(task, TaskStatus.DONE, TaskStatus.FAILED)
            await yard.when(lambda: len(yard.store.kept_files(run.id)) == 3)
    done = yard.store.show(task.id)
    assert (done.task.status, done.task.attempts) == (TaskStatus.DONE, 1), done.runs[-1].error
    assert [one.body for one in done.comments] == ["half of it"]
    assert len(done.runs) == 1
    output = yard.store.file(task.id, run.id, "output").decode()
    assert [line for line in output.splitlines() if line in ("one", "two")] == ["one", "two"]
    assert Path(run.workspace, "effects").read_text("utf-8") == "begun\nended\n"
    assert not list(there.carried.glob("*")), "nothing of it is left over there"


async def test_a_machine_that_is_lost_before_a_start_holds_up_nothing_else(yard: Yard) -> None:
    seen = yard.create("exit 0", environment="box")
    async with far_machine(yard.home, yard.folder / "there") as there, yard.dispatching():
        await yard.until(seen, TaskStatus.DONE)
        there.way.shut = True
        there.way.cut()
        task = yard.create("exit 0", environment="box")  # it was reached a moment ago
        await yard.when(
            lambda: (runs := yard.store.runs(task.id)) and yard.store.run(runs[0].id).note.startswith(WAITS)
        )
        here = yard.create("exit 0")
        await yard.until(here, TaskStatus.DONE)
        there.way.shut = False
        await yard.until(task, TaskStatus.DONE)
    assert [run.outcome for run in yard.store.runs(task.id)] == ["completed"]


@pytest.mark.deep
async def test_a_server_that_was_killed_loses_its_worker_and_not_what_that_had_done(yard: Yard) -> None:
    body = "cat effects; echo $$ >> effects; if [ $(wc -l < effects) = 2 ]; then exit 0; fi; sleep 1000"
    task = yard.create(body, environment="box")
    async with far_machine(yard.home, yard.folder / "there", "--keep", "10m") as there, yard.dispatching():
        effects = "*/work/effects"
        await yard.when(lambda: list(there.carried.glob(effects)))
        await there.server.crash()
        await there.server.start()
        await yard.until(task, TaskStatus.DONE, TaskStatus.FAILED)
    done = yard.store.show(task.id)
    assert [run.outcome for run in done.runs] == ["failed", "completed"]
    assert done.runs[0].failure == "infra"
    assert done.task.attempts == 2
    assert len(Path(done.runs[0].workspace, "effects").read_text("utf-8").splitlines()) == 2


@pytest.mark.deep  # the client dials for 25 s before it gives the session up
async def test_a_run_on_a_machine_that_is_gone_for_good_is_cancelled_by_a_person(yard: Yard) -> None:
    task = yard.create("sleep 1000", environment="box")
    async with far_machine(yard.home, yard.folder / "there", "--keep", "10m") as there, yard.dispatching():
        await yard.when(lambda: list(there.carried.glob("*/work")) and yard.store.runs(task.id))
        [run] = yard.store.runs(task.id)
        there.way.shut = True
        there.way.cut()
        await yard.when(lambda: yard.store.run(run.id).note.startswith(WAITS))
        yard.store.move(task.id, Move.CANCEL)
        async with asyncio.timeout(patient(60.0)):
            while not yard.store.kept_files(run.id):
                await asyncio.sleep(0.1)
    assert yard.store.run(run.id).outcome == "cancelled"
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["worker"]["state"] == "lost"
    assert "is not reached" in end["worker"]["about"]
