"""What the board keeps, as values. Pure module.

Times are milliseconds since 1970 on the store's clock; nobody else dates anything.
"""

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from holdfast.board.rules.retry import DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS
from holdfast.board.rules.transitions import Status
from holdfast.errors import UsageError

JsonObject: TypeAlias = dict[str, object]

MAX_TITLE: Final = 500  # characters: a line, not a document
MAX_TEXT: Final = (
    256 * 1024
)  # of a body, a comment, a report: enough for people, too little to fill a disk at once
MAX_METADATA: Final = 64 * 1024  # bytes as JSON
MAX_PARENTS: Final = 1000  # of one task; its creation locks them all
MAX_PRIORITY: Final = 1_000_000
MAX_RUNTIME_S: Final = 30 * 86_400  # of one run; longer is no bound
MAX_PATH: Final = 4096  # characters of a workspace, as PATH_MAX
MAX_FILE: Final = 4 << 20  # bytes: a file is kept in the database, and read and written whole
MAX_NAME: Final = 200  # characters of a file's name
MAX_ATTACHMENTS: Final = 50  # of one task
MAX_KEPT: Final = 20  # files of one run
MAX_CHECKS: Final = 10  # commands that must succeed before a task is done
MAX_TOKENS: Final = 10**12
MAX_COST: Final = 10**12  # millionths of a dollar: a million dollars


class WorkspaceKind(StrEnum):
    """Where a task is worked on: a directory of its own, a given one, a worktree of a repository."""

    SCRATCH = "scratch"
    DIR = "dir"
    WORKTREE = "worktree"


class Board(msgspec.Struct, frozen=True, kw_only=True):
    slug: str
    title: str
    created_ms: int
    last_seq: int = 0  # of its newest event
    paused: bool = False  # nothing is claimed
    archived: bool = False  # likewise, and nothing is made


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
    workspace_kind: WorkspaceKind = WorkspaceKind.SCRATCH
    workspace: str = ""  # the directory or the repository
    max_runtime_s: int | None = None  # of one run
    report_only: bool = False  # the work is there: its next run only reports it
    reviewer: str = ""  # who is asked when it is to be looked at; empty: anybody
    checks: list[str] = []  # commands that must succeed in its workspace before it is done
    pool: str = ""  # what its runs use up besides, which a cap can bound
    max_tokens: int | None = None  # of all its runs together
    max_cost: int | None = None  # likewise, in millionths of a dollar
    acknowledged_ms: int | None = None  # when a person said that they know that it waits for them


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
    workspace: str = ""  # where it works
    session: str = ""  # as the agent calls it, to go on later
    tokens: int = 0  # as far as the agent says
    cost: int = 0  # likewise, in millionths of a dollar
    turns: int = 0
    stuck: str = ""  # why it looks stuck, while it does
    pool: str = ""

    @property
    def ref(self) -> "RunRef":
        return RunRef(self.id, self.generation)


class RunRef(msgspec.Struct, frozen=True):
    """What a worker shows with everything it says: which run it is. The generation fences off older ones."""

    run: str
    generation: int


class TaskLink(msgspec.Struct, frozen=True, kw_only=True):
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
    path: str = ""  # of a file in the workspace, with its line: what the comment is about
    line: int | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """To the worker of a run; it has seen what it was handed once it says something after that."""

    task_id: str
    number: int
    run_id: str
    author: str
    body: str
    at_ms: int
    delivered_ms: int | None
    seen_ms: int | None


class File(msgspec.Struct, frozen=True, kw_only=True):
    """What is attached to a task, or with a run what is kept of that; without its content."""

    id: str
    task_id: str
    run_id: str | None
    name: str
    size: int
    sha256: str
    author: str
    at_ms: int


class ParentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a task that this one waited for."""

    task_id: str
    title: str
    status: Status
    result: str | None


class TaskEvent(msgspec.Struct, frozen=True, kw_only=True):
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
    parents: list[TaskLink]
    children: list[TaskLink]
    comments: list[Comment]
    runs: list[Run]
    events: list[TaskEvent]
    results: list[ParentResult]
    files: list[File]
    messages: list[Message]


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What could be asked for in the first schema. Its JSON is in the fingerprints that stores keep."""

    title: str
    body: str = ""
    assignee: str = ""
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    parents: tuple[str, ...] = ()
    triage: bool = False
    wake_ms: int | None = None


class NewTask(_Wishes, frozen=True, kw_only=True):
    """What is asked for when a task is made."""

    workspace_kind: WorkspaceKind = WorkspaceKind.SCRATCH
    workspace: str = ""
    max_runtime_s: int | None = None
    reviewer: str = ""
    checks: tuple[str, ...] = ()
    pool: str = ""
    max_tokens: int | None = None
    max_cost: int | None = None

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
        if (self.workspace_kind is WorkspaceKind.SCRATCH) == bool(self.workspace):
            raise UsageError("a directory or a worktree says of what, and a scratch workspace does not")
        if len(self.workspace) > MAX_PATH or "\0" in self.workspace:
            raise UsageError(f"a workspace is a path of up to {MAX_PATH} characters")
        if self.max_runtime_s is not None and not 0 < self.max_runtime_s <= MAX_RUNTIME_S:
            raise UsageError(f"a run lasts 1 to {MAX_RUNTIME_S} seconds")
        if any(len(name) > MAX_TITLE or "\0" in name for name in (self.reviewer, self.pool)):
            raise UsageError(f"a reviewer or a pool has a name of at most {MAX_TITLE} characters")
        if len(self.checks) > MAX_CHECKS or not all(check.strip() for check in self.checks):
            raise UsageError(f"a task has at most {MAX_CHECKS} checks, and each is a command")
        for check in self.checks:
            bounded("check", check)
        for what, most, bound in (("tokens", self.max_tokens, MAX_TOKENS), ("cost", self.max_cost, MAX_COST)):
            if most is not None and not 0 < most <= bound:
                raise UsageError(f"a bound of {what} is between 1 and {bound}")

    def asked(self) -> tuple[object, ...]:
        """For a fingerprint: as the first schema had it, and what came later only where it is used."""
        first = _Wishes(**{name: getattr(self, name) for name in _Wishes.__struct_fields__})
        second = (self.workspace_kind, self.workspace, self.max_runtime_s)
        third = (self.reviewer, self.checks, self.pool, self.max_tokens, self.max_cost)
        if third != ("", (), "", None, None):
            return (first, second, third)
        return (first,) if second == (WorkspaceKind.SCRATCH, "", None) else (first, second)


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a task; what is not given stays."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    body: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType = msgspec.UNSET
    max_runtime_s: int | msgspec.UnsetType | None = msgspec.UNSET
    workspace_kind: WorkspaceKind | msgspec.UnsetType = msgspec.UNSET
    workspace: str | msgspec.UnsetType = msgspec.UNSET
    reviewer: str | msgspec.UnsetType = msgspec.UNSET
    checks: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    pool: str | msgspec.UnsetType = msgspec.UNSET
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    max_cost: int | msgspec.UnsetType | None = msgspec.UNSET

    def members(self) -> list[str]:
        """What is given."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]

    def applied(self, task: Task) -> Task:
        """The task with the changes; raises UsageError for a value out of bounds, or when there is none."""
        if not self.members():
            raise UsageError("nothing is to be different")
        changed = msgspec.structs.replace(task, **{name: getattr(self, name) for name in self.members()})
        NewTask(**{name: getattr(changed, name) for name in self.__struct_fields__})
        return changed


def bounded(what: str, text: str) -> str:
    """The text itself.

    Raises:
        UsageError: it is too long, or holds a zero byte, which no store keeps.
    """
    if len(text) > MAX_TEXT or "\0" in text:
        raise UsageError(f"the {what} has more than {MAX_TEXT} characters, or a zero byte")
    return text


def file_name(name: str) -> str:
    """The name itself.

    Raises:
        UsageError: it is not one plain part of a path.
    """
    if not 0 < len(name) <= MAX_NAME or name in (".", "..") or "/" in name or not name.isprintable():
        raise UsageError(f"the name of a file is one part of a path, of 1 to {MAX_NAME} characters")
    return name


def metadata_text(metadata: JsonObject) -> str:
    """As it is stored; raises UsageError when it is too large or no JSON."""
    try:
        text = msgspec.json.encode(metadata)
    except (TypeError, ValueError):
        raise UsageError("the metadata is no JSON object") from None
    if len(text) > MAX_METADATA:
        raise UsageError(f"the metadata has more than {MAX_METADATA} bytes")
    return text.decode()
