"""Directories that several hosts may name: one run at a time is in each."""

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import Run, RunRef
from holdfast.board.verbs import runs
from holdfast.errors import Conflict


def occupy(tx: Transaction, ref: RunRef, path: str) -> Run:
    """Let a run work in a directory.

    Raises:
        Conflict: a run of another host is in it. The dispatcher of one host sees to its own.
    """
    tx.all("links_alone", board=f"directory {path}")  # no board has such a name
    run = runs.set_run(tx, ref, workspace=path, session=None, metadata=None)
    other = tx.one("place_taken", workspace=path, host=run.host)
    if other is not None:
        raise Conflict(f"{other['id']} of {other['host']} works in {path}")
    return run
