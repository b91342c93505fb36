"""What the board keeps, as values. Pure module.

Times are milliseconds since 1970 on the store's clock; nobody else dates anything.
"""

from typing import Final, TypeAlias

import msgspec

from holdfast.board.retry import DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS
from holdfast.board.transitions import Status
from holdfast.errors import UsageError

JsonObject: TypeAlias = dict[str, object]

MAX_TITLE: Final = 500  # characters: a line, not a document
MAX_TEXT: Final = (
    256 * 1024
)  # of a body, a comment, a report: enough for people, too little to fill a disk at once
MAX_METADATA: Final = 64 * 1024  # bytes as JSON
MAX_PARENTS: Final = 1000  # of one task; its creation locks them all
MAX_PRIORITY: Final = 1_000_000


class Board(msgspec.Struct, frozen=True, kw_only=True):
    slug: str
    title: str
    created_ms: int
    last_seq: int = 0  # of its newest event


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    board: str
    title: str
    body: str
    assignee: str  # the profile whose workers run it; empty while there is none
    status: Status
    priority: int
    created_by: str
    created_by_run: str | None
    created_ms: int
    status_ms: int  # since when it has this status
    ended_ms: int | None
    open_parents: int
    run_id: str | None  # the run that holds it
    generation: int  # of its newest run
    attempts: int  # spent since a person last gave it a budget
    max_attempts: int
    wake_ms: int | None  # when the clock moves it on
    question: str | None  # what a person is asked
    options: list[str]
    waiting_for: str
    reason: str  # why it has this status
    result: str | None
    version: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task. `outcome` is None while it holds the task."""

    id: str
    task_id: str
    board: str
    generation: int
    worker: str
    host: str
    profile: str
    lease_until_ms: int
    heartbeat_ms: int
    note: str
    started_ms: int
    ended_ms: int | None
    outcome: str | None
    failure: str | None
    summary: str | None
    metadata: JsonObject
    error: str | None

    @property
    def ref(self) -> "RunRef":
        return RunRef(self.id, self.generation)


class RunRef(msgspec.Struct, frozen=True):
    """What a worker shows with everything it says: which run it is. The generation fences off older ones."""

    run: str
    generation: int


class Link(msgspec.Struct, frozen=True, kw_only=True):
    parent: str
    child: str
    open: bool


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    number: int
    author: str
    body: str
    at_ms: int
    run_id: str | None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened; `seq` counts up by one for each board, in the order in which changes took effect."""

    board: str
    seq: int
    task_id: str | None
    run_id: str | None
    kind: str
    actor: str
    at_ms: int
    payload: JsonObject


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A task with what belongs to it."""

    task: Task
    parents: list[Link]
    children: list[Link]
    comments: list[Comment]
    runs: list[Run]
    events: list[Event]


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for when a task is made."""

    title: str
    body: str = ""
    assignee: str = ""
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    parents: tuple[str, ...] = ()
    triage: bool = False
    wake_ms: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError when a value is out of its bounds."""
        if not 0 < len(self.title) <= MAX_TITLE or "\n" in self.title:
            raise UsageError(f"a title is one line of 1 to {MAX_TITLE} characters")
        bounded("body", self.body)
        if not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            raise UsageError(f"a task has 1 to {MOST_ATTEMPTS} attempts")
        if abs(self.priority) > MAX_PRIORITY:
            raise UsageError(f"a priority is between -{MAX_PRIORITY} and {MAX_PRIORITY}")
        if len(self.parents) > MAX_PARENTS:
            raise UsageError(f"a task has at most {MAX_PARENTS} parents")
        if len(self.assignee) > MAX_TITLE:
            raise UsageError(f"the name of a profile has at most {MAX_TITLE} characters")
        if self.triage and self.wake_ms is not None:
            raise UsageError("a task that is not specified cannot be scheduled")


def bounded(what: str, text: str) -> str:
    """The text itself.

    Raises:
        UsageError: it is too long, or holds a zero byte, which no store keeps.
    """
    if len(text) > MAX_TEXT or "\0" in text:
        raise UsageError(f"the {what} has more than {MAX_TEXT} characters, or a zero byte")
    return text


def metadata_text(metadata: JsonObject) -> str:
    """As it is stored; raises UsageError when it is too large or no JSON."""
    try:
        text = msgspec.json.encode(metadata)
    except (TypeError, ValueError):
        raise UsageError("the metadata is no JSON object") from None
    if len(text) > MAX_METADATA:
        raise UsageError(f"the metadata has more than {MAX_METADATA} bytes")
    return text.decode()
