"""Tasks run to their end by real workers: shells below a supervisor and an exec server, in real sandboxes."""

import json
from pathlib import Path

from holdfast.board.transitions import Status
from tests.support.dispatch import Yard, yard_fixture

__all__ = ["yard_fixture"]


async def test_a_script_goes_from_ready_to_done_and_what_it_left_is_kept(yard: Yard) -> None:
    task = yard.create("echo made > new.txt; echo all is well")
    async with yard.dispatching():
        done = await yard.until(task, Status.DONE)
    assert done.result == "all is well"
    [run] = yard.store.runs(task.id)
    assert run.outcome == "completed"
    assert run.workspace == str(yard.home / "board" / task.id)
    assert {file.name for file in yard.store.kept(run.id)} == {"end.json", "diff.patch", "output"}
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["judged"] == {"kind": "complete", "summary": "all is well"}
    assert end["changed"]["paths"] == ["A new.txt"]
    assert end["worker"]["exitCode"] == 0
    assert b"+made\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert yard.store.file(task.id, run.id, "output") == b"all is well\n"
    assert Path(run.workspace, "new.txt").read_text("utf-8") == "made\n"
