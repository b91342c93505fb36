"""Runs that look stuck: on the board, in both databases, and seen by a dispatcher with real workers."""

import json
from typing import Final

import pytest

from holdfast.agents.changes import changes
from holdfast.agents.changes.changes import MAX_GLANCED
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store
from holdfast.dispatch.rules.liveness import LivenessLimits
from holdfast.errors import StaleRun
from tests.support.board_command import Board
from tests.support.boards import claimed, made
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.timeout(180)

FOREVER: Final = 3600.0
WHY: Final = "the same call 12 times in a row (make), nothing changed for 10 min"


def kinds(store: Store) -> list[str]:
    found = store.events("b", limit=500)
    return [event.kind for event in found if event.kind in ("looks_stuck", "moves_again")]


def test_a_run_looks_stuck_until_it_moves_again_and_nothing_is_ended_for_it(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    other, _ = claimed(store, made(store).id)
    assert store.set_stuck(run.ref, "") == run
    assert store.set_stuck(run.ref, WHY).stuck == WHY
    assert store.set_stuck(run.ref, WHY).stuck == WHY
    assert store.task(task.id).status is TaskStatus.RUNNING
    assert store.stuck_tasks("b") == {task.id: WHY}
    assert WHY in store.why(task.id).reason
    assert "stuck" not in store.why(other.id).reason
    assert kinds(store) == ["looks_stuck"]
    store.set_stuck(run.ref, "")
    assert (store.stuck_tasks("b"), kinds(store)) == ({}, ["looks_stuck", "moves_again"])


def test_only_a_run_that_holds_its_task_looks_stuck(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    store.set_stuck(run.ref, WHY)
    store.move(task.id, Move.BLOCK)
    assert (store.stuck_tasks("b"), store.run(run.id).stuck) == ({}, "")
    with pytest.raises(StaleRun):
        store.set_stuck(run.ref, WHY)
    store.move(task.id, Move.UNBLOCK)
    claimed(store, task.id)
    with pytest.raises(StaleRun):
        store.set_stuck(run.ref, WHY)


def test_what_tools_leave_behind_is_no_sign_of_work(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("glance")
    (folder / "a").write_text("12", "utf-8")
    (folder / "b").symlink_to(folder)
    before = changes.glance(folder)
    for name in (".git", ".holdfast", "__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").write_text("x", "utf-8")
    assert changes.glance(folder) == before
    (folder / "sub").mkdir()
    (folder / "sub" / "c").write_text("345", "utf-8")
    after = changes.glance(folder)
    assert before is not None
    assert after == (before[0] + 1, before[1] + 3)
    assert changes.glance(folder / "nowhere") == (0, 0)


def test_a_workspace_with_too_many_files_is_not_looked_at(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("glance")
    monkeypatch.setattr(changes, "MAX_GLANCED", 3)
    assert MAX_GLANCED > 3
    for name in "abc":
        (folder / name).touch()
    assert changes.glance(folder) == (3, 0)
    (folder / "d").touch()
    assert changes.glance(folder) is None


# --- with a dispatcher, whose clocks the test sets


async def test_a_worker_that_does_nothing_looks_stuck_and_moves_again(yard: Yard) -> None:
    task = yard.create("echo begun; while [ ! -e end ]; do sleep 0.05; done")
    place = yard.home / "board" / task.id
    limits = LivenessLimits(look_s=0.1, still_s=FOREVER, loop_s=FOREVER, nothing_s=0.5)
    async with yard.dispatching(liveness=limits):
        await yard.when(lambda: yard.store.stuck_tasks("b"))
        commands = Board(yard.address, yard.user)
        [run] = yard.store.runs(task.id)
        assert "nothing changed" in run.stuck
        assert run.stuck in yard.store.why(task.id).reason
        assert yard.living(task)
        (place / "work").touch()
        await yard.when(lambda: "moves_again" in kinds(yard.store))
        await yard.when(lambda: yard.store.stuck_tasks("b"))
        reasons = commands.answer("task", "list", "--board", "b")["reasons"]
        assert isinstance(reasons, dict)
        assert "looks stuck" in reasons[task.id]
        assert "looks stuck" in commands.run("task", "show", task.id).stdout
        assert "looks stuck" in commands.run("task", "runs", task.id).stdout
        (place / "end").touch()
        await yard.until(task, TaskStatus.DONE)
    assert kinds(yard.store)[:2] == ["looks_stuck", "moves_again"]
    assert [run.outcome for run in yard.store.runs(task.id)] == ["completed"]
    assert yard.store.stuck_tasks("b") == {}


async def test_a_worker_that_calls_the_same_tool_again_and_again_looks_stuck(yard: Yard) -> None:
    """A stand-in for codex that says what the real one says about its commands."""
    call = {"type": "item.completed", "item": {"type": "command_execution", "command": "make test"}}
    started = '{"type":"thread.started","thread_id":"s-1"}'
    yard.program(
        "codex",
        f"echo '{started}'; while [ ! -e end ]; do echo '{json.dumps(call)}'; sleep 0.05; done",
    )
    task = yard.create("make it pass", assignee="codex")
    limits = LivenessLimits(look_s=0.1, still_s=FOREVER, loop_calls=5, loop_s=0.1, nothing_s=FOREVER)
    async with yard.dispatching(liveness=limits):
        await yard.when(lambda: yard.store.stuck_tasks("b"))
        [why] = yard.store.stuck_tasks("b").values()
        assert "times in a row (command_execution make test)" in why
        assert yard.store.task(task.id).status is TaskStatus.RUNNING
        (yard.home / "board" / task.id / "end").touch()
        await yard.until(task, *(status for status in TaskStatus if status is not TaskStatus.RUNNING))
