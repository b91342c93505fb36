"""Questions of a run about hosts, and people's answers while its connections wait.

The driver of the run puts the questions and records the outcomes; people and programs with authority over the
board answer. None of these is a verb of a worker. A question is about one host at one port, and an answer
names that, so it cannot be taken for the answer to another question that came up meanwhile.
"""

from typing import Final

import msgspec

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import MAX_TITLE, HostQuestion, Run, RunRef, Task
from holdfast.board.verbs import ledger, lists
from holdfast.errors import Conflict, InvalidRequest, StaleRun, UsageError

MAX_ASKED: Final = 128  # of one run, as of one command; after that its questions are refused
ANSWERED: Final = "host_answered"  # events
SETTLED: Final = "host_settled"
LATE: Final = "the answer came too late"


def put(
    tx: Transaction, ref: RunRef, *, request: str, host: str, program: str = "", pattern: str = ""
) -> HostQuestion | None:
    """Ask about a host; a repeated question changes nothing. None: this run has asked too much.

    Raises:
        StaleRun: the run does not hold its task.
    """
    task, run = _lock_held(tx, ref)
    asked = HostQuestion(
        task_id=task.id,
        run_id=run.id,
        request=request[:MAX_TITLE],
        host=host[:MAX_TITLE],
        program=program[:MAX_TITLE],
        pattern=pattern[:MAX_TITLE],
        asked_ms=tx.now_ms,
    )
    known = {one.request: one for one in lists.list_asked(tx, run.id)}
    if asked.request in known:
        return known[asked.request]
    if len(known) >= MAX_ASKED:
        return None
    text = msgspec.json.encode(asked).decode()
    tx.row(
        "answer_reserve", scope=lists.asked_scope(run.id), name=asked.request, question=text, now=tx.now_ms
    )
    told = {"host": asked.host, "program": asked.program, "pattern": asked.pattern}
    tx.log(task.board, lists.HOST_ASKED, "board", task=task.id, run=run.id, **told)
    return asked


def answer(tx: Transaction, task_id: str, answer: str, host: str, *, who: str = "person") -> HostQuestion:
    """Answer a question about a host that the run of a task waits for; the first answer counts.

    Raises:
        InvalidRequest: the task does not ask about that, or not any more.
        Conflict: it has been answered.
        UsageError: only that host can be allowed, not a pattern.
    """
    task = ledger.lock_task(tx, task_id)
    asked = [one for one in lists.list_asked(tx, task.run_id) if one.host == host] if task.run_id else []
    if not asked:
        raise InvalidRequest(f"{task.id} does not ask about {host}", remedy=_remedy(tx, task))
    found = asked[-1]
    if found.outcome:
        raise InvalidRequest(f"{task.id} asks no more about {host}: {found.outcome}")
    if found.answer:
        raise Conflict(f"{found.who} has answered that already: {found.answer}")
    if answer == "pattern" and not found.pattern:
        raise UsageError(f"nothing but {host} itself can be allowed", remedy="answer yes or no")
    tx.log(task.board, ANSWERED, who, task=task.id, run=found.run_id, host=host, answer=answer)
    return _save(tx, msgspec.structs.replace(found, answer=answer, who=who, answered_ms=tx.now_ms))


def settle(tx: Transaction, ref: RunRef, request: str, outcome: str) -> HostQuestion | None:
    """Record once the outcome of a question, also after its run ended; None: no such question."""
    _, run = ledger.lock_run(tx, ref)
    found = next((one for one in lists.list_asked(tx, run.id) if one.request == request), None)
    if found is None or found.outcome:
        return found
    tx.log(run.board, SETTLED, "board", task=run.task_id, run=run.id, host=found.host, outcome=outcome)
    return _save(tx, msgspec.structs.replace(found, outcome=outcome))


def _remedy(tx: Transaction, task: Task) -> str:
    asked = lists.list_open_of(tx, task)
    return f"holdfast task {f'answer {task.id} ANSWER {asked[0].host}' if asked else f'show {task.id}'}"


def _lock_held(tx: Transaction, ref: RunRef) -> tuple[Task, Run]:
    task, run = ledger.lock_run(tx, ref)
    if (task.run_id, task.generation) != (run.id, run.generation):
        raise StaleRun(f"{run.id} does not hold {task.id}")
    return task, run


def _save(tx: Transaction, question: HostQuestion) -> HostQuestion:
    text = msgspec.json.encode(question).decode()
    tx.all("answer_set", scope=lists.asked_scope(question.run_id), name=question.request, answer=text)
    return question
