"""Whether a run looks stuck, as its dispatcher says. Nothing is ended for it."""

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import Run, RunRef, bounded
from holdfast.board.verbs import ledger, lists
from holdfast.errors import StaleRun


def set_stuck(tx: Transaction, ref: RunRef, why: str) -> Run:
    """It looks stuck, for this reason; without one it moves again. What is known already changes nothing.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task = ledger.locked(tx, lists.run(tx, ref.run).task_id)
    run = lists.run(tx, ref.run)
    if (task.run_id, task.generation) != (ref.run, ref.generation):
        raise StaleRun(f"{ref.run} does not hold {task.id} any more")
    if run.stuck == why:
        return run
    if why:
        tx.log(task.board, "looks_stuck", "board", task=task.id, run=run.id, why=why)
    else:
        tx.log(task.board, "moves_again", "board", task=task.id, run=run.id)
    return row_of(Run, tx.row("run_stuck", id=run.id, stuck=bounded("reason", why)))


def stuck(tx: Transaction, slug: str) -> dict[str, str]:
    """The tasks of a board whose runs look stuck now, and why."""
    return {str(row["task_id"]): str(row["stuck"]) for row in tx.all("runs_stuck", board=slug)}
