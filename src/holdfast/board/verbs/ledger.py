"""Common parts of the verbs: read rows, move a task, answer the same question only once."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import transitions
from holdfast.board.rules.rows import Comment, JsonObject, Run, RunRef, Task, check_text, metadata_text
from holdfast.board.rules.transitions import Actor, Move, TaskStatus
from holdfast.errors import Conflict, NotFound, StaleRun, UsageError

S = TypeVar("S", bound=msgspec.Struct)

# Members of a task that change; the others are written only once.
_SAVED: Final = (
    *("id", "version", "title", "body", "assignee", "status", "priority", "status_ms", "ended_ms", "run_id"),
    *("attempts", "max_attempts", "wake_ms", "question", "waiting_for", "reason", "result", "open_parents"),
    *("workspace_kind", "workspace", "max_runtime_s", "reviewer", "pool", "max_tokens", "max_cost"),
    *("acknowledged_ms", "environment"),
)


def new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(6).hex()}"


def task(tx: Transaction, task_id: str, query: str = "task_get") -> Task:
    """The task. Raises NotFound."""
    row = tx.one(query, id=task_id)
    if row is None:
        raise NotFound(f"there is no task {task_id}", remedy="holdfast task list")
    return row_of(Task, row)


def lock_task(tx: Transaction, task_id: str) -> Task:
    """The task, locked against other changes until this one is over. Raises NotFound."""
    return task(tx, task_id, "task_lock")


def run(tx: Transaction, run_id: str) -> Run:
    """The run. Raises NotFound."""
    row = tx.one("run_get", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}", remedy="holdfast task runs ID")
    return row_of(Run, row)


def find_run(tx: Transaction, ref: RunRef) -> Run:
    """The run of this reference, whether it holds its task or not.

    Raises:
        NotFound: there is none.
        StaleRun: it has another generation.
    """
    found = run(tx, ref.run)
    if found.generation != ref.generation:
        raise StaleRun(f"{ref.run} is not generation {ref.generation}")
    return found


def lock_run(tx: Transaction, ref: RunRef) -> tuple[Task, Run]:
    """Its task, locked, and the run as it is from then on. Raises as `find_run` does."""
    found = lock_task(tx, find_run(tx, ref).task_id)
    return found, find_run(tx, ref)


def apply_move(tx: Transaction, task: Task, move: Move, by: Actor, **changes: object) -> Task:
    """The task after a move, not saved yet. Values that belonged to its old status are cleared.

    Raises:
        IllegalTransition: the table does not have this move.
    """
    status = transitions.settle(transitions.apply(task.status, move, by), task.open_parents)
    cleared: dict[str, object] = {
        "status": status,
        "status_ms": tx.now_ms,
        "ended_ms": tx.now_ms if status in transitions.ENDS else None,
        "run_id": None,
        "wake_ms": None,
        "question": None,
        "options": [],
        "waiting_for": "",
        "reason": "",
        "acknowledged_ms": None,
    }
    if by is Actor.PERSON and status in transitions.RELEASED | {TaskStatus.SCHEDULED}:
        cleared["attempts"] = 0  # a person who sends it back to work grants new attempts
    if by is not Actor.SYSTEM:
        cleared["report_only"] = False  # a failure on the way to the report does not undo the work
    return msgspec.structs.replace(task, **cleared | changes)


def save(tx: Transaction, task: Task) -> Task:
    """Save the task. Raises Conflict when it was changed since it was read."""
    values = {name: getattr(task, name) for name in _SAVED}
    row = tx.one(
        "task_save",
        options=msgspec.json.encode(task.options).decode(),
        checks=msgspec.json.encode(task.checks).decode(),
        report_only=int(task.report_only),
        **values,
    )
    if row is None:
        raise Conflict(f"{task.id} was changed by somebody else")
    return row_of(Task, row)


def move_task(
    tx: Transaction, task: Task, move: Move, by: Actor, *, who: str, run: str | None = None, **changes: object
) -> Task:
    """Move the task, save it, log the event, and release its children when it is done."""
    after = save(tx, apply_move(tx, task, move, by, **changes))
    told: dict[str, object] = {"from": task.status, "to": after.status}
    if after.reason:
        told["reason"] = after.reason
    tx.log(task.board, move, who, task=task.id, run=run, **told)
    if after.status is TaskStatus.DONE:
        release_children(tx, after)
    return after


def release_children(tx: Transaction, parent: Task) -> None:
    """Decrement the open parents of the children; the cost does not depend on the size of the board."""
    for row in tx.all("children_release", parent=parent.id, now=tx.now_ms):
        if row["status"] == TaskStatus.READY:
            tx.log(parent.board, Move.PROMOTE, "board", task=str(row["id"]), after=parent.id)
    tx.all("links_satisfy", parent=parent.id)


def add_comment(
    tx: Transaction,
    task: Task,
    body: str,
    *,
    who: str,
    run: str | None = None,
    path: str = "",
    line: int | None = None,
) -> Comment:
    """Add a comment. The task must be locked, so that comments are numbered without gaps."""
    if not body.strip():
        raise UsageError("a comment says something")
    row = tx.row(
        "comment_add",
        task=task.id,
        author=who,
        body=check_text("comment", body),
        now=tx.now_ms,
        run=run,
        path=path,
        line=line,
    )
    made = row_of(Comment, row)
    tx.log(task.board, "commented", who, task=task.id, run=run, number=made.number)
    return made


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
    """End a run. Its earlier metadata is kept, except where the new metadata has the same name."""
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


def fingerprint(*parts: object) -> str:
    """A digest by which two questions are compared."""
    return digest(msgspec.json.encode(parts, order="deterministic"))


def digest(data: bytes) -> str:
    import hashlib  # imported here because many commands never need it, and all would pay for it

    return hashlib.sha256(data).hexdigest()


def once(tx: Transaction, scope: str, name: str, question: str, kind: type[S], answer: Callable[[], S]) -> S:
    """Answer a question once; when it is repeated under the same name, return the first answer.

    Raises:
        Conflict: another question was asked under this name before.
    """
    if tx.one("answer_reserve", scope=scope, name=name, question=question, now=tx.now_ms) is None:
        return recall_answer(tx, scope, name, question, kind)
    given_now = answer()
    tx.all("answer_set", scope=scope, name=name, answer=msgspec.json.encode(given_now).decode())
    return given_now


def recall_answer(tx: Transaction, scope: str, name: str, question: str, kind: type[S]) -> S:
    row = tx.row("answer_get", scope=scope, name=name)
    if row["question"] != question:
        raise Conflict(f"`{name}` was used before, for something else", remedy="use a new key")
    return decoding.decode(str(row["answer"]), kind)
