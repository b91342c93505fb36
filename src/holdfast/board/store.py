"""The board's store: every verb, each in one transaction, on SQLite or PostgreSQL.

When a verb returns, its effect survives a crash. When it raises, nothing has changed, except that a refused
answer is recorded. A store belongs to one thread.
"""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from holdfast.board.database.database import Clock, Database, Transaction, steady_clock
from holdfast.board.database.opening import open_database
from holdfast.board.rules import verbs
from holdfast.board.rules.rows import Board, RunRef, TaskMessage
from holdfast.board.rules.verbs import Verb
from holdfast.board.verbs import boards as board_verbs
from holdfast.board.verbs import claims, files, hostquestions, ledger, lists, messages, reviews, tasks
from holdfast.board.verbs import inbox as inbox_verbs
from holdfast.board.verbs import runs as run_verbs
from holdfast.board.verbs.runs import RefusedAnswer
from holdfast.errors import StaleRun

P = ParamSpec("P")
T = TypeVar("T")


def open_store(
    address: str, *, create: bool = True, clock: Clock | None = None, steady: Clock = steady_clock
) -> "Store":
    """Open a store by its address: a path, or a postgresql:// URL.

    `clock` replaces the store's own and `steady` the one that it is compared with, for tests.

    Raises:
        NotFound: there is none, and `create` is false.
        Unreachable: the server does not answer.
        StoreDamaged: the file is not a board any more.
    """
    return Store(open_database(address, create=create, clock=clock, steady=steady))


def _read(verb: Callable[Concatenate[Transaction, P], T]) -> Callable[Concatenate["Store", P], T]:
    """Make a method that runs a reading verb in a transaction of its own."""

    @functools.wraps(verb)
    def method(self: "Store", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.database.read(lambda tx: verb(tx, *args, **kwargs))

    return method


def _write(verb: Callable[Concatenate[Transaction, P], T]) -> Callable[Concatenate["Store", P], T]:
    """Make a method that runs a verb in a transaction of its own."""

    @functools.wraps(verb)
    def method(self: "Store", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.database.write(lambda tx: verb(tx, *args, **kwargs))

    return method


def _answer(
    verb: Callable[Concatenate[Transaction, P], T | RefusedAnswer],
) -> Callable[Concatenate["Store", P], T]:
    """Make a method of a verb that ends a run.

    The method raises StaleRun when another answer was given before, or the task was taken away. It raises
    only after the transaction, so that the refusal is recorded.
    """

    @functools.wraps(verb)
    def method(self: "Store", /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer = self.database.write(lambda tx: verb(tx, *args, **kwargs))
        if isinstance(answer, RefusedAnswer):
            raise StaleRun(answer.refused)
        return answer

    return method


class Store:
    """Boards, tasks and runs in a database. `board/verbs/` documents what each verb does and raises."""

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

    # --- reading

    def now_ms(self) -> int:
        """The store's clock, which dates everything."""
        return self.database.read(lambda tx: tx.now_ms)

    def boards(self) -> list[Board]:
        return self.database.read(board_verbs.list_boards)

    stats = _read(lists.stats)
    wanted_environments = _read(lists.list_wanted)
    places = _read(lists.list_places)
    recent = _read(lists.recent)
    counts = _read(lists.counts)
    capacity = _read(lists.capacity_and_use)
    task = _read(ledger.task)
    task_id = _read(lists.task_id)
    show = _read(lists.detail)
    page = _read(lists.page)
    why = _read(lists.why)
    reasons = _read(lists.reasons)
    runs = _read(lists.runs)
    run = _read(ledger.run)
    run_show = _read(run_verbs.show)
    held_runs = _read(lists.list_held)
    stuck_tasks = _read(lists.find_stuck)
    spent_budgets = _read(lists.find_spent)
    attachments = _read(lists.attachments)
    kept_files = _read(lists.list_kept)
    file = _read(files.content)
    inbox = _read(inbox_verbs.list_waiting)
    waiting = _read(inbox_verbs.find_waiting)
    host_questions = _read(lists.list_asked)
    asking_tasks = _read(lists.list_open)
    requested_changes = _read(reviews.find_requested)
    checks_due = _read(reviews.list_due)
    events = _read(lists.events)

    def faults(self) -> list[str]:
        """The faults of the store, found by recounting everything; empty when it is sound."""
        from holdfast.board.verbs import transfer

        return self.database.faults() or self.database.read(transfer.faults)

    def changed(self, timeout_s: float) -> bool:
        """A hint that the store may have changed since the last call; read it to be sure."""
        return self.database.changed(timeout_s)

    # --- people and programs with authority over a board

    def carry_out(self, verb: Verb, on: str, given: msgspec.Struct, *, who: str) -> Any:
        """Carry out a verb of the table for a caller that is not a worker, on this task or board.

        Raises as the store's method does, and UsageError when a value is out of its bounds.
        """
        later = getattr(given, "in_s", None) is not None
        args = verbs.settle(verb, given, self.now_ms() if later else 0)
        target = (on,) if verb.target else ()
        more = {"key": getattr(given, "key", None)} if verb.keyed else {}
        return getattr(self, verb.method)(*target, **verb.words(args), **more, who=who)

    create_board = _write(board_verbs.create)
    set_cap = _write(board_verbs.set_cap)
    pause = _write(board_verbs.pause)
    archive_board = _write(board_verbs.archive)
    create = _write(tasks.create)
    link = _write(tasks.link)
    unlink = _write(tasks.unlink)
    assign = _write(tasks.assign)
    edit = _write(tasks.edit)
    attach = _write(files.attach)
    comment = _write(tasks.comment)
    tell = _write(messages.tell)
    answer_host = _write(hostquestions.answer)
    move = _write(tasks.move)
    review = _write(reviews.review)
    acknowledge = _write(inbox_verbs.acknowledge)

    # --- dispatchers and supervisors

    claim = _write(claims.claim)
    offer = _write(claims.offer)
    wake = _write(tasks.wake)
    expire = _write(run_verbs.expire)
    set_run = _write(run_verbs.set_run)
    occupy = _write(run_verbs.occupy)
    set_stuck = _write(run_verbs.set_stuck)
    use = _write(run_verbs.use)
    keep = _write(files.keep)
    brief = _write(messages.brief)
    verify = _write(run_verbs.verify)
    tell_network = _write(run_verbs.tell_network)
    ask_host = _write(hostquestions.put)
    settle_host = _write(hostquestions.settle)
    refuse_file = _write(run_verbs.refuse_file)
    record_checks = _write(reviews.record_checks)
    fail = _write(run_verbs.fail)
    give_back = _write(run_verbs.give_back)
    stop_spent = _write(run_verbs.stop_spent)

    # --- workers: every verb carries its run, and is refused once that run does not hold the task

    heartbeat = _write(run_verbs.heartbeat)
    run_comment = _write(run_verbs.comment)
    create_child = _write(run_verbs.create_child)
    run_link = _write(run_verbs.link)
    run_attach = _write(run_verbs.attach)
    complete = _answer(run_verbs.complete)
    block = _answer(run_verbs.block)
    request_review = _answer(run_verbs.request_review)

    def hand_out(self, ref: RunRef, envelope: str, *, ends: bool) -> list[TaskMessage]:
        """The messages to send with the answer to this envelope; a repeated envelope gets the same ones."""
        if not self.database.read(lambda tx: messages.has_pending(tx, ref, envelope)):
            return []
        return self.database.write(lambda tx: messages.hand_out(tx, ref, envelope, ends=ends))
