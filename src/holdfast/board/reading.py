"""What can be asked of a store. Nothing here changes anything."""

from collections.abc import Iterable
from types import TracebackType
from typing import TypeVar

from holdfast.board.database.database import Database
from holdfast.board.rules.assign import Busy, Capacity
from holdfast.board.rules.metrics import Recent
from holdfast.board.rules.rows import Board, Detail, File, Run, RunRef, Task, TaskEvent
from holdfast.board.rules.transitions import Status
from holdfast.board.verbs import boards, claims, files, inbox, lists, liveness, reviews, runs, usage
from holdfast.board.verbs.inbox import Inbox
from holdfast.board.verbs.lists import Reason, Stats, TaskPage
from holdfast.board.verbs.reviews import Requested

R = TypeVar("R", bound="BoardReader")


class BoardReader:
    """Boards, tasks and runs in a database, to look at."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    def now_ms(self) -> int:
        """The store's clock, which dates everything."""
        return self.database.read(lambda tx: tx.now_ms)

    def boards(self) -> list[Board]:
        return self.database.read(boards.listed)

    def stats(self, board: str) -> Stats:
        return self.database.read(lambda tx: lists.stats(tx, board))

    def recent(self, board: str) -> Recent:
        """What the newest events tell of runs: outcomes, usage, how long tasks had been ready."""
        return self.database.read(lambda tx: lists.recent(tx, board))

    def counts(self, board: str) -> dict[str, int]:
        """How many tasks there are in each status; cheaper than `stats`."""
        return self.database.read(lambda tx: lists.counts(tx, board))

    def task(self, task: str) -> Task:
        return self.database.read(lambda tx: lists.task(tx, task))

    def task_id(self, text: str) -> str:
        return self.database.read(lambda tx: lists.task_id(tx, text))

    def show(self, task: str) -> Detail:
        return self.database.read(lambda tx: lists.detail(tx, task))

    def runs(self, task: str) -> list[Run]:
        return self.database.read(lambda tx: lists.runs(tx, task))

    def run(self, run: str) -> Run:
        return self.database.read(lambda tx: lists.run(tx, run))

    def held(self, host: str) -> list[Run]:
        """The runs of a host that hold their tasks, on all boards."""
        return self.database.read(lambda tx: lists.held(tx, host))

    def attachments(self, task: str) -> list[File]:
        return self.database.read(lambda tx: files.listed(tx, lists.task(tx, task).id, None))

    def kept(self, run: str) -> list[File]:
        return self.database.read(lambda tx: files.listed(tx, lists.run(tx, run).task_id, run))

    def file(self, task: str, run: str | None, name: str) -> bytes:
        """What an attachment holds, or with a run what is kept of that. Raises NotFound."""
        return self.database.read(lambda tx: files.content(tx, task, run, name))

    def run_show(self, ref: RunRef, task: str | None = None) -> Detail:
        """For a worker: its own task, one that it waited for, or one that it made."""
        return self.database.read(lambda tx: runs.show(tx, ref, task))

    def why(self, task: str) -> Reason:
        return self.database.read(lambda tx: lists.why(tx, task))

    def reasons(self, board: str, tasks: Iterable[Task]) -> dict[str, str]:
        """Why each of these tasks of the board waits."""
        return self.database.read(lambda tx: lists.reasons(tx, board, tasks))

    def stuck(self, board: str) -> dict[str, str]:
        """The tasks whose runs look stuck now, and why."""
        return self.database.read(lambda tx: liveness.stuck(tx, board))

    def spent(self, tasks: Iterable[Task]) -> dict[str, str]:
        """Of these tasks those that have spent their budgets, and which."""
        return self.database.read(lambda tx: usage.spent(tx, tasks))

    def capacity(self, board: str) -> tuple[Capacity, Busy]:
        return self.database.read(lambda tx: (lists.capacity(tx, board), lists.busy(tx, board)))

    def room(self, board: str, assignees: Iterable[str], host: str, pool: str = "") -> dict[str, str]:
        """The profiles that this host could not claim for now, and why not; the others have room.

        For tasks of this pool, or of none.
        """
        return self.database.read(lambda tx: claims.room(tx, board, assignees, host, pool))

    def page(
        self,
        board: str,
        *,
        status: Status | None = None,
        assignee: str | None = None,
        search: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        """Tasks, the newest first, with filters, a limit and a cursor."""
        return self.database.read(
            lambda tx: lists.page(
                tx, board, status=status, assignee=assignee, search=search, limit=limit, cursor=cursor
            )
        )

    def inbox(self, board: str, *, name: str = "", limit: int = 100) -> Inbox:
        """What waits for a person: all of it, or what this one or anybody is asked."""
        return self.database.read(lambda tx: inbox.listed(tx, board, name=name, limit=limit))

    def requested(self, task: str) -> Requested | None:
        """The changes that the last review of a task asked for."""
        return self.database.read(lambda tx: reviews.requested(tx, task))

    def checks_due(self, ref: RunRef) -> list[str] | None:
        """The commands that decide about what this run left; None when there is nothing to decide."""
        return self.database.read(lambda tx: reviews.due(tx, ref))

    def events(self, board: str, *, after: int = 0, limit: int = 100) -> list[TaskEvent]:
        return self.database.read(lambda tx: lists.events(tx, board, after=after, limit=limit))

    def faults(self) -> list[str]:
        """What is wrong with the store, by recounting everything; empty when it is sound."""
        from holdfast.board.verbs import transfer

        return self.database.faults() or self.database.read(transfer.faults)

    def changed(self, timeout_s: float) -> bool:
        """A hint that somebody may have changed something since the last call; look to be sure."""
        return self.database.changed(timeout_s)
