"""Queries of the board. Nothing here changes anything."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.database.database import Row, Transaction, Value, row_of
from holdfast.board.rules import assign, budget, metrics
from holdfast.board.rules.assign import Busy, Capacity, Places
from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.metrics import Recent, Runs
from holdfast.board.rules.rows import (
    Board,
    Comment,
    Detail,
    File,
    HostQuestion,
    ParentResult,
    Run,
    Task,
    TaskEvent,
    TaskLink,
    TaskMessage,
    describe_asked,
)
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.verbs import boards, files, ledger
from holdfast.errors import NotFound, UsageError

T = TypeVar("T")

MAX_PAGE: Final = 500  # rows; a reader that needs more asks again
OFFER_MS: Final = 90_000  # how long an offer to work counts; dispatchers repeat it far more often
MAX_OFFERS: Final = 500  # hosts of one board
MAX_LIKELY: Final = 5  # tasks that are named when a short id is ambiguous
SHOWN: Final = 50  # comments, runs, links and events of one task, the newest
HOST_ASKED: Final = "host_asked"  # the event of a question about a host
_AFTER_A_RUN: Final = (TaskStatus.FAILED, TaskStatus.HANDOFF_FAILED, TaskStatus.WAITING_SYSTEM)

_PAGE: Final = "SELECT * FROM tasks WHERE board = :board"
_FILTERS: Final = {
    "status": " AND status = :status",
    "assignee": " AND assignee = :assignee",
    "search": " AND (FOLD(title) LIKE :search ESCAPE '!' OR FOLD(body) LIKE :search ESCAPE '!')",
    "id": " AND (created_ms, id) < (:created_ms, :id)",
}
_ORDER: Final = " ORDER BY created_ms DESC, id DESC LIMIT :most"


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks, the newest first; `cursor` is for the next page, and None on the last."""

    tasks: list[Task]
    cursor: str | None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    board: Board
    tasks: dict[str, int]
    total: int
    running: int
    oldest_ready_ms: int | None  # how long the longest waiting ready task has been ready


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The offer of a host: its profiles (None: all), why it starts none now, and its environments."""

    profiles: tuple[str, ...] | None = None
    held: str = ""
    places: Places | None = None


class HostPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place of runs: a host (no environment), or an environment of it. `shut`: why none is begun now."""

    host: str
    environment: str = ""
    shut: str = ""
    running: int = 0


class Reason(msgspec.Struct, frozen=True):
    """Why a task is not running."""

    task: str
    status: TaskStatus
    reason: str


def page(
    tx: Transaction,
    slug: str,
    *,
    status: TaskStatus | None = None,
    assignee: str | None = None,
    search: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> TaskPage:
    """Tasks, the newest first. `cursor` is that of the page before.

    Raises:
        UsageError: a limit or a cursor makes no sense.
        NotFound: there is no such board.
    """
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
    return TaskPage(rows[:limit], f"{last.created_ms}.{last.id}" if last else None)


def detail(tx: Transaction, task_id: str) -> Detail:
    """A task with its details. Raises NotFound."""
    task = ledger.task(tx, task_id)
    return Detail(
        task=task,
        parents=[row_of(TaskLink, row) for row in tx.all("links_above", task=task_id, most=SHOWN)],
        children=[row_of(TaskLink, row) for row in tx.all("links_below", task=task_id, most=SHOWN)],
        comments=_newest(tx, "comments_of_task", task_id, Comment),
        runs=_newest(tx, "runs_of_task", task_id, Run),
        events=_newest(tx, "events_of_task", task_id, TaskEvent),
        results=[row_of(ParentResult, row) for row in tx.all("results_above", task=task_id, most=SHOWN)],
        files=files.list_files(tx, task_id, None),
        messages=_newest(tx, "messages_of_task", task_id, TaskMessage),
        questions=list_asked(tx, task.run_id) if task.run_id else [],
    )


def attachments(tx: Transaction, task_id: str) -> list[File]:
    return files.list_files(tx, ledger.task(tx, task_id).id, None)


def list_kept(tx: Transaction, run_id: str) -> list[File]:
    return files.list_files(tx, ledger.run(tx, run_id).task_id, run_id)


def task_id(tx: Transaction, text: str) -> str:
    """The id of the one task that has this id or begins with it; `t_` may be left out.

    Raises:
        NotFound: no id begins so.
        UsageError: several do.
    """
    if tx.one("task_get", id=text) is not None:
        return text
    likely = f"t_{text}"
    found = tx.all(
        "task_ids_like", size=len(text), begins=text, long=len(likely), prefixed=likely, most=MAX_LIKELY + 1
    )
    ids = [str(row["id"]) for row in found] if text else []
    if not ids:
        raise NotFound(f"there is no task {text}", remedy="holdfast task list")
    if len(ids) > 1:
        more = ", …" if len(ids) > MAX_LIKELY else ""
        raise UsageError(f"{text} is the beginning of several tasks: {', '.join(ids[:MAX_LIKELY])}{more}")
    return ids[0]


def runs(tx: Transaction, task_id: str) -> list[Run]:
    """The newest runs of a task, in order of age, the oldest first."""
    ledger.task(tx, task_id)
    return _newest(tx, "runs_of_task", task_id, Run)


def list_held(tx: Transaction, host: str) -> list[Run]:
    """The runs of a host that hold their tasks, on all boards, the oldest first."""
    return [row_of(Run, row) for row in tx.all("runs_held", host=host)]


def events(tx: Transaction, slug: str, *, after: int = 0, limit: int = 100) -> list[TaskEvent]:
    """The events after one that the reader has seen."""
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"a page has 1 to {MAX_PAGE} events")
    boards.get(tx, slug)
    return [row_of(TaskEvent, row) for row in tx.all("events_after", board=slug, after=after, most=limit)]


def counts(tx: Transaction, slug: str) -> dict[str, int]:
    """The number of tasks in each status; cheaper than `stats`."""
    found = {str(row["status"]): int(str(row["count"])) for row in tx.all("board_counts", board=slug)}
    return {status: found.get(status, 0) for status in TaskStatus}


def stats(tx: Transaction, slug: str) -> Stats:
    found, by_status = boards.get(tx, slug), counts(tx, slug)
    [oldest] = tx.all("board_oldest_ready", board=slug)
    since = oldest["since_ms"]
    return Stats(
        board=found,
        tasks=by_status,
        total=sum(by_status.values()),
        running=by_status[TaskStatus.RUNNING],
        oldest_ready_ms=None if since is None else tx.now_ms - int(str(since)),
    )


def recent(tx: Transaction, slug: str) -> Recent:
    """The activity in the newest events; these and their runs are found by primary key."""
    last = boards.get(tx, slug).last_seq
    after = max(0, last - metrics.WINDOW)
    runs = [row_of(Runs, row) for row in tx.all("runs_recent", board=slug, after=after)]
    moved = [row_of(TaskEvent, row) for row in tx.all("events_of_claims", board=slug, after=after)]
    return Recent(
        events=last - after,
        runs=sorted(runs, key=lambda one: (one.profile, one.outcome or "", one.failure or "")),
        waits_ms=metrics.waits_ms(moved),
    )


def why(tx: Transaction, task_id: str) -> Reason:
    """Why a task waits, or that it does not; with the failure of its last run if that is the cause."""
    found = ledger.task(tx, task_id)
    reason = reasons(tx, found.board, [found])[found.id]
    last = runs(tx, task_id)[-1:] if found.status in _AFTER_A_RUN else []
    if last and last[0].error:
        reason = f"{reason}; its last run: {last[0].error}"
    if found.run_id is not None and (stuck := ledger.run(tx, found.run_id).stuck):
        reason = f"{reason}, but looks stuck: {stuck}"
    if asked := list_open_of(tx, found):
        reason = f"{reason}, and waits for an answer: {describe_asked(asked)}"
    return Reason(found.id, found.status, reason)


def reasons(tx: Transaction, slug: str, found: Iterable[Task]) -> dict[str, str]:
    """The same for several tasks of one board, each judged as if it were the only one to be claimed."""
    bounds, running, offers = capacity(tx, slug), busy(tx, slug), _offers(tx, slug)
    still = assign.why_stopped(boards.get(tx, slug))
    listed = list(found)
    over = find_spent(tx, (each for each in listed if each.status is TaskStatus.READY))
    said = {}
    for each in listed:
        accepting = {
            host: {each.assignee} if offer.profiles is None else frozenset(offer.profiles)
            for host, offer in offers.items()
        }
        held = {
            host: shut
            for host, offer in offers.items()
            if (shut := offer.held or (offer.places and offer.places.find_holdup(each)))
        }
        waiting = assign.assign(
            [each],
            hosts=accepting,
            capacity=bounds,
            busy=running,
            now_ms=tx.now_ms,
            waits_for={each.id: _waits_for(tx, each)},
            held=held,
        ).waiting
        reason = waiting.get(each.id, "waits to be claimed")
        if each.id in over:
            reason = budget.question(over[each.id])
        said[each.id] = still or reason if each.status is TaskStatus.READY else reason
    return said


def find_spent(tx: Transaction, found: Iterable[Task]) -> dict[str, str]:
    """Those of these tasks that have used up a budget, and which budget; the others may be claimed."""
    said = {}
    for task in found:
        if task.max_tokens is None and task.max_cost is None:
            continue
        row = tx.row("task_used", task=task.id)
        used = BudgetUse(int(str(row["tokens"])), int(str(row["cost"])))
        if (words := budget.describe_spent(used, budget.of_task(task))) is not None:
            said[task.id] = words
    return said


def list_places(tx: Transaction, slug: str) -> list[HostPlace]:
    """The hosts that offer to work for a board or have running tasks of it, with their environments."""
    running: Counter[tuple[str, str]] = Counter()
    for row in tx.all("board_running", board=slug):
        running[str(row["host"]), str(row["environment"])] += int(str(row["count"]))
    shut: dict[tuple[str, str], str] = {}
    for host, offer in _offers(tx, slug).items():
        shut[host, ""] = offer.held
        for name, why_not in (offer.places.environments if offer.places else {}).items():
            shut[host, name] = why_not
    return [
        HostPlace(
            host=host,
            environment=name,
            shut=shut.get((host, name), "nothing was heard of it lately"),
            running=running[host, name],
        )
        for host, name in sorted({*running, *shut})
    ]


def list_wanted(tx: Transaction, slug: str) -> list[str]:
    """The environments that ready tasks of a board name."""
    return [str(row["name"]) for row in tx.all("ready_environments", board=slug, most=MAX_PAGE)]


def find_stuck(tx: Transaction, slug: str) -> dict[str, str]:
    """The tasks of a board with runs that look stuck now, and why."""
    return {str(row["task_id"]): str(row["stuck"]) for row in tx.all("runs_stuck", board=slug)}


def list_asked(tx: Transaction, run_id: str) -> list[HostQuestion]:
    """The hosts that a run has asked about, the oldest question first."""
    return [_read_question(row) for row in tx.all("hosts_asked_by", scope=asked_scope(run_id))]


def list_open_of(tx: Transaction, task: Task) -> list[HostQuestion]:
    """The open questions of the run that holds a task."""
    return [one for one in list_asked(tx, task.run_id) if one.is_open] if task.run_id else []


def list_open(tx: Transaction, slug: str) -> dict[str, list[HostQuestion]]:
    """The open questions of all runs of a board, by task."""
    found: dict[str, list[HostQuestion]] = {}
    for one in map(_read_question, tx.all("hosts_asked_on", board=slug, scope=asked_scope(""))):
        if one.is_open:
            found.setdefault(one.task_id, []).append(one)
    return found


def asked_scope(run_id: str) -> str:
    """The scope under which a run's questions about hosts are kept, with their answers."""
    return f"hosts of {run_id}"


def _read_question(row: Row) -> HostQuestion:
    return decoding.decode(str(row["answer"] or row["question"]), HostQuestion)


def _waits_for(tx: Transaction, found: Task) -> list[str]:
    if found.status is not TaskStatus.TODO:
        return []
    rows = tx.all("links_open_above", task=found.id, most=SHOWN)
    return [f"{row['parent']} ({row['status']})" for row in rows]


def _offers(tx: Transaction, slug: str) -> dict[str, Offer]:
    """The recent offers of hosts to start workers."""
    until = assign.find_future(tx.now_ms)  # an offer dated in the future was made before the clock went back
    rows = tx.all("offers_since", board=slug, since=tx.now_ms - OFFER_MS, until=until, most=MAX_OFFERS)
    return {str(row["host"]): _offer(row["profiles"]) for row in rows}


def _offer(said: object) -> Offer:
    if said is None:
        return Offer()
    found = decoding.decode(str(said), Offer | list[str])  # a list: the format before offers had more fields
    return found if isinstance(found, Offer) else Offer(tuple(found))


def capacity(tx: Transaction, slug: str) -> Capacity:
    """The caps that are kept with the board."""
    rows = [
        (str(row["scope"]), str(row["name"]), int(str(row["most"]))) for row in tx.all("caps_get", board=slug)
    ]
    return Capacity(
        board=next((most for scope, _, most in rows if scope == "board"), None),
        profiles={name: most for scope, name, most in rows if scope == "profile"},
        hosts={name: most for scope, name, most in rows if scope == "host"},
        pools={name: most for scope, name, most in rows if scope == "pool"},
    )


def capacity_and_use(tx: Transaction, slug: str) -> tuple[Capacity, Busy]:
    return capacity(tx, slug), busy(tx, slug)


def busy(tx: Transaction, slug: str) -> Busy:
    """The runs that hold tasks of the board now."""
    counts: dict[str, dict[str, int]] = {"profile": {}, "host": {}, "pool": {}, "environment": {}}
    for row in tx.all("board_running", board=slug):
        for of, found in counts.items():
            name = str(row[of])
            found[name] = found.get(name, 0) + int(str(row["count"]))
    pools, elsewhere = (
        {name: count for name, count in counts[of].items() if name} for of in ("pool", "environment")
    )
    return Busy(sum(counts["host"].values()), counts["profile"], counts["host"], pools, elsewhere)


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
