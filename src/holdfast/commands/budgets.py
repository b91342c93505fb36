"""`--max-tokens` and `--max-cost`, as commands of tasks take them, and how usage is said."""

from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run, Task


class Bound(NamedTuple):
    """A bound that was given; None is none at all."""

    most: int | None


def _tokens(text: str) -> Bound:
    """The type of an option."""
    if text == "none":
        return Bound(None)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise click.BadParameter(f"{text!r} is no number of tokens")
    return Bound(int(text))


def _dollars(text: str) -> Bound:
    """Likewise."""
    from holdfast.board.rules.budget import millionths

    if text == "none":
        return Bound(None)
    try:
        cost = millionths(float(text))
    except ValueError:
        cost = 0
    if not cost:
        raise click.BadParameter(f"{text!r} is no amount of dollars such as 2.50")
    return Bound(cost)


tokens_option = click.option(
    "--max-tokens",
    type=_tokens,
    metavar="N",
    help="Limit the tokens of all its runs, or `none`; at the limit you are asked.",
)
cost_option = click.option(
    "--max-cost",
    type=_dollars,
    metavar="USD",
    help="Limit the cost of all its runs in dollars, as its CLI reports it.",
)


def wishes(max_tokens: Bound | None, max_cost: Bound | None) -> dict[str, int | None]:
    """The bounds that were given, as members of a task."""
    given = {"max_tokens": max_tokens, "max_cost": max_cost}
    return {name: bound.most for name, bound in given.items() if bound is not None}


def lines(task: "Task", runs: "list[Run]") -> list[str]:
    """What a task has used of its budgets, for people; of all runs there are to see."""
    from holdfast.board.rules.budget import BudgetUse, describe, dollars, of_run

    bounds = [f"{task.max_tokens} tokens"] if task.max_tokens is not None else []
    bounds += [dollars(task.max_cost)] if task.max_cost is not None else []
    used = BudgetUse(*map(sum, zip(*map(of_run, runs), strict=True))) if runs else BudgetUse()
    if not bounds and used == BudgetUse():
        return []
    return [f"  used {describe(used)}" + (f" of {', '.join(bounds)}" if bounds else "")]
