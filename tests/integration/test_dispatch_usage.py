"""Budgets that stop: stand-ins for an agent's CLI say what they use, to a real dispatcher and supervisor."""

import json
import os
import shlex
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.worker.statefiles import MAX_ENTRIES, MAX_TAIL
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.dispatch import supervisorclient
from holdfast.dispatch.run.budgetmeter import count_tokens
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

FOR_EVER: Final = "sleep 1000 & setsid sleep 1000 & trap '' TERM; while :; do sleep 0.1; done"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisorclient, "LOOK_S", 0.5)


def step(amount: int, *, cost: float = 0.0, reason: str = "tool-calls") -> str:
    """A line of shell: what opencode says after a step."""
    part = {"reason": reason, "tokens": {"input": amount, "output": 0}, "cost": cost}
    return "echo " + shlex.quote(json.dumps({"type": "step_finish", "part": part}))


def hire(yard: Yard, script: str, **members: object) -> None:
    yard.program("opencode", script)
    yard.profile("agent", agent="opencode", **members)


async def test_a_run_that_spends_its_budget_is_ended_with_all_it_started_and_its_work_is_kept(
    yard: Yard,
) -> None:
    hire(yard, f"echo work > made.txt; {step(400)}; {step(700)}; {FOR_EVER}")
    task = yard.create("do it", assignee="agent", max_tokens=1000)
    async with yard.dispatching():
        asked = await yard.until(task, TaskStatus.WAITING_HUMAN)
        await yard.gone(task)
    assert asked.question == "budget spent: 1100 of 1000 tokens; raise it?"
    assert asked.options
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.tokens, run.turns, run.cost) == ("failed", 1100, 2, 0)
    assert b"+work\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert json.loads(yard.store.file(task.id, run.id, "end.json"))["judged"]["kind"] == "stop"


async def test_a_launcher_bounds_each_of_its_runs_in_dollars(yard: Yard) -> None:
    hire(yard, f"{step(10, cost=0.75)}; {step(10, cost=0.75)}; {FOR_EVER}", max_cost=1.0)
    task = yard.create("do it", assignee="agent")
    async with yard.dispatching():
        asked = await yard.until(task, TaskStatus.WAITING_HUMAN)
        assert asked.question == "budget spent: $1.50 of $1.00 of one run; raise it?"
        yard.store.move(task.id, Move.UNBLOCK)  # another run has a budget of its own
        await yard.when(lambda: len(yard.store.runs(task.id)) == 2)
        await yard.until(task, TaskStatus.WAITING_HUMAN)
    assert [run.cost for run in yard.store.runs(task.id)] == [1_500_000, 1_500_000]


async def test_a_run_that_failed_with_nothing_left_is_not_tried_again_by_itself(yard: Yard) -> None:
    hire(yard, f"{step(2000)}; exit 3")
    task = yard.create("do it", assignee="agent", max_tokens=1000)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    asked = yard.store.task(task.id)
    assert (asked.status, asked.question) == (
        TaskStatus.WAITING_HUMAN,
        "budget spent: 2000 of 1000 tokens; raise it?",
    )


async def test_work_that_is_done_is_done_whatever_it_cost(yard: Yard) -> None:
    hire(yard, step(2000, reason="stop"), success="exit")
    task = yard.create("do it", assignee="agent", max_tokens=1000)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    [run] = yard.store.runs(task.id)
    assert run.tokens == 2000


async def test_a_worker_that_says_nothing_of_what_it_used_is_not_counted(yard: Yard) -> None:
    task = yard.create("echo all is well", max_tokens=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    [run] = yard.store.runs(task.id)
    assert (run.tokens, run.cost, run.turns) == (0, 0, 0)
    assert yard.told("used") == {}


async def test_what_a_session_used_before_is_not_counted_again(yard: Yard) -> None:
    """A stand-in for codex, which counts all that its session ever used."""
    started = json.dumps({"type": "thread.started", "thread_id": "s-1"}, separators=(",", ":"))
    counts = [json.dumps({"type": "turn.completed", "usage": {"input_tokens": n}}) for n in (100, 130)]
    yard.program(
        "codex",
        f"cat > prompt; echo '{started}'\n"
        f"if [ \"$2\" = resume ]; then echo '{counts[1]}'; exit; fi\n"
        f"echo '{counts[0]}'; touch $CODEX_HOME/s-1",
    )
    task = yard.create("write prompt", assignee="codex", max_tokens=200)
    async with yard.dispatching():
        await yard.until(task, TaskStatus.HANDOFF_FAILED)
        yard.store.move(task.id, Move.RETRY, report_only=True)
        await yard.when(lambda: [run.outcome is None for run in yard.store.runs(task.id)] == [False, False])
    assert [run.tokens for run in yard.store.runs(task.id)] == [100, 30]
    assert yard.store.task(task.id).status is TaskStatus.HANDOFF_FAILED


def counted(amount: int) -> str:
    """A line as codex writes it into its transcript."""
    usage = (
        f'{{"input_tokens":{amount},"cached_input_tokens":1,"output_tokens":1,"reasoning_output_tokens":7}}'
    )
    return (
        f'{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{usage}}}}}}}\n'
    )


def test_the_last_count_of_a_transcript_is_what_was_used(tmp_path: Path) -> None:
    codex, folder = CATALOG["codex"], tmp_path / "sessions" / "2026" / "11" / "16"
    assert count_tokens(tmp_path, codex, "s-1") == 0
    folder.mkdir(parents=True)
    place = folder / "rollout-2026-s-1.jsonl"
    place.write_text(
        counted(10) + counted(20) + '{"said":"\\"total_token_usage\\":{\\"input_tokens\\":9"}\n', "utf-8"
    )
    (folder / "rollout-2026-s-2.jsonl").write_text(counted(99), "utf-8")
    assert count_tokens(tmp_path, codex, "s-1") == 21
    assert (count_tokens(tmp_path, codex, "*"), count_tokens(tmp_path, codex, "")) == (0, 100)
    assert count_tokens(tmp_path, CATALOG["claude"], "s-1") == 0
    place.write_text(counted(10) + "x" * MAX_TAIL, "utf-8")
    assert count_tokens(tmp_path, codex, "s-1") == 0, "only its end is read"


def test_nothing_that_a_worker_put_there_is_followed_or_waited_for(tmp_path: Path) -> None:
    codex, folder = CATALOG["codex"], tmp_path / "state" / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text(counted(10), "utf-8")
    (folder / "rollout-1-s-1.jsonl").symlink_to(elsewhere)
    os.mkfifo(folder / "rollout-2-s-1.jsonl")
    (folder / "rollout-3-s-1.jsonl").mkdir()
    (folder.parent / "17").symlink_to(folder)
    assert count_tokens(tmp_path / "state", codex, "s-1") == 0
    (folder / "rollout-4-s-1.jsonl").write_text(counted(10), "utf-8")
    assert count_tokens(tmp_path / "state", codex, "s-1") == 11
    for number in range(MAX_ENTRIES):
        (folder.parent / f"x{number}").touch()
    assert count_tokens(tmp_path / "state", codex, "s-2") == 0
