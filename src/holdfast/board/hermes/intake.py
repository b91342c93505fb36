"""Import a board of Hermes into the store, all in one change; repeating the import changes nothing."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.hermes import hermes
from holdfast.board.hermes.hermes import MAX_NAME, HermesBoard, ImportPlan, Known, Row, Value, text
from holdfast.board.rules.rows import MAX_PARENTS, MAX_TEXT, NewTask, Task
from holdfast.board.store import Store
from holdfast.board.verbs import boards, files, ledger
from holdfast.errors import HoldfastError, NotFound

Contents: TypeAlias = Callable[[Row], bytes | None]  # of an attachment; None if it is not available

_ASKED: Final = (  # the fields of a new task that Hermes has too
    *("title", "body", "assignee", "priority", "max_attempts", "workspace_kind", "workspace"),
    "max_runtime_s",
)
MAX_NOTES: Final = 100  # listed beside the counts


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results for the rows of the source, by table: how many ended how."""

    board: str
    dry_run: bool
    new_board: bool
    counts: dict[str, dict[str, int]]
    notes: list[str]
    more_notes: int = 0


class _Rehearsed(Exception):
    """Carries the report out of a change that must be rolled back."""

    def __init__(self, report: ImportReport) -> None:
        self.report = report


def import_board(
    store: Store, source: HermesBoard, contents: Contents, *, board: str, who: str, dry_run: bool = False
) -> ImportReport:
    """Import the tasks of the source that are not on the board yet, with all that belongs to them.

    The board is created if missing. With `dry_run` nothing is kept, and the report says what would be.

    Raises:
        InvalidRequest: a task cannot be kept under its id, or is on another board.
    """

    def change(tx: Transaction) -> ImportReport:
        report = _import(tx, source, contents, board=board, who=who, dry_run=dry_run)
        if dry_run:
            raise _Rehearsed(report)
        return report

    try:
        return store.database.write(change)
    except _Rehearsed as done:
        return done.report


def _import(
    tx: Transaction, source: HermesBoard, contents: Contents, *, board: str, who: str, dry_run: bool
) -> ImportReport:
    new_board = _board_is_new(tx, board, source.title)
    plan = hermes.plan(source, board, _find_known(tx, source, board), now_ms=tx.now_ms)
    _write(tx, plan, board, who)
    _attach(tx, plan, contents)
    return ImportReport(
        board=board,
        dry_run=dry_run,
        new_board=new_board,
        counts={table: dict(sorted(counts.items())) for table, counts in plan.counts.items() if counts},
        notes=plan.notes[:MAX_NOTES],
        more_notes=max(0, len(plan.notes) - MAX_NOTES),
    )


def _board_is_new(tx: Transaction, board: str, title: str) -> bool:
    try:
        boards.get_unarchived(tx, board)
    except NotFound:
        boards.create(tx, board, title.replace("\0", "")[:MAX_TEXT])
        return True
    return False


def _find_known(tx: Transaction, source: HermesBoard, board: str) -> dict[str, Known]:
    known = {}
    for row in source.tasks:
        found = tx.one("task_get", id=str(row.get("id")))
        if found is None:
            continue
        task = row_of(Task, found)
        came = tx.one("answer_get", scope=_scope(board), name=task.id)
        known[task.id] = Known(
            task.board,
            task.status,
            frozenset(str(link["parent"]) for link in tx.all("links_above", task=task.id, most=MAX_PARENTS)),
            None if came is None else str(came["question"]),
        )
    return known


def _write(tx: Transaction, plan: ImportPlan, board: str, who: str) -> None:
    for table in ("tasks", "links", "runs", "comments"):
        for row in getattr(plan, table):
            _insert(tx, table, row)
    for key, task in plan.keys.items():
        _answer_creation(tx, board, key, task)
    for task, digest in plan.digests.items():
        tx.one("answer_reserve", scope=_scope(board), name=task, question=digest, now=tx.now_ms)
    if plan.events:
        last = int(str(tx.row("next_seq", board=board, count=len(plan.events))["last_seq"]))
        for seq, event in enumerate(plan.events, last - len(plan.events) + 1):
            tx.all("event_add", seq=seq, **event)
    for task, payload in plan.imported.items():
        tx.log(board, "imported", who, task=task, hermes=payload)


def _answer_creation(tx: Transaction, board: str, key: str, task: str) -> None:
    """Reserve the key for this task: repeating its creation returns it, and another request is refused."""
    made = ledger.task(tx, task)
    asked = NewTask(
        parents=tuple(str(row["parent"]) for row in tx.all("links_above", task=task, most=MAX_PARENTS)),
        **{name: getattr(made, name) for name in _ASKED},
    )
    question = ledger.fingerprint("create", *asked.fingerprint_parts())
    if tx.one("answer_reserve", scope=f"board:{board}", name=key, question=question, now=tx.now_ms):
        tx.all("answer_set", scope=f"board:{board}", name=key, answer=msgspec.json.encode(made).decode())


def _attach(tx: Transaction, plan: ImportPlan, contents: Contents) -> None:
    for row in plan.attachments:
        task, name = text(row, "task_id"), text(row, "stored_path").rpartition("/")[2]
        data = contents(row)
        try:
            if data is not None:
                who = text(row, "uploaded_by")[:MAX_NAME] or "hermes"
                files.attach(tx, task, name, data, who=who)
        except HoldfastError as exc:
            data = None
            plan.notes.append(f"{task}: {name!r} is not attached: {exc}")
        plan.counts["attachments"][
            "left out: gone, too large, or not where Hermes keeps them" if data is None else "kept"
        ] += 1


def _insert(tx: Transaction, table: str, row: dict[str, Value]) -> None:
    marks = ", ".join(f":{name}" for name in row)
    tx.select(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", row)  # noqa: S608 - names of ours


def _scope(board: str) -> str:
    return f"hermes:{board}"
