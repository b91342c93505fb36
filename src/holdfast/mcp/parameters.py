"""The parameters of every tool. Pure module.

Those of `kanban_*` are called as Hermes calls them, so that a prompt written for it works; what it has and
this board has not (tenants, skills, goals) is not here, and so is told back as ignored.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, field

from holdfast.board.rules.rows import MAX_PARENTS, MAX_PATH, MAX_PRIORITY, MAX_TEXT, MAX_TITLE
from holdfast.mcp.toolbox import Parameters

MAX_NAME: Final = 200  # characters of an id, a name, a key
MAX_ITEMS: Final = 100  # files or tasks named in one call
MAX_WATCH_S: Final = 50.0  # below the time after which agent CLIs give up on a tool: a minute

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
TaskId: TypeAlias = Annotated[
    str, Meta(max_length=MAX_NAME, description="A task. A worker means its own by leaving it out.")
]
BoardName: TypeAlias = Annotated[
    str, Meta(max_length=MAX_NAME, description="A board, where there is more than one to choose from.")
]


class OfTask(Parameters, kw_only=True):
    """What all tools about one task take."""

    task_id: TaskId = ""
    board: BoardName = ""


class Show(OfTask, kw_only=True):
    pass


class Close(OfTask, kw_only=True):
    """What anybody says who ends a task."""

    summary: Annotated[
        str,
        Meta(
            max_length=MAX_TEXT, description="What was done, in a few sentences, for whoever goes on from it."
        ),
    ] = ""
    result: Annotated[
        str, Meta(max_length=MAX_TEXT, description="The same in one line; one of the two is needed.")
    ] = ""


class Complete(Close, kw_only=True):
    """What a worker says, for whom it is the end of a run."""

    metadata: Annotated[
        dict[str, Any], Meta(description="Facts for programs: changed_files, tests_run, decisions …")
    ] = field(default_factory=dict)
    created_cards: Annotated[
        tuple[Name, ...],
        Meta(max_length=MAX_ITEMS, description="Tasks that were made for what is left to do."),
    ] = ()
    artifacts: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_PATH)], ...],
        Meta(max_length=MAX_ITEMS, description="Paths of the files that are the outcome."),
    ] = ()


class Block(OfTask, kw_only=True):
    reason: Annotated[
        str, Meta(min_length=1, max_length=MAX_TEXT, description="What a person has to say or do.")
    ]
    kind: Annotated[
        str,
        Meta(
            pattern="^(needs_input|capability|dependency|transient)?$",
            description="needs_input, capability, dependency or transient.",
        ),
    ] = ""
    options: Annotated[tuple[Name, ...], Meta(max_length=20, description="Possible answers.")] = ()


class Heartbeat(OfTask, kw_only=True):
    note: Annotated[str, Meta(max_length=MAX_TEXT, description="What goes on.")] = ""


class Comment(OfTask, kw_only=True):
    body: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]


class Tell(OfTask, kw_only=True):
    body: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="In a few sentences.")]


class Create(Parameters, kw_only=True):
    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE, description="One line.")]
    assignee: Annotated[
        str, Meta(min_length=1, max_length=MAX_TITLE, description="The profile whose workers do it.")
    ]
    body: Annotated[
        str, Meta(max_length=MAX_TEXT, description="What is to be done, and when it is done.")
    ] = ""
    parents: Annotated[
        tuple[Name, ...], Meta(max_length=MAX_PARENTS, description="Tasks that have to be done before it.")
    ] = ()
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher comes first.")] = 0
    triage: Annotated[bool, Meta(description="A person must say first what is to be done.")] = False
    initial_status: Annotated[
        str,
        Meta(pattern="^(running|blocked)?$", description="blocked: as with triage, a person lets it run."),
    ] = ""
    idempotency_key: Annotated[
        str, Meta(max_length=MAX_NAME, description="Asked again with it, the first answer is repeated.")
    ] = ""
    board: BoardName = ""


class CreateAnywhere(Create, kw_only=True):
    """Of whoever decides where a task's workers work."""

    workspace_kind: Annotated[
        Literal["scratch", "dir", "worktree"],
        Meta(description="scratch; dir: in workspace_path; worktree: of that repository."),
    ] = "scratch"
    workspace_path: Annotated[str, Meta(max_length=MAX_PATH)] = ""
    max_runtime_seconds: Annotated[int, Meta(ge=0, description="0: no limit.")] = 0


class Link(Parameters, kw_only=True):
    parent_id: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="Has to be done first.")]
    child_id: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="Waits for it.")]
    board: BoardName = ""


class List(Parameters, kw_only=True):
    assignee: Name = ""
    status: Annotated[
        str,
        Meta(max_length=MAX_NAME, description="ready, running, waiting_human (or blocked), review, done …"),
    ] = ""
    search: Annotated[str, Meta(max_length=MAX_TITLE, description="Only with this in title or body.")] = ""
    include_archived: bool = False
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(max_length=MAX_NAME, description="As the page before ended with.")] = ""
    board: BoardName = ""


class Unblock(OfTask, kw_only=True):
    reason: Text = ""


class Why(OfTask, kw_only=True):
    pass


WorkerId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="A worker's id.")]


class RunWorker(Parameters, kw_only=True):
    agent: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_NAME, description="codex, claude, opencode, gemini, qwen, shell …"),
    ]
    prompt: Annotated[
        str, Meta(min_length=1, max_length=MAX_TEXT, description="What it is to do; a shell's script.")
    ]
    cwd: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_PATH, description="Where it works; all it may write, absolute."),
    ]
    id: Name = ""
    model: Name = ""
    network: bool = True
    wall_seconds: Annotated[float, Meta(ge=0, description="End it after so long; 0: never.")] = 0


class ListWorkers(Parameters, kw_only=True):
    ended: Annotated[bool, Meta(description="Also those that have ended.")] = False


class WatchWorkers(Parameters, kw_only=True):
    worker: Annotated[str, Meta(max_length=MAX_NAME, description="Only this one.")] = ""
    seen: Annotated[
        str,
        Meta(
            max_length=MAX_NAME, description="`mark` of the last answer: what changed since is told at once."
        ),
    ] = ""
    timeout_seconds: Annotated[float, Meta(ge=0, le=MAX_WATCH_S)] = 30.0


class ExplainWorker(Parameters, kw_only=True):
    worker: WorkerId


class SendToWorker(Parameters, kw_only=True):
    worker: WorkerId
    text: Text = ""
    keys: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS, description="enter, escape, ctrl-c …")] = ()


class StopWorker(Parameters, kw_only=True):
    worker: WorkerId
    grace_seconds: Annotated[float, Meta(ge=0, le=30)] = 5.0
