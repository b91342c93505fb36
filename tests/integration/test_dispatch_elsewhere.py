"""Tasks whose workers run on another machine: a second exec server with a home of its own."""

import json
import sys
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.rules.fleet import WAITS
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.fleet import far_machine
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
        body, assignee="agent", workspace_kind="worktree", workspace=str(repository), environment="box"
    )
    async with far_machine(yard.home, yard.folder / "there") as there, yard.dispatching():
        done = await yard.until(task, TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.HANDOFF_FAILED)
        assert done.status is TaskStatus.DONE, [
            yard.store.file(task.id, one.id, "output") for one in yard.store.runs(task.id)
        ]
        assert done.result == "done there"
        [run] = yard.store.runs(task.id)
        await yard.when(lambda: len(yard.store.kept_files(run.id)) == 3)
        await yard.when(lambda: not list(there.carried.glob("*")))
    [run] = yard.store.runs(task.id)
    assert (run.environment, run.outcome, done.attempts) == ("box", "completed", 1)
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["worker"]["host"] == "box"
    assert end["changed"]["paths"] == ["M changed", "A made"]
    assert end["worker"]["backend"], "what that machine says that it enforced"
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
