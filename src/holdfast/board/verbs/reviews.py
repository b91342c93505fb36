"""Reviews: a person, or the checks of a task, decide whether its work is accepted.

The requested changes are comments. The event `reviewed` has their numbers, so the next run gets exactly
those, however many other comments there are.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import transitions
from holdfast.board.rules.rows import MAX_PATH, Comment, JsonObject, Run, RunRef, Task, TaskEvent, check_text
from holdfast.board.rules.transitions import Actor, Move, TaskStatus
from holdfast.board.verbs import ledger
from holdfast.errors import IllegalTransition, InvalidRequest, UsageError

CHECKS: Final = "checks"  # `waiting_for` while the checks come first; also the actor of their events
MAX_REMARKS: Final = 100  # of one review; a worker gets all of them
MAX_LINE: Final = 10_000_000
MAX_SHOWN: Final = 200  # characters of a command in a reason


class Remark(msgspec.Struct, frozen=True):
    """A remark about a line of a file; the path is relative to the workspace."""

    path: str
    line: int
    body: str

    def __post_init__(self) -> None:
        """Raises UsageError for a path that is not below the workspace, a bad line, or an empty body."""
        parts = self.path.split("/")
        if len(self.path) > MAX_PATH or not self.path.isprintable() or {"", ".", ".."} & set(parts):
            raise UsageError(f"`{self.path[:MAX_SHOWN]}` is not a path as seen from the workspace")
        if not 0 < self.line <= MAX_LINE:
            raise UsageError(f"a line is a number from 1 to {MAX_LINE}")
        if not check_text("remark", self.body).strip():
            raise UsageError("a remark says something")


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A reviewer's verdict. `anyway`: even if another reviewer is asked, or the checks have not been run."""

    approve: bool = False
    changes: str = ""
    remarks: tuple[Remark, ...] = ()
    anyway: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError when it is too long or has too many remarks."""
        check_text("text", self.changes)
        if len(self.remarks) > MAX_REMARKS:
            raise UsageError(f"a review has at most {MAX_REMARKS} remarks")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command in the workspace.

    Without an exit code it was stopped; `said` has the reason.
    """

    command: str
    exit_code: int | None
    said: str = ""

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


class RequestedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a review asked for, and the run that it was about."""

    who: str
    at_ms: int
    run: str | None
    comments: list[Comment]


def review(tx: Transaction, task_id: str, given: Review, *, who: str = "person") -> Task:
    """Approve work that is in review, or ask for changes, which the next run gets.

    Raises:
        IllegalTransition: the task is not in review.
        InvalidRequest: another reviewer is asked, or its checks have not been run; `anyway` overrules both.
        UsageError: the review is empty, or it both approves and asks for changes.
    """
    task = ledger.lock_task(tx, task_id)
    if task.status is not TaskStatus.REVIEW:
        possible = ", ".join(sorted(transitions.moves(task.status, Actor.PERSON))) or "none"
        raise IllegalTransition(
            f"{task.id} is {task.status}: it is not in review", remedy=f"moves from here: {possible}"
        )
    if given.approve == bool(given.changes.strip() or given.remarks):
        raise UsageError("a review approves, or says what is to be changed")
    if not given.anyway:
        if task.reviewer not in ("", who):
            raise InvalidRequest(f"{task.reviewer} is asked to review {task.id}", remedy="--anyway")
        if given.approve and task.waiting_for == CHECKS:
            raise InvalidRequest(f"the checks of {task.id} have not been run", remedy="wait, or --anyway")
    said = [ledger.add_comment(tx, task, given.changes, who=who)] if given.changes.strip() else []
    said += [
        ledger.add_comment(tx, task, one.body, who=who, path=one.path, line=one.line) for one in given.remarks
    ]
    _log_review(tx, task, said, who=who, anyway=given.anyway)
    if given.approve:
        return ledger.move_task(tx, task, Move.COMPLETE, Actor.PERSON, who=who)
    reason = given.changes.strip() or f"{len(said)} remarks"
    return ledger.move_task(tx, task, Move.REQUEST_CHANGES, Actor.PERSON, who=who, reason=reason)


def gate(task: Task, move: Move, changes: JsonObject) -> tuple[Move, JsonObject]:
    """The move for a worker's answer: work with checks goes to review until they have been run."""
    if not task.checks or move not in (Move.COMPLETE, Move.REQUEST_REVIEW):
        return move, changes
    return Move.REQUEST_REVIEW, changes | {"waiting_for": CHECKS, "reason": "its checks are to be run"}


def list_due(tx: Transaction, ref: RunRef) -> list[str] | None:
    """The checks that decide about the work of this run; None when there is nothing to decide."""
    run = ledger.find_run(tx, ref)
    task = ledger.task(tx, run.task_id)
    return list(task.checks) if _is_due(task, run) else None


def record_checks(tx: Transaction, ref: RunRef, results: Sequence[Check]) -> Task:
    """Record the results of the checks; ignored if other checks are due, or none any more.

    If all pass, completed work is done, and work that the worker wanted reviewed is left to a person. If one
    fails, changes are requested, unless all attempts are spent: then a person decides.
    """
    task, run = ledger.lock_run(tx, ref)
    if not _is_due(task, run) or [one.command for one in results] != task.checks:
        return task
    failed = [one for one in results if not one.passed]
    shown = [{"command": one.command[:MAX_SHOWN], "exitCode": one.exit_code} for one in results]
    tx.log(task.board, "checked", CHECKS, task=task.id, run=run.id, passed=not failed, results=shown)
    if failed:
        return _ask_for_changes(tx, task, failed)
    reason = f"all checks pass ({len(results)})"
    if run.outcome == "completed":
        return ledger.move_task(tx, task, Move.CONFIRM, Actor.SYSTEM, who=CHECKS, run=run.id, reason=reason)
    return _leave_to_person(tx, task, reason)


def find_requested(tx: Transaction, task_id: str) -> RequestedChanges | None:
    """The changes that the last review of a task asked for; None when there was none, or it approved."""
    row = tx.one("review_last", task=task_id)
    event = None if row is None else row_of(TaskEvent, row)
    if event is None or not event.payload.get("comments"):
        return None
    first, last = decoding.convert(event.payload["comments"], tuple[int, int])
    rows = tx.all("comments_between", task=task_id, first=first, last=last)
    return RequestedChanges(
        who=event.actor, at_ms=event.at_ms, run=event.run_id, comments=[row_of(Comment, row) for row in rows]
    )


def _ask_for_changes(tx: Transaction, task: Task, failed: Sequence[Check]) -> Task:
    said = [ledger.add_comment(tx, task, _words(one), who=CHECKS) for one in failed]
    reason = f"{len(failed)} of {len(task.checks)} checks failed: {failed[0].command[:MAX_SHOWN]}"
    _log_review(tx, task, said, who=CHECKS, anyway=False)
    if task.attempts >= task.max_attempts:
        return _leave_to_person(tx, task, f"{reason}; all {task.max_attempts} attempts are spent")
    return ledger.move_task(tx, task, Move.REQUEST_CHANGES, Actor.SYSTEM, who=CHECKS, reason=reason)


def _leave_to_person(tx: Transaction, task: Task, reason: str) -> Task:
    """Keep the task in review and let a person decide from now on."""
    tx.log(
        *(task.board, "review_due", CHECKS),
        task=task.id,
        **{"from": task.status, "to": task.status, "reason": reason},
    )
    return ledger.save(tx, msgspec.structs.replace(task, waiting_for="", reason=reason))


def _log_review(tx: Transaction, task: Task, said: Sequence[Comment], *, who: str, anyway: bool) -> None:
    newest = tx.one("runs_of_task", task=task.id, most=1)
    tx.log(
        *(task.board, "reviewed", who),
        task=task.id,
        run=None if newest is None else str(newest["id"]),
        comments=[said[0].number, said[-1].number] if said else [],
        anyway=anyway,
    )


def _is_due(task: Task, run: Run) -> bool:
    waits = task.status is TaskStatus.REVIEW and task.waiting_for == CHECKS
    return waits and task.generation == run.generation


def _words(check: Check) -> str:
    how = "was ended" if check.exit_code is None else f"ended with exit code {check.exit_code}"
    return check_text("check", f"The check `{check.command}` {how}.\n\n{check.said}".strip())
