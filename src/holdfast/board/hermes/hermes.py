"""Convert a board of Hermes Agent into rows of this board. Pure module.

Rows come as SQLite returns them, because columns differ between its versions. Every row of the source is
counted once, under its result; data without a column here stays with the task, in its event `imported`.

Statuses keep their meaning. What only a person could move on there waits for a person here too: a task that
is parked (Hermes has no clock for it), and one that is running, because its worker cannot be observed from
here. "Blocked" has three meanings in Hermes; the task's newest relevant event decides between them.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast.board.rules.retry import DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS
from holdfast.board.rules.rows import (
    MAX_METADATA,
    MAX_PATH,
    MAX_PRIORITY,
    MAX_RUNTIME_S,
    MAX_TEXT,
    MAX_TITLE,
    JsonObject,
    WorkspaceKind,
)
from holdfast.board.rules.transitions import ENDS, TaskStatus, settle
from holdfast.errors import InvalidRequest

Row: TypeAlias = Mapping[str, object]
Value: TypeAlias = str | int | None

COUNTED: Final = (
    *("tasks", "links", "runs", "comments", "events", "attachments", "subscriptions"),
    "idempotency keys",
)
MAX_NAME: Final = 200  # of a profile, an author, a worker
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # becomes the name of a folder here
MAX_REST: Final = 4096  # characters of a column that has no equivalent here
_LAST_MS: Final = 253_402_300_800_000  # the year 10000; a later value was never a time


class HermesBoard(NamedTuple):
    """A board of Hermes, table by table."""

    title: str
    directory: str  # where its tasks are worked on by default
    tasks: list[Row]
    links: list[Row]
    comments: list[Row]
    runs: list[Row]
    events: list[Row]
    attachments: list[Row]
    subscriptions: list[Row]


class Known(NamedTuple):
    """A task of the source that exists here already."""

    board: str
    status: TaskStatus
    parents: frozenset[str]
    digest: str | None  # of the source it came from; None if it did not come from Hermes


@dataclass(slots=True)
class ImportPlan:
    """The rows to write, and the result for every row of the source."""

    tasks: list[dict[str, Value]] = field(default_factory=list)
    links: list[dict[str, Value]] = field(default_factory=list)
    runs: list[dict[str, Value]] = field(default_factory=list)
    comments: list[dict[str, Value]] = field(default_factory=list)
    events: list[dict[str, Value]] = field(default_factory=list)
    attachments: list[Row] = field(default_factory=list)  # of new tasks; the caller looks for their files
    imported: dict[str, JsonObject] = field(default_factory=dict)  # the event of each task
    digests: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)  # idempotency key → task
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {table: Counter() for table in COUNTED})
    notes: list[str] = field(default_factory=list)


class Import(NamedTuple):
    """The state shared by all steps of one import."""

    made: ImportPlan
    new: Mapping[str, Row]  # the tasks of the source that are not here yet
    known: Mapping[str, Known]
    board: str
    now_ms: int

    def is_new(self, table: str, task: str) -> bool:
        """Whether a row belongs to a new task; if not, count what becomes of it."""
        if task not in self.new:
            self.made.counts[table][
                "here before" if task in self.known else "left out: its task is gone"
            ] += 1
        return task in self.new


class Fitted(NamedTuple):
    text: str
    cut: bool


def text(row: Row, column: str) -> str:
    """The column as text; empty when there is none."""
    value = row.get(column)
    return "" if value is None else str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")


def integer(row: Row, column: str) -> int:
    """The column as an integer; zero when there is none."""
    value = row.get(column)
    if isinstance(value, int | float) and abs(value) < 1 << 62:
        return int(value)
    return 0


def epoch_ms(value: object) -> int | None:
    """Convert seconds, or a date as older versions wrote it, to milliseconds."""
    found: float | None = None
    if isinstance(value, int | float):
        found = float(value)
    elif isinstance(value, str):
        try:
            found = float(value)
        except ValueError:
            found = _date(value)
    if found is None or not 0 < found * 1000 < _LAST_MS:
        return None
    return round(found * 1000)


def _date(written: str) -> float | None:
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def json_object(row: Row, column: str) -> JsonObject:
    """Decode the column as JSON; anything but an object is wrapped in one."""
    written = text(row, column)
    if not written:
        return {}
    try:
        value = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        value = written
    return value if isinstance(value, dict) else {"value": value}


def encode_metadata(value: JsonObject) -> str:
    """Encode metadata for the store. What is too large is replaced by its beginning, as text under `cut`."""
    encoded = msgspec.json.encode(value).decode()
    if len(encoded.encode()) <= MAX_METADATA:
        return encoded
    beginning = encoded.encode()[: MAX_METADATA // 8].decode("utf-8", "ignore")  # escaping may make it longer
    return msgspec.json.encode({"cut": beginning}).decode()


def fit(written: str) -> Fitted:
    return Fitted(written[:MAX_TEXT], len(written) > MAX_TEXT)


def split_title(title: str, body: str) -> tuple[str, Fitted]:
    """A one-line title, and the body.

    If the title is too long or has several lines, it also starts the body.
    """
    line = " ".join(title.split())
    if len(line) <= MAX_TITLE and line == title.strip():
        return line or "(untitled)", fit(body)
    return line[:MAX_TITLE] or "(untitled)", fit(f"{title}\n\n{body}" if line else body)


def leftover(row: Row, placed: Collection[str]) -> JsonObject:
    """The non-empty columns that have no place of their own here."""
    return {
        name: value[:MAX_REST] if isinstance(value, str) else value
        for name, value in row.items()
        if name not in placed and value not in (None, "", 0) and isinstance(value, str | int | float)
    }


def workspace_of(row: Row, directory: str) -> tuple[WorkspaceKind, str] | None:
    """The workspace of the task; None if its kind needs a path and there is none.

    Hermes names a worktree by its own path once it is made; here it is named by the repository.
    """
    kind, path = text(row, "workspace_kind"), text(row, "workspace_path")
    if kind not in (WorkspaceKind.DIR, WorkspaceKind.WORKTREE):
        return WorkspaceKind.SCRATCH, ""
    if kind == WorkspaceKind.WORKTREE:
        path = path.partition("/.worktrees/")[0] or directory
    return (WorkspaceKind(kind), path) if 0 < len(path) <= MAX_PATH else None


STATUSES: Final = {
    "triage": TaskStatus.TRIAGE,
    "todo": TaskStatus.TODO,
    "scheduled": TaskStatus.WAITING_HUMAN,
    "ready": TaskStatus.READY,
    "running": TaskStatus.WAITING_HUMAN,
    "blocked": TaskStatus.WAITING_HUMAN,
    "review": TaskStatus.REVIEW,
    "done": TaskStatus.DONE,
    "archived": TaskStatus.ARCHIVED,
}
_QUESTIONS: Final = {
    "scheduled": "It was parked in Hermes, without a time. Shall it go on?",
    "running": "It was running in Hermes when it was imported. Is that worker gone, so that it can run here?",
    "blocked": "It was blocked in Hermes, without a reason. What now?",
}
SATISFIES: Final = frozenset({TaskStatus.DONE, TaskStatus.ARCHIVED})  # in Hermes both let children start

_GATES: Final = frozenset({"blocked", "unblocked", "gave_up", "promoted", "promoted_manual", "created"})

# Columns with an equivalent here. All others stay with the task, in its event.
_PLACED: Final = frozenset(
    {"id", "title", "body", "assignee", "priority", "created_by", "created_at", "completed_at", "result"}
)


def digests(source: HermesBoard) -> dict[str, str]:
    """A digest of each task with all that belongs to it, to detect later changes."""
    found = {task: hashlib.sha256(_json(row)) for task, row in _by_id(source.tasks).items()}
    for rows, column in (
        (source.links, "child_id"),
        (source.comments, "task_id"),
        (source.runs, "task_id"),
        (source.attachments, "task_id"),
    ):
        for row in rows:
            if (task := text(row, column)) in found:
                found[task].update(_json(row))
    return {task: digest.hexdigest() for task, digest in found.items()}


def plan(source: HermesBoard, board: str, known: Mapping[str, Known], *, now_ms: int) -> ImportPlan:
    """What must be written so that the source is on the board. Existing rows stay as they are.

    Raises:
        InvalidRequest: a task has an id that cannot be kept, or it is on another board.
    """
    made, digest = ImportPlan(), digests(source)
    new = {}
    for task, row in _by_id(source.tasks).items():
        if task not in known:
            new[task] = row
        elif known[task].board != board:
            raise InvalidRequest(
                f"{task} is on the board {known[task].board} already", remedy=f"--board {known[task].board}"
            )
        else:
            changed = known[task].digest != digest[task]
            made.counts["tasks"]["here before" + (", and changed in Hermes since" if changed else "")] += 1
    made.digests = {task: digest[task] for task in new}
    events, runs = _group_by_task(source.events), _group_by_task(source.runs)
    statuses = {task: _status(row, events[task], made) for task, row in new.items()}  # parents not considered
    open_parents = _links(made, source.links, statuses, known)
    here = Import(made, new, known, board, now_ms)
    for task, row in new.items():
        status = settle(statuses[task], open_parents[task])
        _add_task(here, row, status, open_parents[task], runs[task], events[task], source.directory)
    names = add_runs(here, source.runs, events)
    add_comments(here, source.comments)
    add_events(here, source.events, names)
    made.attachments += [
        row for row in source.attachments if here.is_new("attachments", text(row, "task_id"))
    ]
    for _ in source.subscriptions:
        made.counts["subscriptions"]["left out: there are no notifications by chat here"] += 1
    return made


def _status(row: Row, events: list[Row], made: ImportPlan) -> TaskStatus:
    name = text(row, "status")
    if name == "blocked":
        newest = next((event for event in reversed(events) if text(event, "kind") in _GATES), None)
        if newest is not None and text(newest, "kind") == "gave_up":
            missed = json_object(newest, "payload").get("protocol_violations")
            return TaskStatus.HANDOFF_FAILED if missed else TaskStatus.FAILED
    if name not in STATUSES:
        made.notes.append(f"{text(row, 'id')}: the status {name!r} is not known here; a person decides")
    return STATUSES.get(name, TaskStatus.WAITING_HUMAN)


def _links(
    made: ImportPlan, links: list[Row], statuses: Mapping[str, TaskStatus], known: Mapping[str, Known]
) -> Counter[str]:
    """Add the links; return the number of open parents of every new task."""
    waiting: Counter[str] = Counter()
    for row in links:
        parent, child = text(row, "parent_id"), text(row, "child_id")
        if parent == child or not {parent, child} <= statuses.keys() | known.keys():
            made.counts["links"]["left out: a task of it is gone"] += 1
        elif child in known:
            there = parent in known[child].parents
            made.counts["links"]["here before" if there else "left out: its child was here before"] += 1
        else:
            status = statuses[parent] if parent in statuses else known[parent].status
            waits = status not in SATISFIES
            waiting[child] += waits
            made.links.append({"parent": parent, "child": child, "open": int(waits)})
            made.counts["links"]["open" if waits else "satisfied"] += 1
    return waiting


def _add_task(
    here: Import,
    row: Row,
    status: TaskStatus,
    open_parents: int,
    runs: list[Row],
    events: list[Row],
    directory: str,
) -> None:
    made, task, name = here.made, text(row, "id"), text(row, "status")
    created = epoch_ms(row.get("created_at")) or here.now_ms
    since = max([created, *(epoch_ms(event.get("created_at")) or 0 for event in events)])
    title, body = split_title(text(row, "title"), text(row, "body"))
    result = text(row, "result") or next(
        (text(run, "summary") for run in reversed(runs) if text(run, "summary")), ""
    )
    kind, place = workspace_of(row, directory) or (WorkspaceKind.SCRATCH, "")
    if kind == WorkspaceKind.SCRATCH and text(row, "workspace_kind") not in ("", "scratch"):
        made.notes.append(f"{task}: it does not say where its {text(row, 'workspace_kind')} is")
    if body.cut:
        made.notes.append(f"{task}: its body was too long and is cut")
    made.counts["tasks"][f"{name} → {status}"] += 1
    made.tasks.append(
        {
            "id": task,
            "board": here.board,
            "title": title,
            "body": body.text,
            "assignee": text(row, "assignee")[:MAX_NAME],
            "status": status,
            "priority": max(-MAX_PRIORITY, min(integer(row, "priority"), MAX_PRIORITY)),
            "created_by": text(row, "created_by")[:MAX_NAME] or "hermes",
            "created_by_run": None,
            "created_ms": created,
            "status_ms": since,
            "ended_ms": (epoch_ms(row.get("completed_at")) or since) if status in ENDS else None,
            "open_parents": open_parents,
            "run_id": None,
            "generation": len(runs),
            "attempts": 0,
            "max_attempts": max(1, min(integer(row, "max_retries") or DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS)),
            "wake_ms": None,
            "question": _question(name, row, events) if status is TaskStatus.WAITING_HUMAN else None,
            "options": "[]",
            "waiting_for": "",
            "reason": fit(text(row, "last_failure_error")).text,
            "result": fit(result).text or None,
            "version": 1,
            "workspace_kind": kind,
            "workspace": place,
            "max_runtime_s": max(0, min(integer(row, "max_runtime_seconds"), MAX_RUNTIME_S)) or None,
        }
    )
    made.imported[task] = leftover(row, _PLACED)
    key = text(row, "idempotency_key")
    if not key:
        return
    usable = len(key) <= 200 and name != "archived" and key not in made.keys
    made.counts["idempotency keys"]["kept" if usable else "left out: used again, archived or too long"] += 1
    if usable:
        made.keys[key] = task


def _question(name: str, row: Row, events: list[Row]) -> str:
    said = next(
        (
            reason
            for event in reversed(events)
            if text(event, "kind") == "blocked"
            and isinstance(reason := json_object(event, "payload").get("reason"), str)
        ),
        "",
    )
    if name == "blocked" and (said or text(row, "last_failure_error")):
        return fit(said or text(row, "last_failure_error")).text
    return _QUESTIONS.get(name, f"It was {name!r} in Hermes, which is not known here. What now?")


def _by_id(rows: Iterable[Row]) -> dict[str, Row]:
    found = {}
    for row in rows:
        task = text(row, "id")
        if not ID.fullmatch(task):
            raise InvalidRequest(f"{task[:80]!r} is no id of a task")
        found[task] = row
    return found


def _group_by_task(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[text(row, "task_id")].append(row)
    return found


def _json(row: Row) -> bytes:
    return msgspec.json.encode(row, order="deterministic")


# The outcome in Hermes → ours, with the class of the failure.
OUTCOMES: Final[dict[str, tuple[str, str | None]]] = {
    "completed": ("completed", None),
    "blocked": ("blocked", None),
    "scheduled": ("superseded", None),
    "crashed": ("failed", "infra"),
    "timed_out": ("failed", "task"),
    "stale": ("lost", "infra"),
    "reclaimed": ("lost", "infra"),
    "rate_limited": ("failed", "quota"),
    "spawn_failed": ("failed", "infra"),
    "gave_up": ("failed", "task"),
}
_BY_STATUS: Final = {"done": "completed", "released": "reclaimed", "failed": "crashed"}  # of older versions

EVENTS: Final = {
    "created": "created",
    "promoted": "promote",
    "promoted_manual": "promote",
    "claimed": "claim",
    "completed": "complete",
    "blocked": "block",
    "dependency_wait": "hold",
    "unblocked": "unblock",
    "specified": "specify",
    "assigned": "assigned",
    "linked": "linked",
    "unlinked": "unlinked",
    "commented": "commented",
    "archived": "archive",
}
# Events that repeat while nothing happens; only the last note is kept, with the run.
FOLDED: Final = frozenset({"heartbeat", "claim_extended", "respawn_guarded"})


def add_runs(here: Import, rows: list[Row], events: Mapping[str, list[Row]]) -> dict[int, str]:
    """Add the runs; return the name of each run of the source here, by its number."""
    made, now_ms = here.made, here.now_ms
    names: dict[int, str] = {}
    generations: Counter[str] = Counter()
    for row in sorted(rows, key=lambda run: (epoch_ms(run.get("started_at")) or 0, integer(run, "id"))):
        task, number = text(row, "task_id"), integer(row, "id")
        if not here.is_new("runs", task):
            continue
        generations[task] += 1
        names[number] = f"r_{task.removeprefix('t_')}_{number}"
        metadata = json_object(row, "metadata")
        theirs, outcome, failure = _outcome(row, metadata)
        made.counts["runs"][f"{theirs} → {outcome}" + (f" ({failure})" if failure else "")] += 1
        started = epoch_ms(row.get("started_at")) or now_ms
        ended = epoch_ms(row.get("ended_at")) or now_ms
        notes = [
            str(json_object(event, "payload").get("note", ""))
            for event in events[task]
            if text(event, "kind") == "heartbeat" and event.get("run_id") == row.get("id")
        ]
        made.runs.append(
            {
                "id": names[number],
                "task_id": task,
                "board": here.board,
                "generation": generations[task],
                "worker": text(row, "claim_lock")[:MAX_NAME] or "hermes",
                "host": "",
                "profile": text(row, "profile")[:MAX_NAME],
                "lease_until_ms": epoch_ms(row.get("claim_expires")) or ended,
                "heartbeat_ms": epoch_ms(row.get("last_heartbeat_at")) or started,
                "note": fit(next((note for note in reversed(notes) if note), "")).text,
                "started_ms": started,
                "ended_ms": ended,
                "outcome": outcome,
                "failure": failure,
                "summary": fit(text(row, "summary")).text or None,
                "metadata": encode_metadata(
                    metadata | {"hermes": {"run": number, "outcome": theirs, "pid": row.get("worker_pid")}}
                ),
                "error": fit(text(row, "error")).text or None,
            }
        )
    return names


def _outcome(row: Row, metadata: Mapping[str, object]) -> tuple[str, str, str | None]:
    """The outcome in Hermes, ours, and the class of the failure."""
    theirs = text(row, "outcome") or _BY_STATUS.get(text(row, "status"), text(row, "status"))
    if theirs == "crashed" and metadata.get("protocol_violation"):
        return "crashed (no report)", "handoff_failed", "handoff"
    return theirs, *OUTCOMES.get(theirs, ("superseded", None))


def add_comments(here: Import, rows: list[Row]) -> None:
    numbers: Counter[str] = Counter()
    for row in rows:
        task = text(row, "task_id")
        if not here.is_new("comments", task):
            continue
        numbers[task] += 1
        body = fit(text(row, "body"))
        here.made.counts["comments"]["cut: too long" if body.cut else "kept"] += 1
        here.made.comments.append(
            {
                "task_id": task,
                "number": numbers[task],
                "author": text(row, "author")[:MAX_NAME],
                "body": body.text,
                "at_ms": epoch_ms(row.get("created_at")) or here.now_ms,
                "run_id": None,
            }
        )


def add_events(here: Import, rows: list[Row], names: Mapping[int, str]) -> None:
    made = here.made
    for row in rows:
        task, theirs = text(row, "task_id"), text(row, "kind")
        if not here.is_new("events", task):
            continue
        if theirs in FOLDED:
            made.counts["events"][f"{theirs}: only the run's last is kept"] += 1
            continue
        kind = EVENTS.get(theirs) or f"hermes_{theirs[:MAX_NAME]}"
        made.counts["events"][f"{theirs} → {kind}"] += 1
        payload = json_object(row, "payload") | {"hermes_event": integer(row, "id")}
        made.events.append(
            {
                "board": here.board,
                "task_id": task,
                "run_id": names.get(integer(row, "run_id")),
                "kind": kind,
                "actor": "hermes",
                "at_ms": epoch_ms(row.get("created_at")) or here.now_ms,
                "payload": encode_metadata(payload),
            }
        )
