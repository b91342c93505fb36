"""The rows of the board, as values. Pure module.

Times are milliseconds since 1970 on the store's clock; no other clock dates anything.
"""

import functools
import typing
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from holdfast.board.rules.retry import DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS
from holdfast.board.rules.transitions import TaskStatus
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
MAX_ENVIRONMENT: Final = 64  # characters of an environment's name, as environments.toml has it
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
    archived: bool = False  # likewise, and no task is created


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    board: str
    title: str
    body: str
    assignee: str  # the profile of the workers that run it; empty while there is none
    status: TaskStatus
    priority: int
    created_by: str
    created_by_run: str | None
    created_ms: int
    status_ms: int  # since when it has this status
    ended_ms: int | None
    open_parents: int
    run_id: str | None  # the run that holds it
    generation: int  # of its newest run
    attempts: int  # spent since a person last granted new ones
    max_attempts: int
    wake_ms: int | None  # when the clock moves it on
    question: str | None  # the question for a person
    options: list[str]
    waiting_for: str
    reason: str  # why it has this status
    result: str | None
    version: int
    workspace_kind: WorkspaceKind = WorkspaceKind.SCRATCH
    workspace: str = ""  # the directory or the repository
    max_runtime_s: int | None = None  # of one run
    report_only: bool = False  # the work exists: its next run only reports it
    reviewer: str = ""  # the person who is asked to review it; empty: anyone
    checks: list[str] = []  # commands that must succeed in its workspace before it is done
    pool: str = ""  # a shared resource of its runs, which a cap can bound
    max_tokens: int | None = None  # of all its runs together
    max_cost: int | None = None  # likewise, in millionths of a dollar
    acknowledged_ms: int | None = None  # when a person acknowledged that it waits for them
    environment: str = ""  # the machine that its workers run on; empty: that of their profile


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
    session: str = ""  # the agent's name for it, to resume it later
    tokens: int = 0  # as far as the agent reports it
    cost: int = 0  # likewise, in millionths of a dollar
    turns: int = 0
    stuck: str = ""  # why it looks stuck; empty if it does not
    pool: str = ""
    environment: str = ""  # the machine that it runs on, by its name on `host`; empty: the host itself

    @property
    def ending(self) -> str:
        """How it ended, in a word, with the class of a failure; `running` if it has not ended."""
        if self.outcome is None:
            return "running"
        return (
            f"{self.outcome}({self.failure})" if self.outcome == "failed" and self.failure else self.outcome
        )

    @property
    def ref(self) -> "RunRef":
        return RunRef(self.id, self.generation)


class RunRef(msgspec.Struct, frozen=True):
    """Identifies a run in everything its worker sends. The generation fences off older runs."""

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


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the worker of a run.

    The worker has seen a delivered message once it sends something after the delivery.
    """

    task_id: str
    number: int
    run_id: str
    author: str
    body: str
    at_ms: int
    delivered_ms: int | None
    seen_ms: int | None


class HostQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A host that no rule decides about: a connection of a run waits for a person's answer.

    `answer` is the answer given (yes, no, pattern), `outcome` the result; both are empty before that.
    """

    task_id: str
    run_id: str
    request: str  # the supervisor's name for it
    host: str  # with the port
    program: str  # that wants to reach it, if known
    pattern: str  # the pattern that an answer may allow instead; empty: none
    asked_ms: int
    answer: str = ""
    who: str = ""
    answered_ms: int | None = None
    outcome: str = ""

    @property
    def words(self) -> str:
        return f"{self.program or 'it'} wants to reach {self.host}"

    @property
    def is_open(self) -> bool:
        """Whether it still needs an answer."""
        return not (self.answer or self.outcome)

    @property
    def next(self) -> list[str]:
        """The commands that answer it."""
        said = ("yes", "no", "pattern") if self.pattern else ("yes", "no")
        return [f"holdfast task answer {self.task_id} {word} {self.host}" for word in said]


def describe_asked(asked: list[HostQuestion]) -> str:
    """What one run waits for, in a line. `asked` is not empty."""
    more = len(asked) - 1
    return asked[0].words + (f" (and {more} more)" if more else "")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file attached to a task, or kept with one of its runs; without its content."""

    id: str
    task_id: str
    run_id: str | None
    name: str
    size: int
    sha256: str
    author: str
    at_ms: int


class ParentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task that this one depended on."""

    task_id: str
    title: str
    status: TaskStatus
    result: str | None


class TaskEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event; `seq` counts up by one for each board, in the order in which changes took effect."""

    board: str
    seq: int
    task_id: str | None
    run_id: str | None
    kind: str
    actor: str
    at_ms: int
    payload: JsonObject


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A task with all that belongs to it."""

    task: Task
    parents: list[TaskLink]
    children: list[TaskLink]
    comments: list[Comment]
    runs: list[Run]
    events: list[TaskEvent]
    results: list[ParentResult]
    files: list[File]
    messages: list[TaskMessage]
    questions: list[HostQuestion] = []  # of the run that holds it, including the answered ones


Name: TypeAlias = Annotated[str, Meta(max_length=MAX_TITLE)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]

# The fields of a new task: the bounds and descriptions for all interfaces.
_Title: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_TITLE, description="One line.")]
_Body: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TEXT, description="What is to be done, and when it is done.")
]
_Assignee: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TITLE, description="The profile whose workers do it.")
]
_Priority: TypeAlias = Annotated[
    int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher comes first.")
]
_Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS, description="Runs of any kind, at most.")]
_Parents: TypeAlias = Annotated[
    tuple[Name, ...], Meta(max_length=MAX_PARENTS, description="Tasks that have to be done before it.")
]
_Kind: TypeAlias = Annotated[
    WorkspaceKind,
    Meta(description="Where it is worked on. dir: in that directory; worktree: of that repository."),
]
_Path: TypeAlias = Annotated[
    str, Meta(max_length=MAX_PATH, description="The directory or the repository, unless scratch.")
]
_Runtime: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_RUNTIME_S, description="Seconds of one run, at most.")]
_Reviewer: TypeAlias = Annotated[str, Meta(max_length=MAX_TITLE, description="Who is asked to review it.")]
_Checks: TypeAlias = Annotated[
    tuple[Text, ...],
    Meta(max_length=MAX_CHECKS, description="Commands that must succeed in its workspace before it is done."),
]
_Pool: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TITLE, description="What its runs use up besides, which a cap can bound.")
]
_Environment: TypeAlias = Annotated[
    str,
    Meta(
        max_length=MAX_ENVIRONMENT,
        description="The environment that it runs on, by name; the profile's own when empty.",
    ),
]
_Tokens: TypeAlias = Annotated[
    int, Meta(ge=1, le=MAX_TOKENS, description="Tokens of all its runs together, at most.")
]
_Cost: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=MAX_COST, description="Cost of all its runs together, at most, in millionths of a dollar."),
]


class _Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the first schema. Their JSON is part of the fingerprints that stores keep."""

    title: _Title
    body: _Body = ""
    assignee: _Assignee = ""
    priority: _Priority = 0
    max_attempts: _Attempts = DEFAULT_MAX_ATTEMPTS
    parents: _Parents = ()
    triage: Annotated[bool, Meta(description="A person must say first what is to be done.")] = False
    wake_ms: int | None = None


class NewTask(_Wishes, frozen=True, kw_only=True):
    """The fields of a task that is to be created."""

    workspace_kind: _Kind = WorkspaceKind.SCRATCH
    workspace: _Path = ""
    max_runtime_s: _Runtime | None = None
    reviewer: _Reviewer = ""
    checks: _Checks = ()
    pool: _Pool = ""
    max_tokens: _Tokens | None = None
    max_cost: _Cost | None = None
    environment: _Environment = ""

    def __post_init__(self) -> None:
        """Raises UsageError when a value is out of its bounds."""
        check(self)
        if "\n" in self.title:
            raise UsageError("a title is one line")
        if self.triage and self.wake_ms is not None:
            raise UsageError("a task that is not specified cannot be scheduled")
        if (self.workspace_kind is WorkspaceKind.SCRATCH) == bool(self.workspace):
            raise UsageError("a directory or a worktree says of what, and a scratch workspace does not")
        if not all(command.strip() for command in self.checks):
            raise UsageError("each check is a command")

    def fingerprint_parts(self) -> tuple[object, ...]:
        """The values for a fingerprint: those of the first schema, and later ones only where they are used.

        Whether there is a `wake_ms` counts, its value does not: "in an hour", repeated, means another time.
        """
        first = _Wishes(**{name: getattr(self, name) for name in _Wishes.__struct_fields__})
        first = msgspec.structs.replace(first, wake_ms=None if self.wake_ms is None else 0)
        second = (self.workspace_kind, self.workspace, self.max_runtime_s)
        third = (self.reviewer, self.checks, self.pool, self.max_tokens, self.max_cost)
        if self.environment:
            return (first, second, third, (self.environment,))
        if third != ("", (), "", None, None):
            return (first, second, third)
        return (first,) if second == (WorkspaceKind.SCRATCH, "", None) else (first, second)


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes to a task; fields that are not given stay."""

    title: _Title | msgspec.UnsetType = msgspec.UNSET
    body: _Body | msgspec.UnsetType = msgspec.UNSET
    priority: _Priority | msgspec.UnsetType = msgspec.UNSET
    max_attempts: _Attempts | msgspec.UnsetType = msgspec.UNSET
    max_runtime_s: _Runtime | msgspec.UnsetType | None = msgspec.UNSET
    workspace_kind: _Kind | msgspec.UnsetType = msgspec.UNSET
    workspace: _Path | msgspec.UnsetType = msgspec.UNSET
    reviewer: _Reviewer | msgspec.UnsetType = msgspec.UNSET
    checks: _Checks | msgspec.UnsetType = msgspec.UNSET
    pool: _Pool | msgspec.UnsetType = msgspec.UNSET
    max_tokens: _Tokens | msgspec.UnsetType | None = msgspec.UNSET
    max_cost: _Cost | msgspec.UnsetType | None = msgspec.UNSET
    environment: _Environment | msgspec.UnsetType = msgspec.UNSET

    def members(self) -> list[str]:
        """The names of the given fields."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]

    def apply_to(self, task: Task) -> Task:
        """The changed task. Raises UsageError for a value out of bounds, or if nothing is given."""
        if not self.members():
            raise UsageError("nothing is to be different")
        changed = msgspec.structs.replace(task, **{name: getattr(self, name) for name in self.members()})
        NewTask(**{name: getattr(changed, name) for name in self.__struct_fields__})
        return changed


def check(given: msgspec.Struct) -> None:
    """Check the values of a struct against the bounds in its annotations; msgspec does so only for JSON.

    Raises:
        UsageError: something is too long or too large, or a text has a zero byte, which no store keeps.
    """
    for name, whole, each in _bounds(type(given)):
        value = getattr(given, name)
        _check_one(name, whole, value)
        for item in value if isinstance(value, tuple) else ():
            _check_one(name, each, item)


def _check_one(name: str, metas: list[Meta], value: object) -> None:
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"{name} has a zero byte")
    size: float
    low: float | None
    high: float | None
    for meta in metas:
        if isinstance(value, str | bytes | tuple):
            size, low, high = len(value), meta.min_length, meta.max_length
        elif isinstance(value, int):
            size, low, high = value, meta.ge, meta.le
        else:
            continue
        if (low is not None and size < low) or (high is not None and size > high):
            bounds = f"at most {high}" if low is None else f"{low} to {high}"
            what = {"str": " characters", "bytes": " bytes", "tuple": " items"}.get(type(value).__name__, "")
            raise UsageError(f"{name} is out of bounds: {bounds}{what}")


@functools.cache
def _bounds(kind: type[msgspec.Struct]) -> tuple[tuple[str, list[Meta], list[Meta]], ...]:
    """For each field, its own bounds and, for a tuple, those of its items."""
    found = []
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        plain, whole = split_annotated(hint)
        items = typing.get_args(plain) if typing.get_origin(plain) is tuple else ()
        found.append((name, whole, split_annotated(items[0])[1] if items else []))
    return tuple(found)


_UNIONS: Final = (typing.Union, typing.get_origin(int | str))


def split_annotated(hint: Any) -> tuple[Any, list[Meta]]:
    """A type without its bounds, and the bounds; for a union, those of its first type."""
    if typing.get_origin(hint) in _UNIONS:
        return split_annotated(typing.get_args(hint)[0])
    if typing.get_origin(hint) is not Annotated:
        return hint, []
    plain, *metas = typing.get_args(hint)
    return plain, metas


def check_text(what: str, text: str) -> str:
    """Return the text if it is valid.

    Raises:
        UsageError: it is too long, or contains a zero byte, which no store keeps.
    """
    if len(text) > MAX_TEXT or "\0" in text:
        raise UsageError(f"the {what} has more than {MAX_TEXT} characters, or a zero byte")
    return text


def file_name(name: str) -> str:
    """Return the name if it is valid.

    Raises:
        UsageError: it is not one plain part of a path.
    """
    if not 0 < len(name) <= MAX_NAME or name in (".", "..") or "/" in name or not name.isprintable():
        raise UsageError(f"the name of a file is one part of a path, of 1 to {MAX_NAME} characters")
    return name


def metadata_text(metadata: JsonObject) -> str:
    """Encode metadata for the store. Raises UsageError when it is too large or not JSON."""
    try:
        text = msgspec.json.encode(metadata)
    except (TypeError, ValueError):
        raise UsageError("the metadata is no JSON object") from None
    if len(text) > MAX_METADATA:
        raise UsageError(f"the metadata has more than {MAX_METADATA} bytes")
    return text.decode()
