"""The board's store: every verb, each in one transaction, on SQLite or PostgreSQL.

When a verb returns, what it did survives a crash; when it raises, nothing has changed, except that an
answer that was refused is written down. A store belongs to one thread.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.board.database.database import Clock
from holdfast.board.reading import BoardReader
from holdfast.board.rules import verbs
from holdfast.board.rules.budget import Used
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import (
    Board,
    Comment,
    Edit,
    File,
    JsonObject,
    Message,
    NewTask,
    Run,
    RunRef,
    Task,
)
from holdfast.board.rules.transitions import Move
from holdfast.board.rules.verbs import Verb
from holdfast.board.verbs import (
    boards,
    claims,
    files,
    inbox,
    liveness,
    messages,
    places,
    reviews,
    runs,
    tasks,
    unverified,
    usage,
)
from holdfast.board.verbs.ledger import locked
from holdfast.board.verbs.reviews import Check, Review
from holdfast.board.verbs.runs import Refusal, RunReport
from holdfast.board.verbs.unverified import Unverified
from holdfast.errors import StaleRun, Unreachable

LEASE_MS: Final = 60_000  # unless the claim says otherwise; heartbeats come several times in that time
_POSTGRES: Final = ("postgresql://", "postgres://")


def open_store(address: str, *, create: bool = True, clock: Clock | None = None) -> "Store":
    """A store by its address: a path, or a postgresql:// URL. `clock` replaces the store's own, for tests.

    Raises:
        NotFound: there is none, and it is not to be made.
        Unreachable: the server does not answer.
        StoreDamaged: the file is no board any more.
    """
    if address.startswith(_POSTGRES):
        try:
            from holdfast.board.database.postgres import PostgresDatabase
        except ImportError:
            raise Unreachable(
                "psycopg is not installed", remedy="pip install 'holdfast-agents[postgres]'"
            ) from None
        return Store(PostgresDatabase(address, create=create, clock=clock))
    from holdfast.board.database.sqlite import SqliteDatabase, wall_clock

    return Store(SqliteDatabase(address, create=create, clock=clock or wall_clock))


class Store(BoardReader):
    """Boards, tasks and runs in a database: everything that changes them."""

    # --- people and programs with authority over a board

    def carry_out(self, verb: Verb, on: str, given: msgspec.Struct, *, who: str) -> Any:
        """A verb of the table for somebody who is no worker: its form, done to this task or board.

        Raises as the store's method does, and UsageError when a value is out of its bounds.
        """
        later = getattr(given, "in_s", None) is not None
        args = verbs.settle(verb, given, self.now_ms() if later else 0)
        target = (on,) if verb.target else ()
        more = {"key": getattr(given, "key", None)} if verb.keyed else {}
        return getattr(self, verb.method)(*target, **verb.words(args), **more, who=who)

    def create_board(self, slug: str, title: str = "") -> Board:
        return self.database.write(lambda tx: boards.create(tx, slug, title))

    def set_cap(self, board: str, scope: str, name: str, most: int, *, who: str = "person") -> None:
        """At most so many runs of this board at once: in all (no name), of a profile, host or pool."""
        self.database.write(lambda tx: boards.set_cap(tx, board, scope, name, most, who=who))

    def pause(self, board: str, on: bool, *, who: str = "person") -> Board:
        """When this returns nothing is claimed any more; what runs goes on. Off again without `on`."""
        return self.database.write(lambda tx: boards.pause(tx, board, on=on, who=who))

    def archive_board(self, board: str, on: bool = True, *, who: str = "person") -> Board:
        """Nothing is claimed or made on it any more. Raises InvalidRequest while something runs."""
        return self.database.write(lambda tx: boards.archive(tx, board, on=on, who=who))

    def create(self, board: str, new: NewTask, *, who: str = "person", key: str | None = None) -> Task:
        """A new task. With an idempotency key, unique on its board, it is made once and the answer repeated.

        Raises:
            Conflict: the key was used for something else.
        """
        return self.database.write(lambda tx: tasks.create(tx, board, new, who=who, key=key))

    def link(self, parent: str, child: str, *, who: str = "person") -> Task:
        return self.database.write(lambda tx: tasks.link(tx, parent, child, who=who))

    def unlink(self, parent: str, child: str, *, who: str = "person") -> Task:
        return self.database.write(lambda tx: tasks.unlink(tx, parent, child, who=who))

    def assign(self, task: str, assignee: str, *, who: str = "person") -> Task:
        return self.database.write(lambda tx: tasks.assign(tx, task, assignee, who=who))

    def edit(self, task: str, change: Edit, *, who: str = "person") -> Task:
        """Raises InvalidRequest when it is too late for that."""
        return self.database.write(lambda tx: tasks.edit(tx, task, change, who=who))

    def attach(self, task: str, name: str, data: bytes, *, who: str = "person") -> File:
        """A file for whoever works on the task. Raises Conflict when another one has this name."""
        return self.database.write(lambda tx: files.attach(tx, locked(tx, task), name, data, who=who))

    def comment(self, task: str, body: str, *, who: str = "person") -> Comment:
        return self.database.write(lambda tx: tasks.comment(tx, locked(tx, task), body, who=who))

    def tell(self, task: str, body: str, *, who: str = "person") -> Message:
        """To the worker that has the task now. Raises InvalidRequest when none has, or it does not listen."""
        return self.database.write(lambda tx: messages.tell(tx, task, body, who=who))

    def move(
        self,
        task: str,
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
        """A person's move; a run that held the task is over.

        `report_only` goes with RETRY of work whose report is missing: the next run only asks for that.

        Raises:
            IllegalTransition: it does not go that way from where it is.
        """
        if move is Move.REQUEST_CHANGES:  # there is one way, and on it something is said
            return self.review(task, Review(changes=reason), who=who)
        return self.database.write(
            lambda tx: tasks.move(
                *(tx, task, move),
                who=who,
                reason=reason,
                question=question,
                options=options,
                waiting_for=waiting_for,
                wake_ms=wake_ms,
                result=result,
                report_only=report_only,
            )
        )

    def review(self, task: str, given: Review, *, who: str = "person") -> Task:
        """Approve what is in review, or ask for changes, which the next run is told.

        Raises:
            IllegalTransition: it is not in review.
            InvalidRequest: somebody else is asked, or its checks have not been run; `anyway` overrules both.
        """
        return self.database.write(lambda tx: reviews.review(tx, task, given, who=who))

    def acknowledge(self, task: str, *, who: str = "person") -> Task:
        """Somebody knows that it waits for them. Raises InvalidRequest when it does not."""
        return self.database.write(lambda tx: inbox.acknowledge(tx, task, who=who))

    # --- dispatchers and supervisors

    def checked(self, ref: RunRef, results: Sequence[Check]) -> Task:
        """What came of the checks that were due for a run; nothing changes unless these are what is due."""
        return self.database.write(lambda tx: reviews.checked(tx, ref, results))

    def wake(self, board: str) -> int:
        """Move on what waited for the clock; a claim does so too."""
        return self.database.write(lambda tx: tasks.wake(tx, board))

    def claim(
        self,
        board: str,
        *,
        worker: str,
        host: str = "",
        lease_ms: int = LEASE_MS,
        assignees: Sequence[str] | None = None,
        task: str | None = None,
    ) -> tuple[Task, Run] | None:
        """The best ready task (of these profiles, or this one) for this caller alone; None without any.

        Pauses and caps hold whoever else is claiming. That this host offers to work is remembered for `why`.
        """
        return self.database.write(
            lambda tx: claims.claim(
                tx, board, worker=worker, host=host, lease_ms=lease_ms, task=task, assignees=assignees
            )
        )

    def offer(self, board: str, host: str, assignees: Sequence[str], *, held: str = "") -> None:
        """This host starts workers for these profiles, or says why not now: `held`.

        To be said again before `lists.OFFER_MS` is over.
        """
        self.database.write(
            lambda tx: claims.offer(tx, boards.get(tx, board).slug, host, assignees, held=held)
        )

    def set_run(
        self,
        ref: RunRef,
        *,
        workspace: str | None = None,
        session: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Run:
        """What is found out about a run, also after its end. Metadata is added to what is there."""
        return self.database.write(
            lambda tx: runs.set_run(tx, ref, workspace=workspace, session=session, metadata=metadata)
        )

    def occupy(self, ref: RunRef, path: str) -> Run:
        """As `set_run` with a directory that others may work in, too.

        Raises:
            Conflict: a run of another host is in it; to be asked again.
        """
        return self.database.write(lambda tx: places.occupy(tx, ref, path))

    def verify(self, ref: RunRef, missing: Sequence[str]) -> Unverified:
        """Write down what a run said at its end that is not so; `missing` are the files among that."""
        return self.database.write(lambda tx: unverified.record(tx, ref, missing))

    def keep(self, run: str, name: str, data: bytes) -> File:
        """Something of a run, also after its end; the same name again replaces it."""
        return self.database.write(lambda tx: files.keep(tx, run, name, data))

    def brief(self, ref: RunRef) -> list[Message]:
        """The messages for the prompt of a run that begins, which are delivered with it."""
        return self.database.write(lambda tx: messages.brief(tx, ref))

    def set_stuck(self, ref: RunRef, why: str) -> Run:
        """It looks stuck, for this reason; without one it moves again. Raises StaleRun."""
        return self.database.write(lambda tx: liveness.set_stuck(tx, ref, why))

    def fail(
        self,
        ref: RunRef,
        failure: FailureKind,
        *,
        error: str = "",
        resets_ms: int | None = None,
        metadata: JsonObject | None = None,
    ) -> Task:
        """The run ended without an answer; what follows is the retry policy's decision."""
        jitter = _jitter()
        return self.database.write(
            lambda tx: runs.fail(
                tx, ref, failure, error=error, jitter=jitter, resets_ms=resets_ms, metadata=metadata
            )
        )

    def give_back(self, ref: RunRef, *, reason: str) -> Task:
        """The run was cut short on purpose: it costs no attempt, and whoever comes next takes the task on."""
        return self.database.write(lambda tx: runs.give_back(tx, ref, reason=reason))

    def use(self, ref: RunRef, used: Used) -> Run:
        """What a run has used so far, as far as its worker says; also after its end."""
        return self.database.write(lambda tx: usage.use(tx, ref, used))

    def stop_spent(self, ref: RunRef, words: str, *, error: str = "") -> Task:
        """End a run that has spent a budget, which `words` says; a person must raise it."""
        return self.database.write(lambda tx: usage.stop(tx, ref, words, error=error))

    def expire(self, board: str) -> list[Task]:
        """End the runs whose lease is over; answers their tasks."""
        jitter = _jitter()
        return self.database.write(lambda tx: runs.expire(tx, board, jitter=jitter))

    # --- workers: every verb carries its run, and is refused once that does not hold the task

    def heartbeat(self, ref: RunRef, *, lease_ms: int = LEASE_MS, note: str = "") -> Run:
        return self.database.write(lambda tx: runs.heartbeat(tx, ref, lease_ms=lease_ms, note=note))

    def hand_out(self, ref: RunRef, envelope: str, *, ends: bool) -> list[Message]:
        """The messages that go with the answer to this envelope, and again when it is repeated."""
        if not self.database.read(lambda tx: messages.pending(tx, ref, envelope)):
            return []
        return self.database.write(lambda tx: messages.hand_out(tx, ref, envelope, ends=ends))

    def run_comment(self, ref: RunRef, envelope: str, body: str) -> Comment:
        return self.database.write(lambda tx: runs.comment(tx, ref, envelope, body))

    def create_child(self, ref: RunRef, envelope: str, new: NewTask) -> Task:
        """A task that waits for the worker's own."""
        return self.database.write(lambda tx: runs.create_child(tx, ref, envelope, new))

    def run_link(self, ref: RunRef, envelope: str, parent: str, child: str) -> Task:
        """A task that this run made waits for another one of the board."""
        return self.database.write(lambda tx: runs.link(tx, ref, envelope, parent, child))

    def run_attach(self, ref: RunRef, envelope: str, name: str, data: bytes) -> File:
        return self.database.write(lambda tx: runs.attach(tx, ref, envelope, name, data))

    def complete(
        self, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
    ) -> Task:
        """The work is done. The same envelope again gets the same answer.

        Raises:
            StaleRun: something else was answered before, or the task was taken away; that is written down.
        """
        return self._answer(
            ref, envelope, RunReport(Move.COMPLETE, "completed", summary, metadata or {}, {"result": summary})
        )

    def block(
        self,
        ref: RunRef,
        envelope: str,
        question: str,
        *,
        options: tuple[str, ...] = (),
        waiting_for: str = "",
        until_ms: int | None = None,
    ) -> Task:
        """A person must act, or with `until_ms` the clock must pass. Raises as `complete` does."""
        if until_ms is not None:
            changes: JsonObject = {"reason": question, "wake_ms": until_ms}
            return self._answer(ref, envelope, RunReport(Move.WAIT, "waiting", question, {}, changes))
        asked: JsonObject = {
            "question": question or "what now?",
            "options": list(options),
            "waiting_for": waiting_for,
        }
        return self._answer(ref, envelope, RunReport(Move.BLOCK, "blocked", question, {}, asked))

    def request_review(
        self, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
    ) -> Task:
        """The work is there for a person to look at. Raises as `complete` does."""
        changes: JsonObject = {"result": summary}
        return self._answer(
            ref,
            envelope,
            RunReport(Move.REQUEST_REVIEW, "review_requested", summary, metadata or {}, changes),
        )

    def _answer(self, ref: RunRef, envelope: str, report: RunReport) -> Task:
        answer = self.database.write(lambda tx: runs.answer(tx, ref, envelope, report))
        if isinstance(answer, Refusal):  # only now: that it was refused has been written down
            raise StaleRun(answer.refused)
        return answer


def _jitter() -> float:
    """From 0 to 1, to spread retries."""
    return int.from_bytes(os.urandom(2), "big") / 65535
