"""The verbs of the board: one table for the commands, the dashboard, MCP and the handoff. Pure module.

A row defines who may use a verb, its arguments, and the method of the store. The arguments are a struct with
annotations for the bounds and the description of each field. To add a field, add it there: MCP, the
dashboard's requests and the handoff get it at once, and a test names the option and the form that lack it.

Outside callers send a `form`: only the arguments that the caller may give, with a time as seconds from now.
Unknown members are refused, because otherwise a misspelt one would be ignored silently.
"""

import functools
from enum import Flag, auto
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from holdfast import decoding
from holdfast.board.rules.rows import (
    MAX_FILE,
    MAX_NAME,
    MAX_TEXT,
    Edit,
    JsonObject,
    Name,
    NewTask,
    check,
    file_name,
    metadata_text,
)
from holdfast.board.rules.transitions import Move
from holdfast.errors import MethodNotFound, UsageError

MAX_DATA: Final = 360 * 1024  # bytes of a worker's attachment: as base64 they still fit into an envelope
MAX_OPTIONS: Final = 20  # possible answers to one question; more are not readable


class BoardCaller(Flag):
    """The caller: a person, an agent with authority over a board, or the worker of a run."""

    PERSON = auto()
    AGENT = auto()
    WORKER = auto()


class Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of all verbs. Raises UsageError when a value is out of its bounds."""

    def __post_init__(self) -> None:
        check(self)


class Show(Args, frozen=True):
    """The worker's own task with all that belongs to it, or one that it depended on or made."""

    task: Annotated[Name, Meta(description="One that it waited for, or that this run has made.")] | None = (
        None
    )


class Heartbeat(Args, frozen=True):
    note: Annotated[str, Meta(max_length=MAX_TEXT, description="What goes on.")] = ""


class Say(Args, frozen=True):
    body: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="In a few sentences.")]

    def __post_init__(self) -> None:
        check(self)
        if not self.body.strip():
            raise UsageError("a comment says something")


class Assign(Args, frozen=True):
    assignee: Annotated[Name, Meta(description="The profile whose workers do it.")]


class AnswerArgs(Args, frozen=True):
    answer: Annotated[
        Literal["yes", "no", "pattern"],
        Meta(description="pattern: yes, and to the names beside it. Each is for as long as the run lasts."),
    ]
    host: Annotated[Name, Meta(min_length=1, description="Which, as it is asked about: HOST:PORT.")]


class LinkArgs(Args, frozen=True):
    parent: Annotated[Name, Meta(min_length=1, description="Has to be done first.")]
    child: Annotated[Name, Meta(min_length=1, description="Waits for it.")]


class Attach(Args, frozen=True):
    """A file for the workers of the task and the readers of its result; as base64 in JSON."""

    name: Annotated[str, Meta(max_length=MAX_NAME, description="One part of a path.")]
    data: Annotated[bytes, Meta(max_length=MAX_FILE)]

    def __post_init__(self) -> None:
        check(self)
        file_name(self.name)


class AttachFromRun(Attach, frozen=True):
    data: Annotated[bytes, Meta(max_length=MAX_DATA)]


class Report(Args, frozen=True):
    """A worker's report at the end of its run."""

    summary: Annotated[
        str,
        Meta(
            max_length=MAX_TEXT,
            description="What was done, in a few sentences, for the next worker or reviewer.",
        ),
    ]
    metadata: Annotated[
        dict[str, Any], Meta(description="Facts for programs: changed_files, tests_run, decisions …")
    ] = {}

    def __post_init__(self) -> None:
        check(self)
        metadata_text(self.metadata)


class Because(Args, frozen=True):
    """The arguments of any move."""

    reason: Annotated[str, Meta(max_length=MAX_TEXT, description="Why, for later readers of the task.")] = ""


class BlockArgs(Because, frozen=True, kw_only=True):
    question: Annotated[str, Meta(max_length=MAX_TEXT, description="What a person has to say or do.")]
    options: Annotated[tuple[Name, ...], Meta(max_length=MAX_OPTIONS, description="Possible answers.")] = ()
    waiting_for: Annotated[Name, Meta(description="Who is asked.")] = ""


class CompleteArgs(Because, frozen=True):
    result: Annotated[str, Meta(max_length=MAX_TEXT, description="What came out of it.")] | None = None


class Retry(Because, frozen=True):
    report_only: Annotated[bool, Meta(description="The work is there: only ask for its report.")] = False


class Schedule(Because, frozen=True):
    wake_ms: int | None = None


class Verb(NamedTuple):
    name: str
    args: type[Any]
    callers: BoardCaller
    method: str  # of the store; one for workers takes the run and, unless it is `anew`, the envelope's id
    about: str
    target: Literal["task", "board", ""] = "task"  # what it applies to, if the arguments do not name it
    answers: Literal["task", "comment", "message", "file", "run", "detail", "question"] = "task"
    whole: str = ""  # the store takes the whole struct, under this name
    fields: tuple[str, ...] = ()  # all that these callers may give; everything when empty
    keyed: bool = False  # carried out once for each `key` that is given
    anew: bool = False  # carried out again when it is repeated
    terminal: bool = False  # the run is over after it

    def words(self, args: msgspec.Struct) -> JsonObject:
        """The keyword arguments for the store's method."""
        if self.whole:
            return {self.whole: args}
        given: JsonObject = {name: getattr(args, name) for name in self.fields or args.__struct_fields__}
        return given | ({"move": Move(self.name)} if self.method == "move" else {})


_P, _A, _W = BoardCaller.PERSON, BoardCaller.AGENT, BoardCaller.WORKER
# A worker must not choose where its tasks are worked on, what they may use and who approves them: it could
# name any directory of the host, or a pool without a cap.
_OF_WORKER: Final = ("title", "body", "assignee", "priority", "max_attempts", "parents", "triage")
ROWS: Final = (
    Verb("create", NewTask, _P | _A, "create", "Make a task.", target="board", whole="new", keyed=True),
    Verb("edit", Edit, _P, "edit", "Change what a task says; where it stands stays.", whole="change"),
    Verb("assign", Assign, _P, "assign", "Let the workers of a profile run a task."),
    Verb("attach", Attach, _P, "attach", "Attach a file to a task.", answers="file"),
    Verb("link", LinkArgs, _P | _A, "link", "Let one task wait for another.", target=""),
    Verb("unlink", LinkArgs, _P, "unlink", "Let one task no longer wait for another.", target=""),
    Verb("comment", Say, _P | _A, "comment", "Leave a remark on a task.", answers="comment"),
    Verb(
        *("tell", Say, _P | _A, "tell"),
        "Say something to the worker that runs a task now; kanban_show tells whether it has seen it.",
        answers="message",
    ),
    Verb(
        *("answer", AnswerArgs, _P | _A, "answer_host"),
        "Allow or refuse a host that the worker of a task waits for; kanban_show tells which.",
        answers="question",
    ),
    Verb("archive", Because, _P, "move", "Put a task away that has ended."),
    Verb("block", BlockArgs, _P | _A, "move", "Stop a task until a person acts; a run of it is over."),
    Verb("cancel", Because, _P, "move", "Give a task up for good."),
    Verb(
        *("complete", CompleteArgs, _P | _A, "move"),
        "Say that a task is done: also accepts a review, or work whose report is missing.",
    ),
    Verb("request_changes", Because, _P, "move", "Send a task back that is in review."),
    Verb("rethink", Because, _P, "move", "Put a task back to triage."),
    Verb("retry", Retry, _P, "move", "Let a task run again that failed, or whose report is missing."),
    Verb("schedule", Schedule, _P, "move", "Let a task wait until a time."),
    Verb("specify", Because, _P, "move", "Let a task go out of triage."),
    Verb("unblock", Because, _P | _A, "move", "Let a task go on that waits for a person or the clock."),
    Verb(
        *("show", Show, _W, "run_show"),
        "The task you work on: what is to be done, results of the tasks before it, comments, attempts.",
        answers="detail",
        anew=True,
    ),
    Verb(
        *("heartbeat", Heartbeat, _W, "heartbeat"),
        "Say that you are still at it, in something long, and hear what people say to you meanwhile.",
        answers="run",
        anew=True,
    ),
    Verb(
        *("comment", Say, _W, "run_comment", "Leave a remark on your task, for people and later workers."),
        answers="comment",
    ),
    Verb(
        *("create", NewTask, _W, "create_child"),
        "Make a task for what is left to do; it begins when yours is done.",
        whole="new",
        fields=_OF_WORKER,
    ),
    Verb("link", LinkArgs, _W, "run_link", "Let a task that you made wait for another one."),
    Verb("attach", AttachFromRun, _W, "run_attach", "Attach a file to your task.", answers="file"),
    Verb(
        *("complete", Report, _W, "complete"),
        "Say that your task is done, and what came out of it. Do this last: your run is over then.",
        terminal=True,
    ),
    Verb(
        *("block", BlockArgs, _W, "block"),
        "Stop, because a person must answer or act before anybody can go on. Your run is over then.",
        fields=("question", "options", "waiting_for"),
        terminal=True,
    ),
    Verb(
        *("request_review", Report, _W, "request_review"),
        "Say that your work is there for a person to look at. Your run is over then.",
        terminal=True,
    ),
)


@functools.cache
def verbs_of(caller: BoardCaller) -> dict[str, Verb]:
    """The verbs that this caller may use, by name."""
    return {verb.name: verb for verb in ROWS if caller in verb.callers}


def find_verb(name: str, caller: BoardCaller) -> Verb:
    """The verb of this name. Raises MethodNotFound when this caller has no such verb."""
    known = verbs_of(caller)
    if name not in known:
        who = (caller.name or "").lower()
        raise MethodNotFound(f"no {who} has a verb {name[:40]!r}", remedy=f"one of {', '.join(known)}")
    return known[name]


@functools.cache
def form(verb: Verb) -> type[msgspec.Struct]:
    """The struct that callers outside send."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(verb.args):
        if verb.fields and field.name not in verb.fields:
            continue
        default: Any = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        if field.name == "wake_ms":
            later = Annotated[float, Meta(gt=0, description="Not before so many seconds from now.")]
            fields.append(("in_s", later | None, default))
        else:
            fields.append((field.name, field.type, msgspec.field() if field.required else default))
    if verb.keyed:
        once = Annotated[Name, Meta(description="Asked again with it, the first answer is repeated.")]
        fields.append(("key", once | None, None))
    return msgspec.defstruct(
        verb.args.__name__, fields, frozen=True, kw_only=True, forbid_unknown_fields=True
    )


def parse(verb: Verb, given: bytes | msgspec.Raw | JsonObject) -> msgspec.Struct:
    """Decode the verb's form, from JSON or from values. Raises UsageError when it is invalid."""
    try:
        if isinstance(given, dict):
            return decoding.convert(given, form(verb))
        return decoding.decode(given, form(verb))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        detail = str(exc) if isinstance(exc, msgspec.ValidationError) else "they are not JSON"
        raise UsageError(f"these are no arguments of {verb.name}: {detail}") from None


def settle(verb: Verb, given: msgspec.Struct, now_ms: int) -> Any:
    """Convert a form to the verb's arguments; `now_ms` is the store's clock.

    Raises:
        UsageError: a value is out of its bounds, or a path is relative and so depends on where it is read.
    """
    values = {name: getattr(given, name) for name in given.__struct_fields__ if name != "key"}
    if "in_s" in values:
        in_s = values.pop("in_s")
        values["wake_ms"] = None if in_s is None else now_ms + round(in_s * 1000)
    place = values.get("workspace")
    if isinstance(place, str) and place and not place.startswith("/"):
        raise UsageError("a workspace is an absolute path")
    return verb.args(**values)
