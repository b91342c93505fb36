"""A board of Hermes as rows, and their values in the forms and bounds of ours. Pure module.

The file has neither types nor constraints worth the name: whatever a column holds, it becomes something.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast.board.rules.rows import MAX_METADATA, MAX_PATH, MAX_TEXT, MAX_TITLE, JsonObject, WorkspaceKind
from holdfast.board.rules.transitions import Status

Row: TypeAlias = Mapping[str, object]
Value: TypeAlias = str | int | None

COUNTED: Final = (
    *("tasks", "links", "runs", "comments", "events", "attachments", "subscriptions"),
    "idempotency keys",
)
MAX_NAME: Final = 200  # of a profile, an author, a worker
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # becomes the name of a folder here
MAX_REST: Final = 4096  # characters of a column that has no place here
_LAST_MS: Final = 253_402_300_800_000  # the year 10000; what is later was never a time


class Source(NamedTuple):
    """A board of Hermes, table by table."""

    title: str
    directory: str  # where its tasks are worked on unless they say otherwise
    tasks: list[Row]
    links: list[Row]
    comments: list[Row]
    runs: list[Row]
    events: list[Row]
    attachments: list[Row]
    subscriptions: list[Row]


class Known(NamedTuple):
    """A task of the source that is here already."""

    board: str
    status: Status
    parents: frozenset[str]
    digest: str | None  # of the source it came from; None if it did not come from Hermes


@dataclass(slots=True)
class ImportPlan:
    """The rows to write, and what became of every row of the source."""

    tasks: list[dict[str, Value]] = field(default_factory=list)
    links: list[dict[str, Value]] = field(default_factory=list)
    runs: list[dict[str, Value]] = field(default_factory=list)
    comments: list[dict[str, Value]] = field(default_factory=list)
    events: list[dict[str, Value]] = field(default_factory=list)
    attachments: list[Row] = field(default_factory=list)  # of new tasks; the edge looks for their files
    imported: dict[str, JsonObject] = field(default_factory=dict)  # the event of each task
    digests: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)  # idempotency key → task
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {table: Counter() for table in COUNTED})
    notes: list[str] = field(default_factory=list)


class Fitted(NamedTuple):
    text: str
    cut: bool


def text(row: Row, column: str) -> str:
    """Empty when there is none."""
    value = row.get(column)
    return "" if value is None else str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")


def integer(row: Row, column: str) -> int:
    """Zero when there is none."""
    value = row.get(column)
    if isinstance(value, int | float) and abs(value) < 1 << 62:
        return int(value)
    return 0


def epoch_ms(value: object) -> int | None:
    """Seconds, or a date as older versions wrote it, as milliseconds."""
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
    """What the column holds as JSON; anything but an object is put into one."""
    written = text(row, column)
    if not written:
        return {}
    try:
        value = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        value = written
    return value if isinstance(value, dict) else {"value": value}


def metadata(value: JsonObject) -> str:
    """As it is stored. What is too large is cut to its beginning, as text, and says so."""
    encoded = msgspec.json.encode(value).decode()
    if len(encoded.encode()) <= MAX_METADATA:
        return encoded
    beginning = encoded.encode()[: MAX_METADATA // 8].decode("utf-8", "ignore")  # escaped it may grow
    return msgspec.json.encode({"cut": beginning}).decode()


def bounded(written: str) -> Fitted:
    return Fitted(written[:MAX_TEXT], len(written) > MAX_TEXT)


def headed(title: str, body: str) -> tuple[str, Fitted]:
    """A title of one line, and the body, which begins with the whole title if that was no such line."""
    line = " ".join(title.split())
    if len(line) <= MAX_TITLE and line == title.strip():
        return line or "(untitled)", bounded(body)
    return line[:MAX_TITLE] or "(untitled)", bounded(f"{title}\n\n{body}" if line else body)


def rest(row: Row, placed: Collection[str]) -> JsonObject:
    """What else the row says, without what it leaves empty."""
    return {
        name: value[:MAX_REST] if isinstance(value, str) else value
        for name, value in row.items()
        if name not in placed and value not in (None, "", 0) and isinstance(value, str | int | float)
    }


def workspace(row: Row, directory: str) -> tuple[WorkspaceKind, str] | None:
    """Where the task is worked on; None if it says so and does not say where.

    Hermes names a worktree by its own path once it is made; here it is the repository.
    """
    kind, path = text(row, "workspace_kind"), text(row, "workspace_path")
    if kind not in (WorkspaceKind.DIR, WorkspaceKind.WORKTREE):
        return WorkspaceKind.SCRATCH, ""
    if kind == WorkspaceKind.WORKTREE:
        path = path.partition("/.worktrees/")[0] or directory
    return (WorkspaceKind(kind), path) if 0 < len(path) <= MAX_PATH else None


def absent(task: str, known: Mapping[str, Known]) -> str:
    return "here before" if task in known else "left out: its task is gone"
