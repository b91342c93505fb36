"""What is used is counted as it was said, and what nobody said is unknown."""

import pytest

from holdfast.board.rules import budget
from holdfast.board.rules.budget import Budget, BudgetUse
from holdfast.board.rules.rows import MAX_COST, MAX_TOKENS
from tests.support.dispatch import a_run, a_task
from tests.support.rows import every_row


@every_row(
    ("usage", "used"),
    [
        (None, BudgetUse()),
        ({}, BudgetUse()),
        (
            {"inputTokens": 7, "outputTokens": 3, "cachedTokens": 5, "costUsd": 0.25, "turns": 2},
            BudgetUse(10, 250_000, 2),
        ),
        ({"inputTokens": 7, "outputTokens": 3, "costUsd": None, "turns": None}, BudgetUse(10)),
        ({"inputTokens": -7, "outputTokens": "many", "costUsd": float("nan"), "turns": True}, BudgetUse()),
        ({"inputTokens": 10**18, "outputTokens": 10**18, "costUsd": 1e300}, BudgetUse(MAX_TOKENS)),
        ({"costUsd": 1e-9}, BudgetUse(cost=1)),
    ],
)
def test_what_a_worker_says_is_taken_as_far_as_it_can_be_meant(
    usage: dict[str, object] | None, used: BudgetUse
) -> None:
    assert budget.read_usage(usage) == used


def test_what_was_used_never_becomes_less() -> None:
    assert BudgetUse(5, 1, 9).at_least(BudgetUse(3, 2)) == BudgetUse(5, 2, 9)


@every_row(
    ("used", "bound", "words"),
    [
        (BudgetUse(99, 99), Budget(), None),
        (BudgetUse(99), Budget(tokens=100), None),
        (BudgetUse(100), Budget(tokens=100), "100 of 100 tokens"),
        (BudgetUse(1, 2_500_000), Budget(100, 2_000_000), "$2.50 of $2.00"),
        (BudgetUse(100, 2_000_000), Budget(100, 2_000_000), "100 of 100 tokens"),
        (BudgetUse(turns=5), Budget(1, 1), None),
    ],
)
def test_a_budget_is_spent_when_nothing_is_left_of_it(
    used: BudgetUse, bound: Budget, words: str | None
) -> None:
    assert budget.describe_spent(used, bound) == words


@every_row(
    ("usd", "cost"),
    [
        (2.5, 2_500_000),
        (1, 1_000_000),
        (0, 0),
        (-1, 0),
        ("3", 0),
        (True, 0),
        (MAX_COST, 0),
        (float("inf"), 0),
    ],
)
def test_money_is_kept_in_millionths(usd: object, cost: int) -> None:
    assert budget.millionths(usd) == cost


@pytest.mark.parametrize(("cost", "said"), [(2_500_000, "$2.50"), (12_345, "$0.0123"), (0, "$0.00")])
def test_money_is_said_in_dollars(cost: int, said: str) -> None:
    assert budget.dollars(cost) == said


@pytest.mark.parametrize(
    ("used", "said", "known"),
    [
        (BudgetUse(), "usage unknown", {"tokens": None, "costUsd": None, "turns": None}),
        (BudgetUse(10), "10 tokens", {"tokens": 10, "costUsd": None, "turns": None}),
        (BudgetUse(10, 500_000, 2), "10 tokens, $0.50, 2 turns", {"tokens": 10, "costUsd": 0.5, "turns": 2}),
    ],
)
def test_what_nobody_said_is_unknown_and_not_free(
    used: BudgetUse, said: str, known: dict[str, object]
) -> None:
    assert budget.describe(used) == said
    assert budget.to_json(used) == known


def test_a_task_bounds_and_a_run_uses() -> None:
    assert budget.of_task(a_task(max_tokens=5)) == Budget(5, None)
    assert budget.of_run(a_run()) == BudgetUse()
    assert budget.question("5 of 5 tokens") == "budget spent: 5 of 5 tokens; raise it?"
