"""What the runs of a task have used, and what follows when that is all they may."""

from collections.abc import Iterable

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import budget
from holdfast.board.rules.budget import Budget, Used
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import Run, RunRef, Task, bounded
from holdfast.board.rules.transitions import Actor, Move
from holdfast.board.verbs import ledger, tasks
from holdfast.errors import StaleRun


def use(tx: Transaction, ref: RunRef, used: Used) -> Run:
    """Keep what a run has used so far, also after its end. What is known never becomes less.

    Raises:
        StaleRun: it is not of this generation.
    """
    ledger.locked(tx, ledger.referred(tx, ref).task_id)
    run = ledger.referred(tx, ref)
    after = budget.of_run(run).at_least(used)
    if after == budget.of_run(run):
        return run
    tx.log(run.board, "used", "board", task=run.task_id, run=run.id, **after._asdict())
    return row_of(Run, tx.row("run_use", id=run.id, **after._asdict()))


def stop(tx: Transaction, ref: RunRef, words: str, *, error: str = "") -> Task:
    """End a run that has spent a budget: its task waits for a person, and is not tried again by itself.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task = ledger.locked(tx, ledger.referred(tx, ref).task_id)
    run = ledger.referred(tx, ref)
    if task.run_id != run.id or run.outcome is not None:
        raise StaleRun(f"{run.id} does not hold {task.id} any more: {run.outcome or 'superseded'}")
    reason = f"budget spent: {words}"
    said = bounded("error", f"{reason}; {error}" if error else reason)
    tasks.end_run(tx, run.id, "failed", failure=FailureKind.QUOTA, error=said)
    asked = {"question": budget.question(words), "options": [*budget.OPTIONS], "reason": reason}
    return ledger.moved_and_told(tx, task, Move.BLOCK, Actor.SYSTEM, who="board", run=run.id, **asked)


def spent(tx: Transaction, found: Iterable[Task]) -> dict[str, str]:
    """Of these tasks those that have spent their budgets, and which; the others may be claimed."""
    said = {}
    for task in found:
        bound = budget.of_task(task)
        if bound != Budget():
            row = tx.row("task_used", task=task.id)
            used = Used(int(str(row["tokens"])), int(str(row["cost"])))
            if (words := budget.spent(used, bound)) is not None:
                said[task.id] = words
    return said
