"""Messages from people to a running worker.

A message is handed out with the answer to the worker's next envelope. It counts as seen once the worker sends
something after that. An envelope that is repeated, because its answer was lost, gets the same messages again.
Messages that were not seen when a run ends go to the next run.
"""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import Detail, JsonObject, RunRef, Task, TaskMessage
from holdfast.board.verbs import ledger
from holdfast.errors import InvalidRequest, UsageError

MAX_MESSAGE: Final = 2_000  # characters: many of them fit into one answer, and into a prompt
MAX_UNSEEN: Final = 10  # of one run: a worker that does not read its messages gets no more
MAX_TOLD: Final = 1_000  # of one task


class Handed(msgspec.Struct, frozen=True):
    """The range of messages delivered with one envelope; empty if `first` is 0."""

    first: int = 0
    last: int = 0


def tell(tx: Transaction, task_id: str, body: str, *, who: str = "person") -> TaskMessage:
    """Send a message to the worker that has the task now.

    Raises:
        InvalidRequest: no run holds the task, or too many messages are unseen.
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
    """The messages to send with the answer to this envelope; none if the run does not hold its task.

    Messages delivered before count as seen now. With an answer that ends the run nothing is handed out: the
    worker could not act on it any more, so the messages wait for the next run.
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
    """The messages that go into the prompt of a starting run; they count as delivered."""
    task = _lock_held(tx, ref)
    if task is None:
        return []
    _note(tx, task, ref, "message_delivered", "messages_deliver")
    return _list_unseen(tx, ref.run)


def pass_on(tx: Transaction, task: Task) -> None:
    """Give the messages that earlier runs have not seen to the run that has the task now."""
    tx.all("messages_pass_on", task=task.id, run=task.run_id)


def state(message: TaskMessage) -> str:
    """The state of delivery, in a word."""
    if message.seen_ms is not None:
        return "seen"
    return "waiting" if message.delivered_ms is None else "delivered"


def to_json(detail: Detail) -> JsonObject:
    """A task as JSON, with the state of delivery of each message."""
    told = [{**msgspec.structs.asdict(message), "state": state(message)} for message in detail.messages]
    found: JsonObject = msgspec.to_builtins(detail)
    return found | {"messages": told}


def _lock_held(tx: Transaction, ref: RunRef) -> Task | None:
    """The task, locked, if the run holds it now; otherwise None."""
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
