"""What people say to a worker while it runs.

A message is handed out with the answer to what the worker says next, and it has seen it once it says
something after that. An envelope that is repeated, because its answer was lost, gets the same messages again.
What nobody has seen when a run ends is for the next one.
"""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import Detail, JsonObject, RunRef, Task, TaskMessage
from holdfast.board.verbs import ledger
from holdfast.errors import InvalidRequest, UsageError

MAX_MESSAGE: Final = 2_000  # characters: many of them fit into one answer, and into a prompt
MAX_UNSEEN: Final = 10  # of one run: a worker that does not listen is not talked at
MAX_TOLD: Final = 1_000  # of one task


class Handed(msgspec.Struct, frozen=True):
    """The numbers that went out with one envelope, from the first to the last; none without a first."""

    first: int = 0
    last: int = 0


def tell(tx: Transaction, task_id: str, body: str, *, who: str = "person") -> TaskMessage:
    """A message to the worker that has the task now.

    Raises:
        InvalidRequest: nobody works on it, or too much is waiting to be heard.
    """
    if not body.strip() or len(body) > MAX_MESSAGE or "\0" in body:
        raise UsageError(
            f"a message has 1 to {MAX_MESSAGE} characters",
            remedy="say it in several messages",
        )
    task = ledger.lock_task(tx, task_id)
    if task.run_id is None:
        raise InvalidRequest(
            f"{task.id} is {task.status}: no worker is running that could receive it",
            remedy=f"holdfast task comment {task.id} TEXT, for its next worker",
        )
    if len(_list_unseen(tx, task.run_id)) >= MAX_UNSEEN:
        raise InvalidRequest(
            f"the worker of {task.id} has not seen the last {MAX_UNSEEN} messages",
            remedy=f"holdfast task show {task.id}, or block it to stop the worker",
        )
    row = tx.row("message_add", task=task.id, run=task.run_id, author=who, body=body, now=tx.now_ms)
    made = row_of(TaskMessage, row)
    if made.number > MAX_TOLD:
        raise InvalidRequest(f"a task has at most {MAX_TOLD} messages")
    tx.log(task.board, "told", who, task=task.id, run=task.run_id, number=made.number)
    return made


def has_pending(tx: Transaction, ref: RunRef, envelope: str) -> bool:
    """Whether `hand_out` would have anything to do."""
    return tx.one("messages_pending", run=ref.run, scope=_scope(ref), name=envelope) is not None


def hand_out(tx: Transaction, ref: RunRef, envelope: str, *, ends: bool) -> list[TaskMessage]:
    """What goes with the answer to this envelope of a run that holds its task; nothing for any other run.

    What was handed out before has been seen now. With an answer that ends the run nothing is handed out:
    nobody could act on it, so it waits for the next run.
    """
    task = _lock_held(tx, ref)
    if task is None:
        return []

    def deliver() -> Handed:
        _note(tx, task, ref, "message_seen", "messages_see")
        numbers = [] if ends else _note(tx, task, ref, "message_delivered", "messages_deliver")
        return Handed(min(numbers), max(numbers)) if numbers else Handed()

    handed = ledger.once(tx, _scope(ref), envelope, "messages", Handed, deliver)
    rows = tx.all("messages_between", task=task.id, first=handed.first, last=handed.last)
    return [row_of(TaskMessage, row) for row in rows]


def brief(tx: Transaction, ref: RunRef) -> list[TaskMessage]:
    """What goes into the prompt of a run that begins, and is delivered with it."""
    task = _lock_held(tx, ref)
    if task is None:
        return []
    _note(tx, task, ref, "message_delivered", "messages_deliver")
    return _list_unseen(tx, ref.run)


def pass_on(tx: Transaction, task: Task) -> None:
    """What earlier runs have not seen is for the one that has the task now."""
    tx.all("messages_pass_on", task=task.id, run=task.run_id)


def state(message: TaskMessage) -> str:
    """How far it has come, in a word."""
    if message.seen_ms is not None:
        return "seen"
    return "waiting" if message.delivered_ms is None else "delivered"


def to_json(detail: Detail) -> JsonObject:
    """A task as JSON; each of its messages says how far it has come."""
    told = [{**msgspec.structs.asdict(message), "state": state(message)} for message in detail.messages]
    found: JsonObject = msgspec.to_builtins(detail)
    return found | {"messages": told}


def _lock_held(tx: Transaction, ref: RunRef) -> Task | None:
    """The task, locked, if the run has it now."""
    task = ledger.lock_task(tx, ledger.run(tx, ref.run).task_id)
    return task if (task.run_id, task.generation) == (ref.run, ref.generation) else None


def _list_unseen(tx: Transaction, run: str) -> list[TaskMessage]:
    return [row_of(TaskMessage, row) for row in tx.all("messages_unseen", run=run)]


def _note(tx: Transaction, task: Task, ref: RunRef, kind: str, query: str) -> list[int]:
    numbers = sorted(int(str(row["number"])) for row in tx.all(query, run=ref.run, now=tx.now_ms))
    if numbers:
        tx.log(task.board, kind, "board", task=task.id, run=ref.run, numbers=numbers)
    return numbers


def _scope(ref: RunRef) -> str:
    return f"messages:{ref.run}"
