"""The life of a run once it has its task: heartbeats, answers and loss.

Everything a worker sends carries its run and generation, and is refused unless that run holds its task now.
Safety never depends on a clock: a run with an expired lease becomes stale only when it is ended explicitly,
and a clock that jumps ends none (`rules/assign.py`).
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules import assign, budget, retry
from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import (
    Comment,
    Detail,
    File,
    JsonObject,
    NewTask,
    Run,
    RunRef,
    Task,
    TaskEvent,
    check_text,
    metadata_text,
)
from holdfast.board.rules.transitions import Actor, Move, TaskStatus
from holdfast.board.verbs import claims, files, ledger, lists, reviews, tasks
from holdfast.errors import Conflict, InvalidRequest, NotFound, StaleRun, UsageError

S = TypeVar("S", bound=msgspec.Struct)

MAX_ANSWERS: Final = 1000  # envelopes of one run: a worker in a loop must not fill the board
LOST_AT_ONCE: Final = 100  # leases ended in one change, so that other changes get their turn
CARDS: Final = "created_cards"  # in a run's metadata, under the name that the tools of workers use
FILES: Final = "artifacts"
MAX_NAMED: Final = 100  # of each kind that are checked
MAX_WORD: Final = 300  # characters of each that are recorded
UNVERIFIED: Final = "claims_unverified"
MAX_REFUSED_FILES: Final = 20  # of one run that are recorded
RUN_NETWORK: Final = "run_network"
FILE_REFUSED: Final = "file_refused"
CLOCK_JUMPED: Final = "clock_jumped"

_OUTCOMES: Final = {
    FailureKind.HANDOFF: "handoff_failed",
    FailureKind.QUOTA: "failed",
    FailureKind.AUTH: "failed",
    FailureKind.INFRA: "failed",
    FailureKind.TASK: "failed",
    FailureKind.INTERNAL: "failed",
}


class RefusedAnswer(msgspec.Struct, frozen=True):
    """An answer that was refused and recorded; if repeated, it is refused again."""

    refused: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """A terminal answer in the common form."""

    move: Move
    outcome: str
    summary: str
    metadata: JsonObject
    changes: JsonObject


class Unverified(msgspec.Struct, frozen=True, kw_only=True):
    """Claimed tasks that the run did not make, and claimed files that are not in its workspace."""

    cards: list[str]
    files: list[str]


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a look at the leases of a board; `offset_ms` is for the next look."""

    lost: list[Task]
    renewed: int
    jump_ms: int
    offset_ms: int


Answered: TypeAlias = Task | RefusedAnswer


def heartbeat(tx: Transaction, ref: RunRef, *, lease_ms: int = claims.LEASE_MS, note: str = "") -> Run:
    """Renew the lease of a live run. This logs no event: the run's own row has the time."""
    _, run = _lock_held(tx, ref)
    row = tx.row(
        "run_beat",
        id=run.id,
        lease_until_ms=tx.now_ms + claims.check_lease(lease_ms),
        now=tx.now_ms,
        note=check_text("note", note),
    )
    return row_of(Run, row)


def comment(tx: Transaction, ref: RunRef, envelope: str, body: str) -> Comment:
    question = ledger.fingerprint("comment", body)
    return _say_once(
        *(tx, ref, envelope, question, Comment),
        lambda task, run: ledger.add_comment(tx, task, body, who=run.worker, run=run.id),
    )


def create_child(tx: Transaction, ref: RunRef, envelope: str, new: NewTask, question: str = "") -> Task:
    """Create a task on the same board that depends on this one, besides its other parents.

    It is for the same machine: a worker must not choose where its tasks are worked on.

    With a `question` it also waits for a person, who must answer before it may run.
    """

    def add(task: Task, run: Run) -> Task:
        parents = tuple(sorted({*new.parents, task.id}))
        child = msgspec.structs.replace(new, parents=parents, environment=task.environment)
        made = tasks.add(tx, task.board, child, who=run.worker, run=run.id)
        if not question or made.status is TaskStatus.TRIAGE:  # only a person ends triage
            return made
        return ledger.move_task(
            tx,
            made,
            Move.BLOCK,
            Actor.SYSTEM,
            who="board",
            question=question,
            reason="it has more than its parent",
        )

    return _say_once(tx, ref, envelope, ledger.fingerprint("create", *new.fingerprint_parts()), Task, add)


def link(tx: Transaction, ref: RunRef, envelope: str, parent: str, child: str) -> Task:
    """Let a task that this run created depend on another one.

    Raises:
        InvalidRequest: the run did not create the child, or the two cannot be linked.
    """

    def connect(_: Task, run: Run) -> Task:
        if ledger.task(tx, child).created_by_run != run.id:
            raise InvalidRequest(f"{run.id} did not make {child}", remedy="link what this run has created")
        return tasks.link(tx, parent, child, who=run.worker)

    return _say_once(tx, ref, envelope, ledger.fingerprint("link", parent, child), Task, connect)


def attach(tx: Transaction, ref: RunRef, envelope: str, name: str, data: bytes) -> File:
    """Attach a file to the worker's own task."""
    question = ledger.fingerprint("attach", name, ledger.digest(data))
    return _say_once(
        *(tx, ref, envelope, question, File),
        lambda task, run: files.add(tx, task, name, data, who=run.worker, run=run.id),
    )


def show(tx: Transaction, ref: RunRef, task: str | None = None) -> Detail:
    """The worker's own task, one that it depends on, or one that this run created.

    Raises:
        StaleRun: the run does not hold its task.
        InvalidRequest: the task is none of these.
    """
    run = ledger.find_run(tx, ref)
    mine = ledger.task(tx, run.task_id)
    if not _holds(mine, run, ref):
        raise _stale(run)
    if task is not None and task != mine.id:
        shown = ledger.task(tx, task)
        above = tx.one("link_get", parent=shown.id, child=mine.id) is not None
        if not above and shown.created_by_run != run.id:
            raise InvalidRequest(f"{task} is no business of {run.id}")
    return lists.detail(tx, task or mine.id)


def set_run(
    tx: Transaction,
    ref: RunRef,
    *,
    workspace: str | None = None,
    session: str | None = None,
    metadata: JsonObject | None = None,
) -> Run:
    """Record facts about a run, also after its end. Metadata is merged into the existing one."""
    _, run = ledger.lock_run(tx, ref)
    row = tx.row(
        "run_set",
        id=run.id,
        workspace=run.workspace if workspace is None else check_text("workspace", workspace),
        session=run.session if session is None else check_text("session", session),
        metadata=metadata_text(run.metadata | (metadata or {})),
    )
    after = row_of(Run, row)
    if after != run:
        told = {"workspace": workspace, "session": session, "metadata": metadata}
        given = {name: value for name, value in told.items() if value is not None}
        tx.log(run.board, "run_updated", "board", task=run.task_id, run=run.id, **given)
    return after


def occupy(tx: Transaction, ref: RunRef, path: str) -> Run:
    """Like `set_run` with a directory that several hosts may name: only one host's runs may use it at a time.

    Raises:
        Conflict: a run of another host uses it; try again later. Each host keeps its own runs apart.
    """
    tx.all("links_alone", board=f"directory {path}")  # no board has such a name
    run = set_run(tx, ref, workspace=path)
    other = tx.one("place_taken", workspace=path, host=run.host)
    if other is not None:
        raise Conflict(f"{other['id']} of {other['host']} works in {path}")
    return run


def use(tx: Transaction, ref: RunRef, used: BudgetUse) -> Run:
    """Record the usage of a run so far, also after its end. Recorded values never decrease.

    Raises:
        StaleRun: the reference has another generation.
    """
    _, run = ledger.lock_run(tx, ref)
    after = budget.of_run(run).at_least(used)
    if after == budget.of_run(run):
        return run
    tx.log(run.board, "used", "board", task=run.task_id, run=run.id, **after._asdict())
    return row_of(Run, tx.row("run_use", id=run.id, **after._asdict()))


def set_stuck(tx: Transaction, ref: RunRef, why: str) -> Run:
    """Record why a run looks stuck; an empty reason means that it moves again. It is not ended for that.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task, run = _lock_held(tx, ref)
    if run.stuck == why:
        return run
    if why:
        tx.log(task.board, "looks_stuck", "board", task=task.id, run=run.id, why=why)
    else:
        tx.log(task.board, "moves_again", "board", task=task.id, run=run.id)
    return row_of(Run, tx.row("run_stuck", id=run.id, stuck=check_text("reason", why)))


def names_in(run: Run, what: str) -> list[str]:
    """The names that a run claims under this key; entries that are not strings are ignored."""
    found = run.metadata.get(what)
    return [one for one in found if isinstance(one, str)][:MAX_NAMED] if isinstance(found, list) else []


def verify(tx: Transaction, ref: RunRef, missing: Sequence[str]) -> Unverified:
    """Record once the claims of a run that are not true; `missing` are the files among them.

    Its answer stands; readers of the result see the event.
    """
    run = ledger.find_run(tx, ref)
    found = Unverified(
        cards=[card[:MAX_WORD] for card in names_in(run, CARDS) if not _is_made_by(tx, run, card)],
        files=[name[:MAX_WORD] for name in missing[:MAX_NAMED]],
    )
    told = msgspec.to_builtins(found)
    said = [event for event in lists.detail(tx, run.task_id).events if event.kind == UNVERIFIED]
    if (found.cards or found.files) and not any(_same(event, run, told) for event in said):
        tx.log(run.board, UNVERIFIED, "board", task=run.task_id, run=run.id, **told)
    return found


def tell_network(tx: Transaction, ref: RunRef, told: JsonObject) -> None:
    """Record once a run's network access and traffic; only its host knows these."""
    run = ledger.find_run(tx, ref)
    events = lists.detail(tx, run.task_id).events
    if not any(event.kind == RUN_NETWORK and event.run_id == run.id for event in events):
        tx.log(run.board, RUN_NETWORK, "board", task=run.task_id, run=run.id, **told)


def refuse_file(tx: Transaction, ref: RunRef, file: str, reason: str) -> None:
    """Record that a file of a run's outbox was rejected: once for each name, up to a bound."""
    run = ledger.find_run(tx, ref)
    scope = f"refused files of {run.id}"
    if int(str(tx.row("answers_count", scope=scope)["count"])) >= MAX_REFUSED_FILES:
        return
    if tx.one("answer_reserve", scope=scope, name=file, question=reason, now=tx.now_ms) is not None:
        tx.log(run.board, FILE_REFUSED, run.worker, task=run.task_id, run=run.id, file=file, reason=reason)


def complete(
    tx: Transaction, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
) -> Answered:
    """Report that the work is done. The same envelope again gets the same answer."""
    report = RunReport(Move.COMPLETE, "completed", summary, metadata or {}, {"result": summary})
    return _answer(tx, ref, envelope, report)


def block(
    tx: Transaction,
    ref: RunRef,
    envelope: str,
    question: str,
    *,
    options: tuple[str, ...] = (),
    waiting_for: str = "",
    until_ms: int | None = None,
) -> Answered:
    """Wait for a person or, with `until_ms`, for the clock."""
    if until_ms is not None:
        changes: JsonObject = {"reason": question, "wake_ms": until_ms}
        return _answer(tx, ref, envelope, RunReport(Move.WAIT, "waiting", question, {}, changes))
    asked: JsonObject = {
        "question": question or "what now?",
        "options": list(options),
        "waiting_for": waiting_for,
    }
    return _answer(tx, ref, envelope, RunReport(Move.BLOCK, "blocked", question, {}, asked))


def request_review(
    tx: Transaction, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
) -> Answered:
    """Report that the work is ready for a person to review."""
    changes: JsonObject = {"result": summary}
    report = RunReport(Move.REQUEST_REVIEW, "review_requested", summary, metadata or {}, changes)
    return _answer(tx, ref, envelope, report)


def _answer(tx: Transaction, ref: RunRef, envelope: str, report: RunReport) -> Answered:
    """Handle a terminal answer: state, run, result, children and event in one change, exactly once.

    The same envelope again gets the first answer. Any other after it is refused, and the refusal is recorded.
    """
    question = ledger.fingerprint(report.move, report.summary, report.metadata, report.changes)
    task, run = ledger.lock_run(tx, ref)
    if _has_answered(tx, run, envelope):
        return _recall_first(tx, run, envelope, question)
    if not _holds(task, run, ref):
        _check_room(tx, run, envelope)
        return ledger.once(
            tx,
            _scope(run),
            envelope,
            question,
            RefusedAnswer,
            lambda: _refuse(tx, task, run, envelope, report),
        )
    metadata_text(report.metadata)  # raises before anything is written
    summary = check_text("summary", report.summary)

    def carry_out() -> Task:
        move, changes = report.move, report.changes
        if move is Move.WAIT and task.attempts >= task.max_attempts:  # no attempt is left to wait for
            move, changes = Move.BLOCK, {"question": f"all attempts are spent; it waits: {summary}"}
        move, changes = reviews.gate(task, move, changes)
        ledger.end_run(tx, run.id, report.outcome, summary=summary, metadata=report.metadata)
        return ledger.move_task(tx, task, move, Actor.WORKER, who=run.worker, run=run.id, **changes)

    return ledger.once(tx, _scope(run), _check_room(tx, run, envelope), question, Task, carry_out)


def fail(
    tx: Transaction,
    ref: RunRef,
    failure: FailureKind,
    *,
    error: str = "",
    jitter: float | None = None,
    resets_ms: int | None = None,
    metadata: JsonObject | None = None,
    outcome: str | None = None,
) -> Task:
    """End a run without an answer, as the supervisor reports it; the retry policy decides what follows.

    `jitter` is a random number from 0 to 1, to spread retries.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task, run = _lock_held(tx, ref)
    verdict = retry.decide_retry(
        failure,
        attempts=task.attempts,
        max_attempts=task.max_attempts,
        now_ms=tx.now_ms,
        jitter=_random() if jitter is None else jitter,
        resets_ms=resets_ms,
    )
    ended = outcome or _OUTCOMES[failure]
    ledger.end_run(tx, run.id, ended, failure=failure, error=check_text("error", error), metadata=metadata)
    changes: dict[str, object] = {"reason": verdict.reason, "attempts": task.attempts - 1 + verdict.spent}
    if verdict.move is Move.WAIT:
        changes["wake_ms"] = verdict.wake_ms
    elif verdict.move is Move.BLOCK:
        changes["question"] = verdict.reason
    return ledger.move_task(tx, task, verdict.move, Actor.SYSTEM, who="board", run=run.id, **changes)


def give_back(tx: Transaction, ref: RunRef, *, reason: str) -> Task:
    """End a run that was stopped on purpose: no attempt is spent, and its task may be claimed at once.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task, run = _lock_held(tx, ref)
    ledger.end_run(tx, run.id, "lost", failure=FailureKind.INFRA, error=check_text("error", reason))
    changes: dict[str, object] = {"reason": reason, "attempts": task.attempts - 1, "wake_ms": tx.now_ms}
    return ledger.move_task(tx, task, Move.WAIT, Actor.SYSTEM, who="board", run=run.id, **changes)


def expire(
    tx: Transaction,
    slug: str,
    *,
    living: Collection[RunRef] = (),
    lease_ms: int = claims.LEASE_MS,
    offset_ms: int | None = None,
    ends: bool = True,
    jitter: float | None = None,
) -> Expired:
    """End the runs with a lease that is over by the store's clock, unless the clock has jumped.

    `living` are the runs that the caller drives: they get a lease of `lease_ms` instead, whatever the clock
    says. With the `offset_ms` of the last look, a clock that was set or a machine that slept is detected.
    Then every run of the board gets a whole lease, so that its driver has time to send a heartbeat. Without
    `ends` nothing is ended.
    """
    jump_ms = assign.find_jump(offset_ms, tx.clock, lease_ms=claims.check_lease(lease_ms))
    if jump_ms or offset_ms is None:
        _begin_anew(tx, slug, jump_ms)
    lost, renewed = [], 0
    for row in tx.all("runs_expired", board=slug, now=tx.now_ms, most=LOST_AT_ONCE):
        ref = RunRef(str(row["id"]), int(str(row["generation"])))
        task, run = ledger.lock_run(tx, ref)
        if not _holds(task, run, ref) or run.lease_until_ms > tx.now_ms:
            continue
        if ref in living:
            heartbeat(tx, ref, lease_ms=lease_ms, note=run.note)
            renewed += 1
        elif ends:
            lost.append(
                fail(tx, ref, FailureKind.INFRA, error="its lease ran out", jitter=jitter, outcome="lost")
            )
    offset = tx.clock.offset_ms if jump_ms or offset_ms is None else offset_ms
    return Expired(lost, renewed, jump_ms, offset)


def _begin_anew(tx: Transaction, slug: str, jump_ms: int) -> None:
    """Restart every lease after a clock jump, and every pause that is now dated in the future.

    Without a known jump, only a clock that went back can be detected.
    """
    future = assign.find_future(tx.now_ms)
    waits = tx.all("waits_anew", board=slug, now=tx.now_ms, after=future)
    anew = tx.all("leases_anew", board=slug, now=tx.now_ms, after=-1 if jump_ms else future)
    if jump_ms or waits or anew:
        tx.log(*(slug, CLOCK_JUMPED, "board"), task=None, by_ms=jump_ms, leases=len(anew), waits=len(waits))


def stop_spent(tx: Transaction, ref: RunRef, words: str, *, error: str = "") -> Task:
    """End a run that has used up a budget, as `words` says: its task is not retried automatically.

    Raises:
        StaleRun: the run does not hold its task any more.
    """
    task, run = _lock_held(tx, ref)
    reason = f"budget spent: {words}"
    said = check_text("error", f"{reason}; {error}" if error else reason)
    ledger.end_run(tx, run.id, "failed", failure=FailureKind.QUOTA, error=said)
    asked = {"question": budget.question(words), "options": [*budget.OPTIONS], "reason": reason}
    return ledger.move_task(tx, task, Move.BLOCK, Actor.SYSTEM, who="board", run=run.id, **asked)


def _is_made_by(tx: Transaction, run: Run, card: str) -> bool:
    try:
        return ledger.task(tx, card).created_by_run == run.id
    except NotFound:
        return False


def _same(event: TaskEvent, run: Run, told: object) -> bool:
    return event.run_id == run.id and event.payload == told


def _lock_held(tx: Transaction, ref: RunRef) -> tuple[Task, Run]:
    """The run and the task it holds, locked. Raises StaleRun if it does not hold it."""
    task, run = ledger.lock_run(tx, ref)
    if not _holds(task, run, ref):
        raise _stale(run)
    return task, run


def _say_once(
    tx: Transaction,
    ref: RunRef,
    envelope: str,
    question: str,
    kind: type[S],
    act: Callable[[Task, Run], S],
) -> S:
    """Carry out a request of a run that holds its task, once per envelope; repeats get the first answer."""
    run = ledger.find_run(tx, ref)
    if _has_answered(tx, run, envelope):
        return ledger.recall_answer(tx, _scope(run), envelope, question, kind)
    task, run = _lock_held(tx, ref)
    return ledger.once(
        tx, _scope(run), _check_room(tx, run, envelope), question, kind, lambda: act(task, run)
    )


def _random() -> float:
    return int.from_bytes(os.urandom(2), "big") / 65535


def _stale(run: Run) -> StaleRun:
    return StaleRun(f"{run.id} does not hold {run.task_id} any more: {run.outcome or 'superseded'}")


def _holds(task: Task, run: Run, ref: RunRef) -> bool:
    return task.run_id == run.id and task.generation == ref.generation and run.outcome is None


def _scope(run: Run) -> str:
    return f"run:{run.id}"


def _has_answered(tx: Transaction, run: Run, envelope: str) -> bool:
    if not 0 < len(envelope) <= 200:
        raise UsageError("the id of an envelope has 1 to 200 characters")
    return tx.one("answer_get", scope=_scope(run), name=envelope) is not None


def _check_room(tx: Transaction, run: Run, envelope: str) -> str:
    row = tx.row("answers_count", scope=_scope(run))
    if int(str(row["count"])) >= MAX_ANSWERS:
        raise InvalidRequest(f"{run.id} has said more than {MAX_ANSWERS} things")
    return envelope


def _recall_first(tx: Transaction, run: Run, envelope: str, question: str) -> Answered:
    row = tx.row("answer_get", scope=_scope(run), name=envelope)
    if row["question"] != question:
        raise Conflict(f"the envelope {envelope} held something else before", remedy="use a new envelope")
    text = str(row["answer"])
    try:
        return decoding.decode(text, RefusedAnswer)
    except msgspec.ValidationError:
        return decoding.decode(text, Task)


def _refuse(tx: Transaction, task: Task, run: Run, envelope: str, report: RunReport) -> RefusedAnswer:
    tx.log(
        *(task.board, "answer_refused", run.worker),
        task=task.id,
        run=run.id,
        move=report.move,
        envelope=envelope,
        summary=report.summary[:1000],
    )
    return RefusedAnswer(str(_stale(run)))
