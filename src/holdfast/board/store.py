"""The board's store: every verb, each in one transaction, on SQLite or PostgreSQL.

When a verb returns, what it did survives a crash; when it raises, nothing has changed, except that an
answer that was refused is written down. A store belongs to one thread.
"""

import random
from types import TracebackType
from typing import Final

from holdfast.board import lists, runs, tasks, transfer
from holdfast.board.assign import Busy, Capacity
from holdfast.board.database import Clock, Database
from holdfast.board.ledger import locked
from holdfast.board.lists import Page, Reason, Stats
from holdfast.board.retry import Failure
from holdfast.board.rows import Board, Comment, Detail, Event, JsonObject, NewTask, Run, RunRef, Task
from holdfast.board.runs import Refusal, Report
from holdfast.board.transitions import Move, Status
from holdfast.errors import StaleRun, Unreachable, UsageError

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
            from holdfast.board.postgres import PostgresDatabase
        except ImportError:
            raise Unreachable("psycopg is not installed", remedy="pip install 'holdfast[postgres]'") from None
        return Store(PostgresDatabase(address, create=create, clock=clock))
    from holdfast.board.sqlite import SqliteDatabase, wall_clock

    return Store(SqliteDatabase(address, create=create, clock=clock or wall_clock))


class Store:
    """Boards, tasks and runs in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    # --- people and programs with authority over a board

    def create_board(self, slug: str, title: str = "") -> Board:
        return self.database.write(lambda tx: tasks.create_board(tx, slug, title))

    def set_cap(self, board: str, scope: str, name: str, most: int) -> None:
        """At most so many runs at once: of the board (no name), a profile or a host."""
        if scope not in ("board", "profile", "host") or most < 0 or (scope == "board") == bool(name):
            raise UsageError("a cap is of the board, of a profile or of a host, and not negative")
        self.database.write(
            lambda tx: (
                tasks.board(tx, board),
                tx.all("cap_set", board=board, scope=scope, name=name, most=most),
            )
        )

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

    def comment(self, task: str, body: str, *, who: str = "person") -> Comment:
        return self.database.write(lambda tx: tasks.comment(tx, locked(tx, task), body, who=who))

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
    ) -> Task:
        """A person's move; a run that held the task is over.

        Raises:
            IllegalTransition: it does not go that way from where it is.
        """
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
            )
        )

    # --- dispatchers and supervisors

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
        task: str | None = None,
        assignee: str | None = None,
    ) -> tuple[Task, Run] | None:
        """The best ready task (of a profile, or this one) for this caller alone; None when there is none."""
        return self.database.write(
            lambda tx: runs.claim(
                tx, board, worker=worker, host=host, lease_ms=lease_ms, task=task, assignee=assignee
            )
        )

    def fail(self, ref: RunRef, failure: Failure, *, error: str = "", resets_ms: int | None = None) -> Task:
        """The run ended without an answer; what follows is the retry policy's decision."""
        jitter = random.random()  # noqa: S311 - spreads retries, keeps no secret
        return self.database.write(
            lambda tx: runs.fail(tx, ref, failure, error=error, jitter=jitter, resets_ms=resets_ms)
        )

    def expire(self, board: str) -> list[Task]:
        """End the runs whose lease is over; answers their tasks."""
        jitter = random.random()  # noqa: S311 - spreads retries, keeps no secret
        return self.database.write(lambda tx: runs.expire(tx, board, jitter=jitter))

    # --- workers: every verb carries its run, and is refused once that does not hold the task

    def heartbeat(self, ref: RunRef, *, lease_ms: int = LEASE_MS, note: str = "") -> Run:
        return self.database.write(lambda tx: runs.heartbeat(tx, ref, lease_ms=lease_ms, note=note))

    def run_comment(self, ref: RunRef, envelope: str, body: str) -> Comment:
        return self.database.write(lambda tx: runs.comment(tx, ref, envelope, body))

    def create_child(self, ref: RunRef, envelope: str, new: NewTask) -> Task:
        """A task that waits for the worker's own."""
        return self.database.write(lambda tx: runs.create_child(tx, ref, envelope, new))

    def complete(
        self, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
    ) -> Task:
        """The work is done. The same envelope again gets the same answer.

        Raises:
            StaleRun: something else was answered before, or the task was taken away; that is written down.
        """
        return self._answer(
            ref, envelope, Report(Move.COMPLETE, "completed", summary, metadata or {}, {"result": summary})
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
            return self._answer(ref, envelope, Report(Move.WAIT, "waiting", question, {}, changes))
        asked: JsonObject = {
            "question": question or "what now?",
            "options": list(options),
            "waiting_for": waiting_for,
        }
        return self._answer(ref, envelope, Report(Move.BLOCK, "blocked", question, {}, asked))

    def request_review(
        self, ref: RunRef, envelope: str, summary: str, *, metadata: JsonObject | None = None
    ) -> Task:
        """The work is there for a person to look at. Raises as `complete` does."""
        changes: JsonObject = {"result": summary}
        return self._answer(
            ref, envelope, Report(Move.REQUEST_REVIEW, "review_requested", summary, metadata or {}, changes)
        )

    def _answer(self, ref: RunRef, envelope: str, report: Report) -> Task:
        answer = self.database.write(lambda tx: runs.answer(tx, ref, envelope, report))
        if isinstance(answer, Refusal):  # only now: that it was refused has been written down
            raise StaleRun(answer.refused)
        return answer

    # --- looking

    def now_ms(self) -> int:
        """The store's clock, which dates everything."""
        return self.database.read(lambda tx: tx.now_ms)

    def boards(self) -> list[Board]:
        return self.database.read(lists.boards)

    def stats(self, board: str) -> Stats:
        return self.database.read(lambda tx: lists.stats(tx, board))

    def task(self, task: str) -> Task:
        return self.database.read(lambda tx: lists.task(tx, task))

    def show(self, task: str) -> Detail:
        return self.database.read(lambda tx: lists.detail(tx, task))

    def runs(self, task: str) -> list[Run]:
        return self.database.read(lambda tx: lists.runs(tx, task))

    def run(self, run: str) -> Run:
        return self.database.read(lambda tx: lists.run(tx, run))

    def why(self, task: str) -> Reason:
        return self.database.read(lambda tx: lists.why(tx, task))

    def capacity(self, board: str) -> tuple[Capacity, Busy]:
        return self.database.read(lambda tx: (lists.capacity(tx, board), lists.busy(tx, board)))

    def page(
        self,
        board: str,
        *,
        status: Status | None = None,
        assignee: str | None = None,
        search: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Tasks, the newest first, with filters, a limit and a cursor."""
        return self.database.read(
            lambda tx: lists.page(
                tx, board, status=status, assignee=assignee, search=search, limit=limit, cursor=cursor
            )
        )

    def events(self, board: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        return self.database.read(lambda tx: lists.events(tx, board, after=after, limit=limit))

    def faults(self) -> list[str]:
        """What is wrong with the store, by recounting everything; empty when it is sound."""
        return self.database.faults() or self.database.read(transfer.faults)
