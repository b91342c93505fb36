"""What people and programs with authority over a board do to its tasks."""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import transitions
from holdfast.board.rules.rows import (
    MAX_PARENTS,
    Comment,
    Edit,
    JsonObject,
    NewTask,
    Run,
    Task,
    bounded,
    metadata_text,
)
from holdfast.board.rules.transitions import Actor, Move, Status
from holdfast.board.verbs import boards, ledger
from holdfast.errors import IllegalTransition, InvalidRequest, NotFound, UsageError

_ENDED_RUN: Final = {
    Move.CANCEL: "cancelled"
}  # of a run whose task a person takes away; otherwise "superseded"


def create(tx: Transaction, slug: str, new: NewTask, *, who: str, key: str | None) -> Task:
    """A new task; with a key it is made once, however often and by however many this is asked."""
    if key is None:
        return add(tx, slug, new, who=who)
    if not 0 < len(key) <= 200:
        raise UsageError("an idempotency key has 1 to 200 characters")
    boards.get(tx, slug)
    question = ledger.fingerprint("create", *new.asked())
    return ledger.once(tx, f"board:{slug}", key, question, Task, lambda: add(tx, slug, new, who=who))


def add(tx: Transaction, slug: str, new: NewTask, *, who: str, run: str | None = None) -> Task:
    boards.in_use(tx, slug)
    if new.parents:
        tx.all("links_alone", board=slug)
    parents = [_parent(tx, parent, slug) for parent in sorted(set(new.parents))]
    waits = sum(parent.status is not Status.DONE for parent in parents)
    status = Status.TRIAGE if new.triage else transitions.settled(Status.READY, waits)
    if new.wake_ms is not None:
        status = Status.SCHEDULED
    row = tx.row(
        "task_add",
        id=ledger.new_id("t"),
        board=slug,
        title=new.title,
        body=new.body,
        assignee=new.assignee,
        status=status,
        priority=new.priority,
        created_by=who,
        created_by_run=run,
        open_parents=waits,
        max_attempts=new.max_attempts,
        wake_ms=new.wake_ms,
        workspace_kind=new.workspace_kind,
        workspace=new.workspace,
        max_runtime_s=new.max_runtime_s,
        reviewer=new.reviewer,
        checks=msgspec.json.encode(new.checks).decode(),
        pool=new.pool,
        max_tokens=new.max_tokens,
        max_cost=new.max_cost,
        now=tx.now_ms,
    )
    task = row_of(Task, row)
    for parent in parents:
        tx.all("link_add", parent=parent.id, child=task.id, open=int(parent.status is not Status.DONE))
    tx.log(
        slug, "created", who, task=task.id, run=run, status=status, parents=[parent.id for parent in parents]
    )
    return task


def link(tx: Transaction, parent_id: str, child_id: str, *, who: str) -> Task:
    """The child waits for the parent. Answers the child; a link that exists stays as it is.

    Raises:
        InvalidRequest: it would wait for itself, the two are on different boards, or one of them has ended.
    """
    if parent_id == child_id:
        raise InvalidRequest("a task cannot wait for itself")
    slug = _found(tx, child_id).board
    tx.all("links_alone", board=slug)
    ordered = {task: ledger.locked(tx, task) for task in sorted((parent_id, child_id))}
    parent, child = _parent(tx, parent_id, slug), ordered[child_id]
    if child.status in transitions.ENDS - {Status.FAILED}:
        raise InvalidRequest(f"{child.id} is {child.status}: it waits for nothing any more")
    if tx.one("link_cycle", parent=parent.id, child=child.id) is not None:
        raise InvalidRequest(f"{parent.id} waits for {child.id} already: nothing would ever be done")
    if len(tx.all("links_above", task=child.id, most=MAX_PARENTS)) >= MAX_PARENTS:
        raise InvalidRequest(f"a task has at most {MAX_PARENTS} parents")
    waits = parent.status is not Status.DONE
    if tx.one("link_add", parent=parent.id, child=child.id, open=int(waits)) is None:
        return child
    tx.log(slug, "linked", who, task=child.id, parent=parent.id)
    return _recounted(tx, child, child.open_parents + int(waits)) if waits else child


def unlink(tx: Transaction, parent_id: str, child_id: str, *, who: str) -> Task:
    """Raises NotFound when there is no such link."""
    child = ledger.locked(tx, child_id)
    row = tx.one("link_remove", parent=parent_id, child=child_id)
    if row is None:
        raise NotFound(f"{child_id} does not wait for {parent_id}")
    tx.log(child.board, "unlinked", who, task=child.id, parent=parent_id)
    return _recounted(tx, child, child.open_parents - 1) if row["open"] else child


def comment(
    tx: Transaction,
    task: Task,
    body: str,
    *,
    who: str,
    run: str | None = None,
    path: str = "",
    line: int | None = None,
) -> Comment:
    """The task is locked, so that comments are numbered without gaps."""
    if not body.strip():
        raise UsageError("a comment says something")
    row = tx.row(
        "comment_add",
        task=task.id,
        author=who,
        body=bounded("comment", body),
        now=tx.now_ms,
        run=run,
        path=path,
        line=line,
    )
    made = row_of(Comment, row)
    tx.log(task.board, "commented", who, task=task.id, run=run, number=made.number)
    return made


def move(
    tx: Transaction,
    task_id: str,
    move: Move,
    *,
    who: str,
    reason: str = "",
    question: str = "",
    options: tuple[str, ...] = (),
    waiting_for: str = "",
    wake_ms: int | None = None,
    result: str | None = None,
    report_only: bool = False,
) -> Task:
    """A person's move. A run that held the task ends with it, and nothing it says later counts."""
    task = ledger.locked(tx, task_id)
    transitions.apply(task.status, move, Actor.PERSON)
    if report_only and (task.status, move) != (Status.HANDOFF_FAILED, Move.RETRY):
        raise IllegalTransition(
            f"{task.id} is {task.status}: only work whose report is missing is only reported",
            remedy=f"holdfast task retry {task.id}",
        )
    changes: dict[str, object] = {"reason": bounded("reason", reason), "report_only": report_only}
    if move is Move.BLOCK:
        changes |= {
            "question": question or reason or "what now?",
            "options": list(options),
            "waiting_for": waiting_for,
        }
    elif move is Move.SCHEDULE:
        if wake_ms is None:
            raise UsageError("say when", remedy="--at or --in")
        changes["wake_ms"] = wake_ms
    elif move is Move.COMPLETE and result is not None:
        changes["result"] = bounded("result", result)
    if task.run_id is not None:
        outcome = _ENDED_RUN.get(move, "superseded")
        end_run(tx, task.run_id, outcome, error=f"{move} by {who}")
    return ledger.moved_and_told(tx, task, move, Actor.PERSON, who=who, run=task.run_id, **changes)


def end_run(
    tx: Transaction,
    run: str,
    outcome: str,
    *,
    failure: str | None = None,
    summary: str | None = None,
    metadata: JsonObject | None = None,
    error: str | None = None,
) -> None:
    """What was kept of its metadata before stays, unless there is something newer of the same name."""
    before = row_of(Run, tx.row("run_get", id=run)).metadata
    tx.row(
        "run_end",
        id=run,
        now=tx.now_ms,
        outcome=outcome,
        failure=failure,
        summary=summary,
        metadata=metadata_text(before | (metadata or {})),
        error=error,
    )


def edit(tx: Transaction, task_id: str, change: Edit, *, who: str) -> Task:
    """Another wish for a task that has not ended; where it stands stays.

    Raises:
        InvalidRequest: it is done or given up, is working where it should not any more, or has spent what is
            left of its attempts.
    """
    task = ledger.locked(tx, task_id)
    if task.status in transitions.ENDS - {Status.FAILED}:
        raise InvalidRequest(f"{task.id} is {task.status}")
    wanted = change.applied(task)
    moved = (wanted.workspace_kind, wanted.workspace) != (task.workspace_kind, task.workspace)
    if moved and task.status is Status.RUNNING:
        raise InvalidRequest(f"{task.id} is running", remedy="block it first")
    will_run = task.status in transitions.RELEASED | transitions.TIMED
    if wanted.max_attempts < task.attempts + will_run:
        raise InvalidRequest(f"{task.id} has spent {task.attempts} attempts")
    tx.log(task.board, "edited", who, task=task.id, members=change.members())
    return ledger.save(tx, wanted)


def assign(tx: Transaction, task_id: str, assignee: str, *, who: str) -> Task:
    """Raises InvalidRequest while it runs: whose run would it be?"""
    task = ledger.locked(tx, task_id)
    if task.status is Status.RUNNING:
        raise InvalidRequest(f"{task.id} is running", remedy="block it first")
    tx.log(task.board, "assigned", who, task=task.id, assignee=assignee)
    return ledger.save(tx, msgspec.structs.replace(task, assignee=assignee))


def wake(tx: Transaction, slug: str, *, most: int = 100) -> int:
    """Move on what the clock was waited for with; how many."""
    due = [row_of(Task, row) for row in tx.all("tasks_due", board=slug, now=tx.now_ms, most=most)]
    for task in due:
        ledger.moved_and_told(tx, task, Move.WAKE, Actor.SYSTEM, who="board")
    return len(due)


def _found(tx: Transaction, task_id: str) -> Task:
    row = tx.one("task_get", id=task_id)
    if row is None:
        raise NotFound(f"there is no task {task_id}", remedy="holdfast task list")
    return row_of(Task, row)


def _parent(tx: Transaction, task_id: str, slug: str) -> Task:
    parent = ledger.locked(tx, task_id)
    if parent.board != slug:
        raise InvalidRequest(f"{parent.id} is on the board {parent.board}, not on {slug}")
    if parent.status in (Status.ARCHIVED, Status.CANCELLED):
        raise InvalidRequest(f"{parent.id} is {parent.status}: nothing can wait for it")
    return parent


def _recounted(tx: Transaction, child: Task, open_parents: int) -> Task:
    """The child with another number of open parents; a task that is free to run moves with it."""
    status = transitions.settled(child.status, open_parents)
    changed = msgspec.structs.replace(child, open_parents=open_parents)
    if status is child.status:
        return ledger.save(tx, changed)
    move = Move.HOLD if status is Status.TODO else Move.PROMOTE
    tx.log(child.board, move, "board", task=child.id)
    return ledger.save(tx, msgspec.structs.replace(changed, status=status, status_ms=tx.now_ms))
