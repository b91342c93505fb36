"""The tasks that wait for a person: for which person, since when, and what to type next."""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import HostQuestion, Task, TaskEvent, describe_asked
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.verbs import boards, ledger, lists
from holdfast.errors import InvalidRequest, NotFound, UsageError

MAX_LISTED: Final = 500  # tasks of each status
MAX_QUESTION: Final = 500  # characters: a line; the task has the rest
CHECKS_MS: Final = 15 * 60_000  # checks that take longer need attention: perhaps no process runs them

_NEXT: Final[dict[TaskStatus, tuple[str, ...]]] = {
    TaskStatus.WAITING_HUMAN: ("holdfast task unblock {id} --reason ANSWER",),
    TaskStatus.REVIEW: ("holdfast task review {id} --approve", "holdfast task review {id} --changes TEXT"),
    TaskStatus.HANDOFF_FAILED: ("holdfast task complete {id}", "holdfast task retry {id} --report-only"),
    TaskStatus.FAILED: ("holdfast task retry {id}", "holdfast task cancel {id}"),
    TaskStatus.TRIAGE: ("holdfast task edit {id} --body TEXT", "holdfast task move {id} specify"),
}
WAITING: Final = tuple(_NEXT)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A task that waits for a person, or has a worker that does. `who` is empty when any person may act."""

    task: str
    board: str
    title: str
    status: TaskStatus
    since_ms: int
    who: str
    question: str
    options: list[str]
    next: list[str]  # the commands to type
    acknowledged_ms: int | None


class Inbox(msgspec.Struct, frozen=True):
    """The longest waiting tasks first; `more` names the statuses with more tasks than listed."""

    waiting: list[Waiting]
    more: list[TaskStatus]


def list_waiting(tx: Transaction, slug: str, *, name: str = "", limit: int = 100) -> Inbox:
    """The newest tasks of each status, up to `limit`; the cost does not depend on other tasks."""
    if not 0 < limit <= MAX_LISTED:
        raise UsageError(f"an inbox has 1 to {MAX_LISTED} tasks of each status")
    boards.get(tx, slug)
    found: list[Task] = []
    more = []
    for status in WAITING:
        rows = tx.all(
            "inbox_of_status",
            board=slug,
            status=status,
            name=name,
            patient=tx.now_ms - CHECKS_MS,
            most=limit + 1,
        )
        found += [row_of(Task, row) for row in rows[:limit]]
        more += [status] if len(rows) > limit else []
    asked = lists.list_open(tx, slug)
    running = [describe_hosts(ledger.task(tx, id), open_) for id, open_ in list(asked.items())[:limit]]
    waiting = sorted([*map(describe, found), *running], key=lambda one: (one.since_ms, one.task))
    return Inbox(waiting, more + ([TaskStatus.RUNNING] if len(asked) > limit else []))


def describe(task: Task) -> Waiting:
    return Waiting(
        task=task.id,
        board=task.board,
        title=task.title,
        status=task.status,
        since_ms=task.status_ms,
        who=task.reviewer if task.status is TaskStatus.REVIEW else task.waiting_for,
        question=(task.question or task.reason or task.result or "")
        .strip()
        .partition("\n")[0][:MAX_QUESTION],
        options=task.options,
        next=[words.format(id=task.id) for words in _NEXT[task.status]],
        acknowledged_ms=task.acknowledged_ms,
    )


def describe_hosts(task: Task, asked: list[HostQuestion]) -> Waiting:
    """A running task with a worker that waits for decisions about hosts; the oldest question comes first."""
    first = asked[0]
    return Waiting(
        task=task.id,
        board=task.board,
        title=task.title,
        status=task.status,
        since_ms=first.asked_ms,
        who="",
        question=describe_asked(asked)[:MAX_QUESTION],
        options=["yes", "no", *([f"pattern: {first.pattern}"] if first.pattern else [])],
        next=first.next,
        acknowledged_ms=None,
    )


def find_waiting(tx: Transaction, task_id: str) -> Waiting | None:
    """The task, if it waits for a person now; None while something else, such as checks, comes first."""
    try:
        task = ledger.task(tx, task_id)
    except NotFound:
        return None
    if asked := lists.list_open_of(tx, task):
        return describe_hosts(task, asked)
    later = task.status is TaskStatus.REVIEW and task.waiting_for
    return describe(task) if task.status in WAITING and not later else None


def may_begin(event: TaskEvent) -> bool:
    """Whether a task may have begun to wait for a person with this event; read the task to be sure."""
    moved = event.payload.get("to", event.payload.get("status"))
    return event.kind == lists.HOST_ASKED or moved in WAITING


def acknowledge(tx: Transaction, task_id: str, *, who: str = "person") -> Task:
    """Record that a person knows that the task waits for them.

    Repeating it changes nothing, and any move of the task clears it.

    Raises:
        InvalidRequest: it does not wait for a person.
    """
    task = ledger.lock_task(tx, task_id)
    if task.status not in WAITING:
        raise InvalidRequest(f"{task.id} is {task.status}: it does not wait for a person")
    if task.acknowledged_ms is not None:
        return task
    tx.log(task.board, "acknowledged", who, task=task.id)
    return ledger.save(tx, msgspec.structs.replace(task, acknowledged_ms=tx.now_ms))
