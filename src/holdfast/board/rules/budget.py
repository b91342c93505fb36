"""The usage of runs compared with budgets, in numbers and in words. Pure module.

Only what a worker's CLI reports is counted. A CLI that reports nothing is not free: unknown usage is a zero
in the store, and "unknown" wherever it is shown. Money is kept in millionths of a dollar.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.board.rules.rows import MAX_COST, MAX_TOKENS, Run, Task

MILLION: Final = 1_000_000
OPTIONS: Final = (
    "raise it: task edit ID --max-tokens or --max-cost, then task unblock ID",
    "take what is there: task complete ID",
    "give it up: task cancel ID",
)


class BudgetUse(NamedTuple):
    """What was used; zero means unknown."""

    tokens: int = 0
    cost: int = 0
    turns: int = 0

    def at_least(self, other: "BudgetUse") -> "BudgetUse":
        """The larger of each value: what was used never becomes unused."""
        return BudgetUse(*map(max, self, other))


class Budget(NamedTuple):
    """What may be used; None is not bounded."""

    tokens: int | None = None
    cost: int | None = None


def of_task(task: Task) -> Budget:
    return Budget(task.max_tokens, task.max_cost)


def of_run(run: Run) -> BudgetUse:
    return BudgetUse(run.tokens, run.cost, run.turns)


def read_usage(usage: Mapping[str, object] | None) -> BudgetUse:
    """Usage from the report of a worker, as the worker states it."""
    if usage is None:
        return BudgetUse()
    tokens = _count(usage.get("inputTokens")) + _count(usage.get("outputTokens"))
    return BudgetUse(min(tokens, MAX_TOKENS), millionths(usage.get("costUsd")), _count(usage.get("turns")))


def describe_spent(used: BudgetUse, budget: Budget) -> str | None:
    """The budget that is used up, in words; None if something is left of each."""
    if budget.tokens is not None and used.tokens >= budget.tokens:
        return f"{used.tokens} of {budget.tokens} tokens"
    if budget.cost is not None and used.cost >= budget.cost:
        return f"{dollars(used.cost)} of {dollars(budget.cost)}"
    return None


def question(words: str) -> str:
    return f"budget spent: {words}; raise it?"


def millionths(usd: object) -> int:
    """Dollars as they are stored; 0 if the value is not an amount of money."""
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < MAX_COST / MILLION:
        return 0
    return max(1, round(usd * MILLION))


def dollars(cost: int) -> str:
    return f"${cost / MILLION:.4f}" if cost % (MILLION // 100) else f"${cost / MILLION:.2f}"


def describe(used: BudgetUse) -> str:
    """The known usage, for people."""
    known = [
        f"{used.tokens} tokens" if used.tokens else "",
        dollars(used.cost) if used.cost else "",
        f"{used.turns} turns" if used.turns else "",
    ]
    return ", ".join(filter(None, known)) or "usage unknown"


def to_json(used: BudgetUse) -> dict[str, int | float | None]:
    """The known usage, for programs; None is unknown."""
    cost = used.cost / MILLION if used.cost else None
    return {"tokens": used.tokens or None, "costUsd": cost, "turns": used.turns or None}


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return 0
    return min(value, MAX_TOKENS)
