"""Verbs on tasks for people and programs with authority over a board."""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import transitions
from holdfast.board.rules.rows import MAX_PARENTS, Comment, Edit, NewTask, Task, check_text
from holdfast.board.rules.transitions import Actor, Move, TaskStatus
from holdfast.board.verbs import boards, ledger, reviews
from holdfast.board.verbs.reviews import Review
from holdfast.errors import IllegalTransition, InvalidRequest, NotFound, UsageError

_AS_WISHED: Final = tuple({*NewTask.__struct_fields__} - {"parents", "triage", "checks"})
_PLACE: Final = ("workspace_kind", "workspace", "environment")  # where it is worked on
_ENDED_RUN: Final = {
    Move.CANCEL: "cancelled"
}  # for a run that loses its task to a person; otherwise "superseded"


def create(tx: Transaction, slug: str, new: NewTask, *, who: str = "person", key: str | None = None) -> Task:
    """Create a task.

    With an idempotency key, unique on its board, it is created once and the answer repeated.

    Raises:
        Conflict: the key was used for something else.
    """
    if key is None:
        return add(tx, slug, new, who=who)
    if not 0 < len(key) <= 200:
        raise UsageError("an idempotency key has 1 to 200 characters")
    boards.get(tx, slug)
    question = ledger.fingerprint("create", *new.fingerprint_parts())
    return ledger.once(tx, f"board:{slug}", key, question, Task, lambda: add(tx, slug, new, who=who))


def add(tx: Transaction, slug: str, new: NewTask, *, who: str, run: str | None = None) -> Task:
    boards.get_unarchived(tx, slug)
    if new.parents:
        tx.all("links_alone", board=slug)
    parents = [_parent(tx, parent, slug) for parent in sorted(set(new.parents))]
    waits = sum(parent.status is not TaskStatus.DONE for parent in parents)
    status = TaskStatus.TRIAGE if new.triage else transitions.settle(TaskStatus.READY, waits)
    if new.wake_ms is not None:
        status = TaskStatus.SCHEDULED
    row = tx.row(
        "task_add",
        id=ledger.new_id("t"),
        board=slug,
        status=status,
        created_by=who,
        created_by_run=run,
        open_parents=waits,
        checks=msgspec.json.encode(new.checks).decode(),
        now=tx.now_ms,
        **{name: getattr(new, name) for name in _AS_WISHED},
    )
    task = row_of(Task, row)
    for parent in parents:
        tx.all("link_add", parent=parent.id, child=task.id, open=int(parent.status is not TaskStatus.DONE))
    tx.log(
        slug, "created", who, task=task.id, run=run, status=status, parents=[parent.id for parent in parents]
    )
    return task


def link(tx: Transaction, parent: str, child: str, *, who: str = "person") -> Task:
    """Let the child wait for the parent; return the child. An existing link stays as it is.

    Raises:
        InvalidRequest: a cycle would result, the two are on different boards, or one of them has ended.
    """
    if parent == child:
        raise InvalidRequest("a task cannot wait for itself")
    slug = ledger.task(tx, child).board
    tx.all("links_alone", board=slug)
    ordered = {task: ledger.lock_task(tx, task) for task in sorted((parent, child))}
    above, below = _parent(tx, parent, slug), ordered[child]
    if below.status in transitions.ENDS - {TaskStatus.FAILED}:
        raise InvalidRequest(f"{child} is {below.status}: it waits for nothing any more")
    if tx.one("link_cycle", parent=parent, child=child) is not None:
        raise InvalidRequest(f"{parent} waits for {child} already: nothing would ever be done")
    if len(tx.all("links_above", task=child, most=MAX_PARENTS)) >= MAX_PARENTS:
        raise InvalidRequest(f"a task has at most {MAX_PARENTS} parents")
    waits = above.status is not TaskStatus.DONE
    if tx.one("link_add", parent=parent, child=child, open=int(waits)) is None:
        return below
    tx.log(slug, "linked", who, task=child, parent=parent)
    return _recount(tx, below, below.open_parents + 1) if waits else below


def unlink(tx: Transaction, parent: str, child: str, *, who: str = "person") -> Task:
    """Remove a link; return the child. Raises NotFound when there is no such link."""
    below = ledger.lock_task(tx, child)
    row = tx.one("link_remove", parent=parent, child=child)
    if row is None:
        raise NotFound(f"{child} does not wait for {parent}")
    tx.log(below.board, "unlinked", who, task=child, parent=parent)
    return _recount(tx, below, below.open_parents - 1) if row["open"] else below


def comment(tx: Transaction, task_id: str, body: str, *, who: str = "person") -> Comment:
    return ledger.add_comment(tx, ledger.lock_task(tx, task_id), body, who=who)


def move(
    tx: Transaction,
    task_id: str,
    move: Move,
    *,
    who: str = "person",
    reason: str = "",
    question: str = "",
    options: tuple[str, ...] = (),
    waiting_for: str = "",
    wake_ms: int | None = None,
    result: str | None = None,
    report_only: bool = False,
) -> Task:
    """Carry out a person's move. A run that held the task ends with it, and its later answers are refused.

    `report_only` goes with RETRY of work without a report: the next run only asks for that.

    Raises:
        IllegalTransition: the move is not possible from the task's status.
    """
    if move is Move.REQUEST_CHANGES:  # this move always goes through a review, which says what to change
        return reviews.review(tx, task_id, Review(changes=reason), who=who)
    task = ledger.lock_task(tx, task_id)
    transitions.apply(task.status, move, Actor.PERSON)
    if report_only and (task.status, move) != (TaskStatus.HANDOFF_FAILED, Move.RETRY):
        raise IllegalTransition(
            f"{task.id} is {task.status}: only work without a report can be reported late",
            remedy=f"holdfast task retry {task.id}",
        )
    changes: dict[str, object] = {"reason": check_text("reason", reason), "report_only": report_only}
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
        changes["result"] = check_text("result", result)
    if task.run_id is not None:
        outcome = _ENDED_RUN.get(move, "superseded")
        ledger.end_run(tx, task.run_id, outcome, error=f"{move} by {who}")
    return ledger.move_task(tx, task, move, Actor.PERSON, who=who, run=task.run_id, **changes)


def edit(tx: Transaction, task_id: str, change: Edit, *, who: str = "person") -> Task:
    """Change the fields of a task that has not ended; its status stays.

    Raises:
        InvalidRequest: it is done or given up, its place would change while it runs, or it has already spent
            the attempts that it would have.
    """
    task = ledger.lock_task(tx, task_id)
    if task.status in transitions.ENDS - {TaskStatus.FAILED}:
        raise InvalidRequest(f"{task.id} is {task.status}")
    wanted = change.apply_to(task)
    moved = any(getattr(wanted, name) != getattr(task, name) for name in _PLACE)
    if moved and task.status is TaskStatus.RUNNING:
        raise InvalidRequest(f"{task.id} is running", remedy="block it first")
    will_run = task.status in transitions.RELEASED | transitions.TIMED
    if wanted.max_attempts < task.attempts + will_run:
        raise InvalidRequest(f"{task.id} has spent {task.attempts} attempts")
    tx.log(task.board, "edited", who, task=task.id, members=change.members())
    return ledger.save(tx, wanted)


def assign(tx: Transaction, task_id: str, assignee: str, *, who: str = "person") -> Task:
    """Change the profile of a task. Raises InvalidRequest while it runs: its run has the old profile."""
    task = ledger.lock_task(tx, task_id)
    if task.status is TaskStatus.RUNNING:
        raise InvalidRequest(f"{task.id} is running", remedy="block it first")
    tx.log(task.board, "assigned", who, task=task.id, assignee=assignee)
    return ledger.save(tx, msgspec.structs.replace(task, assignee=assignee))


def wake(tx: Transaction, slug: str, *, most: int = 100) -> int:
    """Move on the tasks that the clock has released; return how many."""
    due = [row_of(Task, row) for row in tx.all("tasks_due", board=slug, now=tx.now_ms, most=most)]
    for task in due:
        ledger.move_task(tx, task, Move.WAKE, Actor.SYSTEM, who="board")
    return len(due)


def _parent(tx: Transaction, task_id: str, slug: str) -> Task:
    parent = ledger.lock_task(tx, task_id)
    if parent.board != slug:
        raise InvalidRequest(f"{parent.id} is on the board {parent.board}, not on {slug}")
    if parent.status in (TaskStatus.ARCHIVED, TaskStatus.CANCELLED):
        raise InvalidRequest(f"{parent.id} is {parent.status}: nothing can wait for it")
    return parent


def _recount(tx: Transaction, child: Task, open_parents: int) -> Task:
    """Save the child with another number of open parents; if it is released, its status follows."""
    status = transitions.settle(child.status, open_parents)
    changed = msgspec.structs.replace(child, open_parents=open_parents)
    if status is child.status:
        return ledger.save(tx, changed)
    move = Move.HOLD if status is TaskStatus.TODO else Move.PROMOTE
    tx.log(child.board, move, "board", task=child.id)
    return ledger.save(tx, msgspec.structs.replace(changed, status=status, status_ms=tx.now_ms))
