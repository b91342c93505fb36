"""What runs use, kept with the board: budgets stop claims, and a person is asked."""

import pytest

from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import Edit, RunRef
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.errors import StaleRun
from tests.support.board_command import Board
from tests.support.boards import SettableClock, claimed, made


def told(store: Store, kind: str) -> list[dict[str, object]]:
    return [event.payload for event in store.events("b", limit=500) if event.kind == kind]


def test_what_a_run_uses_is_kept_with_it_and_never_becomes_less(store: Store) -> None:
    made(store)
    _, run = claimed(store)
    assert store.use(run.ref, BudgetUse(100, 5, 1)).tokens == 100
    after = store.use(run.ref, BudgetUse(90, 7, 1))
    assert (after.tokens, after.cost, after.turns) == (100, 7, 1)
    store.use(run.ref, BudgetUse(100, 7, 1))
    assert told(store, "used") == [
        {"tokens": 100, "cost": 5, "turns": 1},
        {"tokens": 100, "cost": 7, "turns": 1},
    ]


def test_what_comes_late_is_kept_too_and_what_is_of_another_generation_is_not(store: Store) -> None:
    made(store)
    _, run = claimed(store)
    store.complete(run.ref, "e", "done")
    assert store.use(run.ref, BudgetUse(3)).tokens == 3
    with pytest.raises(StaleRun):
        store.use(RunRef(run.id, run.generation + 1), BudgetUse(9))
    assert store.run(run.id).tokens == 3


def test_a_run_that_spent_a_budget_is_over_and_a_person_is_asked(store: Store) -> None:
    task = made(store, max_tokens=10)
    _, run = claimed(store)
    store.use(run.ref, BudgetUse(12))
    assert store.spent_budgets([task]) == {task.id: "12 of 10 tokens"}
    asked = store.stop_spent(run.ref, "12 of 10 tokens", error="it was ended")
    assert (asked.status, asked.question) == (
        TaskStatus.WAITING_HUMAN,
        "budget spent: 12 of 10 tokens; raise it?",
    )
    assert any("raise" in option for option in asked.options)
    ended = store.run(run.id)
    assert (ended.outcome, ended.failure) == ("failed", "quota")
    with pytest.raises(StaleRun):
        store.stop_spent(run.ref, "12 of 10 tokens")
    with pytest.raises(StaleRun):
        store.complete(run.ref, "late", "done")


@pytest.mark.parametrize("bound", [{"max_tokens": 10}, {"max_cost": 10}])
@pytest.mark.parametrize("assignees", [None, ["coder"]])
def test_a_task_whose_budget_is_spent_is_not_claimed_until_it_is_raised(
    store: Store, bound: dict[str, int], assignees: list[str] | None
) -> None:
    task = made(store, priority=9, **bound)  # type: ignore[arg-type]  # by the test's own table
    other = made(store)
    _, run = claimed(store, task.id)
    store.use(run.ref, BudgetUse(10, 10))
    store.stop_spent(run.ref, "all")
    store.move(task.id, Move.UNBLOCK)
    assert store.why(task.id).reason.startswith("budget spent: ")
    assert store.claim("b", worker="w", host="h", task=task.id) is None
    won = store.claim("b", worker="w", host="h", assignees=assignees)
    assert won is not None
    assert won[0].id == other.id, "it does not stand in the way of others either"
    assert store.claim("b", worker="w", host="h", assignees=assignees) is None
    store.edit(task.id, Edit(**dict.fromkeys(bound, 20)))  # type: ignore[arg-type]  # by the test's own table
    assert store.why(task.id).reason == "waits to be claimed"
    assert claimed(store, task.id)[0].id == task.id


def test_a_budget_is_of_all_runs_of_a_task_together(store: Store) -> None:
    task = made(store, max_tokens=10)
    for _ in range(2):
        _, run = claimed(store, task.id)
        store.use(run.ref, BudgetUse(5))
        store.move(task.id, Move.BLOCK, question="why?")
        store.move(task.id, Move.UNBLOCK)
    assert store.claim("b", worker="w", host="h") is None


def test_budgets_are_given_and_changed_and_usage_is_shown_by_commands(board: Board) -> None:
    board.answer("board", "create", "b")
    wish = ("--board", "b", "--assignee", "x", "--max-tokens", "500", "--max-cost", "2.50")
    task = board.task("create", "do it", *wish)
    id = str(task["id"])
    assert (task["max_tokens"], task["max_cost"]) == (500, 2_500_000)
    with open_store(board.address) as store:
        _, run = claimed(store)
        before = board.answer("task", "runs", id)
        store.use(run.ref, BudgetUse(120, 10_000, 2))
    assert before["used"] == {run.id: {"tokens": None, "costUsd": None, "turns": None}}
    assert board.answer("task", "runs", id)["used"] == {run.id: {"tokens": 120, "costUsd": 0.01, "turns": 2}}
    assert "120 tokens, $0.01, 2 turns" in board.run("task", "runs", id).stdout
    assert "used 120 tokens, $0.01, 2 turns of 500 tokens, $2.50" in board.run("task", "show", id).stdout
    changed = board.task("edit", id, "--max-tokens", "none", "--max-cost", "3")
    assert (changed["max_tokens"], changed["max_cost"]) == (None, 3_000_000)


@pytest.mark.parametrize(
    "wrong", [("--max-tokens", "many"), ("--max-tokens", "0"), ("--max-cost", "-1"), ("--max-cost", "nan")]
)
def test_a_budget_that_cannot_be_meant_is_refused(sqlite_board: Board, wrong: tuple[str, str]) -> None:
    sqlite_board.answer("board", "create", "b")
    sqlite_board.answer("task", "create", "do it", "--board", "b", *wrong, code=2)


def test_recent_runs_are_told_by_outcome_and_waits_by_claim(store: Store, clock: SettableClock) -> None:
    made(store, max_attempts=1)
    clock.now_ms += 2000
    _, run = claimed(store)
    store.use(run.ref, BudgetUse(5, 6, 1))
    store.fail(run.ref, FailureKind.TASK)
    made(store, assignee="other")
    claimed(store)
    recent = store.recent("b")
    assert recent.events == store.stats("b").board.last_seq
    assert recent.waits_ms == [2000, 0]
    assert [
        (one.profile, one.outcome, one.failure, one.count, one.tokens, one.told) for one in recent.runs
    ] == [
        ("coder", "failed", "task", 1, 5, 1),
        ("other", None, None, 1, 0, 0),
    ]


def test_numbers_of_a_board_are_printed_for_programs_and_people(board: Board) -> None:
    board.answer("board", "create", "b")
    board.task("create", "do it", "--board", "b", "--assignee", "x")
    with open_store(board.address) as store:
        _, run = claimed(store)
        store.use(run.ref, BudgetUse(120, 10_000, 2))
    printed = board.run("board", "metrics", "b").stdout.splitlines()
    assert 'holdfast_tasks{board="b",status="running"} 1' in printed
    assert 'holdfast_recent_tokens{board="b",profile="x"} 120' in printed
    assert board.answer("board", "metrics", "b")["profiles"] == {
        "x": {"runs": 1, "told": 1, "tokens": 120, "cost": 10_000, "turns": 2}
    }
    assert board.answer("board", "stats", "b")["used"] == {
        "x": {"runs": 1, "told": 1, "tokens": 120, "costUsd": 0.01, "turns": 2}
    }
    assert (
        "120 tokens, $0.01, 2 turns (known of 1 of 1 recent runs)" in board.run("board", "stats", "b").stdout
    )
