"""Looking at the board. Nothing here changes anything."""

import re
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from holdfast.board import assign, boards, files
from holdfast.board.assign import Busy, Capacity
from holdfast.board.database import Transaction, Value, row_of
from holdfast.board.rows import Board, Comment, Detail, Event, Link, ParentResult, Run, Task
from holdfast.board.transitions import Status
from holdfast.errors import NotFound, UsageError

T = TypeVar("T")

MAX_PAGE: Final = 500  # rows; a reader that wants more asks again
OFFER_MS: Final = (
    90_000  # how long it counts that somebody offered to work; dispatchers say so far more often
)
MAX_OFFERS: Final = 500  # hosts of one board
SHOWN: Final = 50  # comments, runs, links and events of one task, the newest
_AFTER_A_RUN: Final = (Status.FAILED, Status.HANDOFF_FAILED, Status.WAITING_SYSTEM)

_PAGE: Final = "SELECT * FROM tasks WHERE board = :board"
_FILTERS: Final = {
    "status": " AND status = :status",
    "assignee": " AND assignee = :assignee",
    "search": " AND (FOLD(title) LIKE :search ESCAPE '!' OR FOLD(body) LIKE :search ESCAPE '!')",
    "id": " AND (created_ms, id) < (:created_ms, :id)",
}
_ORDER: Final = " ORDER BY created_ms DESC, id DESC LIMIT :most"


class Page(msgspec.Struct, frozen=True):
    """Tasks, the newest first; `cursor` is for the next page, and None on the last."""

    tasks: list[Task]
    cursor: str | None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    board: Board
    tasks: dict[str, int]
    total: int
    running: int
    oldest_ready_ms: int | None  # how long the task that is ready for longest has been so


class Reason(msgspec.Struct, frozen=True):
    """Why a task is not running."""

    task: str
    status: Status
    reason: str


def page(
    tx: Transaction,
    slug: str,
    *,
    status: Status | None = None,
    assignee: str | None = None,
    search: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page:
    """Raises UsageError for a limit or a cursor that makes no sense, NotFound for an unknown board."""
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"a page has 1 to {MAX_PAGE} tasks")
    boards.get(tx, slug)
    values: dict[str, Value] = {}
    if status is not None:
        values["status"] = status
    if assignee is not None:
        values["assignee"] = assignee
    if search is not None:
        values["search"] = _pattern(search)
    if cursor is not None:
        values |= _position(cursor)
    text = _PAGE + "".join(_FILTERS[name] for name in values if name in _FILTERS) + _ORDER
    rows = [row_of(Task, row) for row in tx.select(text, values | {"board": slug, "most": limit + 1})]
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(rows[:limit], f"{last.created_ms}.{last.id}" if last else None)


def detail(tx: Transaction, task_id: str) -> Detail:
    """Raises NotFound."""
    return Detail(
        task=task(tx, task_id),
        parents=[row_of(Link, row) for row in tx.all("links_above", task=task_id, most=SHOWN)],
        children=[row_of(Link, row) for row in tx.all("links_below", task=task_id, most=SHOWN)],
        comments=_newest(tx, "comments_of_task", task_id, Comment),
        runs=_newest(tx, "runs_of_task", task_id, Run),
        events=_newest(tx, "events_of_task", task_id, Event),
        results=[row_of(ParentResult, row) for row in tx.all("results_above", task=task_id, most=SHOWN)],
        files=files.listed(tx, task_id, None),
    )


def task(tx: Transaction, task_id: str) -> Task:
    row = tx.one("task_get", id=task_id)
    if row is None:
        raise NotFound(f"there is no task {task_id}", remedy="holdfast task list")
    return row_of(Task, row)


def runs(tx: Transaction, task_id: str) -> list[Run]:
    """The newest runs of a task, the oldest of them first."""
    task(tx, task_id)
    return _newest(tx, "runs_of_task", task_id, Run)


def run(tx: Transaction, run_id: str) -> Run:
    row = tx.one("run_get", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}", remedy="holdfast task runs ID")
    return row_of(Run, row)


def held(tx: Transaction, host: str) -> list[Run]:
    """The runs of a host that hold their tasks, on all boards, the oldest first."""
    return [row_of(Run, row) for row in tx.all("runs_held", host=host)]


def events(tx: Transaction, slug: str, *, after: int, limit: int) -> list[Event]:
    """What happened after an event that the reader has seen."""
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"a page has 1 to {MAX_PAGE} events")
    boards.get(tx, slug)
    return [row_of(Event, row) for row in tx.all("events_after", board=slug, after=after, most=limit)]


def counts(tx: Transaction, slug: str) -> dict[str, int]:
    """How many tasks there are in each status."""
    found = {str(row["status"]): int(str(row["count"])) for row in tx.all("board_counts", board=slug)}
    return {status: found.get(status, 0) for status in Status}


def stats(tx: Transaction, slug: str) -> Stats:
    found, by_status = boards.get(tx, slug), counts(tx, slug)
    [oldest] = tx.all("board_oldest_ready", board=slug)
    since = oldest["since_ms"]
    return Stats(
        board=found,
        tasks=by_status,
        total=sum(by_status.values()),
        running=by_status[Status.RUNNING],
        oldest_ready_ms=None if since is None else tx.now_ms - int(str(since)),
    )


def why(tx: Transaction, task_id: str) -> Reason:
    """Why a task waits, or that it does not; and how its last run failed, if that is the cause."""
    found = task(tx, task_id)
    reason = reasons(tx, found.board, [found])[found.id]
    last = runs(tx, task_id)[-1:] if found.status in _AFTER_A_RUN else []
    if last and last[0].error:
        reason = f"{reason}; its last run: {last[0].error}"
    return Reason(found.id, found.status, reason)


def reasons(tx: Transaction, slug: str, found: Iterable[Task]) -> dict[str, str]:
    """Likewise for tasks of one board, each by itself: as if there were no other to be claimed."""
    bounds, running, hosts = capacity(tx, slug), busy(tx, slug), _offers(tx, slug)
    still = assign.stopped(boards.get(tx, slug))
    said = {}
    for each in found:
        accepting = {host: {each.assignee} if names is None else names for host, names in hosts.items()}
        waiting = assign.assign(
            [each],
            hosts=accepting,
            capacity=bounds,
            busy=running,
            now_ms=tx.now_ms,
            waits_for={each.id: _waits_for(tx, each)},
        ).waiting
        reason = waiting.get(each.id, "waits to be claimed")
        said[each.id] = still or reason if each.status is Status.READY else reason
    return said


def _waits_for(tx: Transaction, found: Task) -> list[str]:
    if found.status is not Status.TODO:
        return []
    rows = tx.all("links_open_above", task=found.id, most=SHOWN)
    return [f"{row['parent']} ({row['status']})" for row in rows]


def _offers(tx: Transaction, slug: str) -> dict[str, frozenset[str] | None]:
    """The hosts that have said lately which profiles they start workers for; None is all of them."""
    rows = tx.all("offers_since", board=slug, since=tx.now_ms - OFFER_MS, most=MAX_OFFERS)
    return {
        str(row["host"]): None
        if row["profiles"] is None
        else frozenset(msgspec.json.decode(str(row["profiles"]), type=list[str]))
        for row in rows
    }


def capacity(tx: Transaction, slug: str) -> Capacity:
    """The bounds that are kept with the board."""
    rows = [
        (str(row["scope"]), str(row["name"]), int(str(row["most"]))) for row in tx.all("caps_get", board=slug)
    ]
    return Capacity(
        board=next((most for scope, _, most in rows if scope == "board"), None),
        profiles={name: most for scope, name, most in rows if scope == "profile"},
        hosts={name: most for scope, name, most in rows if scope == "host"},
    )


def busy(tx: Transaction, slug: str) -> Busy:
    """The runs that hold tasks of the board now."""
    profiles: dict[str, int] = {}
    hosts: dict[str, int] = {}
    for row in tx.all("board_running", board=slug):
        count = int(str(row["count"]))
        profiles[str(row["profile"])] = profiles.get(str(row["profile"]), 0) + count
        hosts[str(row["host"])] = hosts.get(str(row["host"]), 0) + count
    return Busy(sum(hosts.values()), profiles, hosts)


def _newest(tx: Transaction, query: str, task_id: str, kind: type[T]) -> list[T]:
    return [row_of(kind, row) for row in reversed(tx.all(query, task=task_id, most=SHOWN))]


def _pattern(text: str) -> str:
    folded = re.sub("[A-Z]", lambda letter: letter[0].lower(), text)  # as both dialects fold, in any locale
    plain = folded.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{plain}%"


def _position(cursor: str) -> dict[str, Value]:
    created, _, task_id = cursor.partition(".")
    if not created.isdecimal() or not task_id:
        raise UsageError("this is no cursor of a list")
    return {"created_ms": int(created), "id": task_id}
