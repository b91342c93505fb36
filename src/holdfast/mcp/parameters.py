"""The parameters of every tool. Pure module.

Those of `kanban_*` are made from the board's table of verbs. They have the names that Hermes uses, so that a
prompt written for it works. Parameters for its features that this board lacks (tenants, skills, goals) are
missing here, and are therefore reported back as ignored.
"""

from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from holdfast.board.rules.rows import MAX_PATH, MAX_TEXT, MAX_TITLE, JsonObject, NewTask, split_annotated
from holdfast.board.rules.verbs import BlockArgs, CompleteArgs, LinkArgs, Report, Verb, form
from holdfast.mcp.toolbox import Parameters

MAX_NAME: Final = 200  # characters of an id, a name, a key
MAX_ITEMS: Final = 100  # files or tasks named in one call
MAX_READ: Final = 64 * 1024  # bytes of a worker's output in one answer
MAX_WATCH_S: Final = 50.0  # below the timeout of agent CLIs for a tool: a minute

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
TaskId: TypeAlias = Annotated[
    str, Meta(max_length=MAX_NAME, description="A task. A worker means its own by leaving it out.")
]
BoardName: TypeAlias = Annotated[
    str, Meta(max_length=MAX_NAME, description="A board, where there is more than one to choose from.")
]


class OfTask(Parameters, kw_only=True):
    """The parameters of all tools about one task."""

    task_id: TaskId = ""
    board: BoardName = ""


class OfClose(OfTask, kw_only=True):
    summary: Annotated[
        str, Meta(max_length=MAX_TEXT, description="What was done, in a few sentences, for those who go on.")
    ] = ""
    result: Annotated[
        str, Meta(max_length=MAX_TEXT, description="The same in one line; one of the two is needed.")
    ] = ""


class OfReport(OfClose, kw_only=True):
    """A worker's report at the end of its run."""

    created_cards: Annotated[
        tuple[Name, ...],
        Meta(max_length=MAX_ITEMS, description="Tasks that were made for what is left to do."),
    ] = ()
    artifacts: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_PATH)], ...],
        Meta(max_length=MAX_ITEMS, description="Paths of the files that are the outcome."),
    ] = ()


class OfBlock(OfTask, kw_only=True):
    kind: Annotated[
        str,
        Meta(
            pattern="^(needs_input|capability|dependency|transient)?$",
            description="needs_input, capability, dependency or transient.",
        ),
    ] = ""


class OfBoard(Parameters, kw_only=True):
    board: BoardName = ""


class OfCreate(OfBoard, kw_only=True):
    assignee: Annotated[
        str, Meta(min_length=1, max_length=MAX_TITLE, description="The profile whose workers do it.")
    ]
    initial_status: Annotated[
        str,
        Meta(pattern="^(running|blocked)?$", description="blocked: as with triage, a person lets it run."),
    ] = ""
    idempotency_key: Annotated[
        str, Meta(max_length=MAX_NAME, description="Asked again with it, the first answer is repeated.")
    ] = ""


_OWN: Final[dict[type, type[Parameters]]] = {  # parameters of a tool besides the arguments of its verb
    CompleteArgs: OfClose,
    Report: OfReport,
    BlockArgs: OfBlock,
    LinkArgs: OfBoard,
    NewTask: OfCreate,
}
NAMES: Final = {  # arguments with other names in Hermes
    "workspace": "workspace_path",
    "max_runtime_s": "max_runtime_seconds",
    "in_s": "start_in_seconds",
    "parent": "parent_id",
    "child": "child_id",
    "question": "reason",
    "key": "idempotency_key",
    "task": "task_id",
}


def build_parameters(verb: Verb) -> type[Parameters]:
    """The parameters of a verb's tool: its arguments, without unions and references."""
    own = _OWN.get(verb.args, OfTask)
    given = {each.name: NAMES.get(each.name, each.name) for each in msgspec.structs.fields(form(verb))}
    taken = {*own.__struct_fields__, *(new for old, new in given.items() if new != old)}
    fields = [
        (each.name, *_plain(each))
        for each in msgspec.structs.fields(form(verb))
        if each.name not in taken and given[each.name] not in own.__struct_fields__
    ]
    made = msgspec.defstruct(verb.args.__name__, fields, bases=(own,), rename=given, kw_only=True)
    return cast(type[Parameters], made)


def read_words(verb: Verb, asked: Any) -> JsonObject:
    """The members of the verb's form, from a call of the tool."""
    said: JsonObject = {}
    for each in msgspec.structs.fields(form(verb)):
        if (value := getattr(asked, each.name, msgspec.UNSET)) is not msgspec.UNSET:
            said[each.name] = None if each.default is None and not value else value
    if isinstance(asked, OfCreate):
        said["triage"] = said["triage"] or asked.initial_status == "blocked"
        said |= {"key": asked.idempotency_key or None} if verb.keyed else {}
    elif isinstance(asked, OfBlock) and asked.kind:
        said["question"] = f"[{asked.kind}] {said['question']}"
    elif isinstance(asked, OfReport):
        more: JsonObject = {"created_cards": asked.created_cards, "artifacts": asked.artifacts}
        more["result"] = asked.result if asked.summary else ""
        facts = cast(JsonObject, said["metadata"])
        said["metadata"] = facts | {name: value for name, value in more.items() if value}
        said["summary"] = asked.summary or asked.result
    elif isinstance(asked, OfClose):
        said["result"] = asked.summary or asked.result or None
    return said


def _plain(of: msgspec.structs.FieldInfo) -> tuple[Any, Any]:
    """The type of an argument and its default: zero instead of null; required text is not empty."""
    kind, metas = split_annotated(of.type)
    default: Any = (
        of.default if of.default_factory is msgspec.NODEFAULT else field(default_factory=of.default_factory)
    )
    if of.required and kind is str and not any(meta.min_length for meta in metas):
        metas = [*metas, Meta(min_length=1)]
    if of.default is None:
        if kind in (int, float):
            (meta,) = metas
            metas = [Meta(ge=0, le=meta.le, description=f"{meta.description} 0: without a bound.")]
        default = kind()
    if isinstance(kind, type) and issubclass(kind, Enum):
        kind, default = Literal[tuple(each.value for each in kind)], of.default.value
    return Annotated[(kind, *metas)] if metas else kind, field() if of.required else default


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


WorkerId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="A worker's id.")]


Paths: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=MAX_PATH)], ...], Meta(max_length=MAX_ITEMS)
]
AllowWrite: TypeAlias = Annotated[Paths, Meta(description="Let it write these too: absolute paths.")]
AllowRead: TypeAlias = Annotated[
    Paths, Meta(description="Let it read these although they are hidden, as credentials are: absolute paths.")
]
AllowHost: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=MAX_TITLE)], ...],
    Meta(
        max_length=MAX_ITEMS,
        description="Let it reach these hosts too: api.example.com, *.example.org:443, or requests alone: "
        "GET https://api.example.com/v1/.",
    ),
]
AllowNet: TypeAlias = Annotated[
    tuple[Name, ...],
    Meta(
        max_length=MAX_ITEMS,
        description="Let it reach the hosts that these clients' settings name: pip, npm, cargo, go, apt.",
    ),
]
KeyEnv: TypeAlias = Annotated[
    str, Meta(max_length=MAX_NAME, description="The variable that holds the key of that provider.")
]


class RunWorker(Parameters, kw_only=True):
    agent: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_NAME, description="codex, claude, opencode, gemini, qwen, shell …"),
    ]
    cwd: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_PATH, description="Where it works; all it may write, absolute."),
    ]
    prompt: Annotated[
        str,
        Meta(
            max_length=MAX_TEXT,
            description="What it is to do; a shell's script. Without one its interactive program runs.",
        ),
    ] = ""
    id: Name = ""
    model: Name = ""
    tty: Annotated[bool, Meta(description="Run it on a terminal; worker_output shows its screen.")] = False
    tmux: Annotated[
        bool, Meta(description="Likewise, and a person can look: tmux attach -t holdfast-ID.")
    ] = False
    acp: Annotated[
        bool, Meta(description="Talk to it over the Agent Client Protocol: its questions have options.")
    ] = False
    ask: Annotated[
        bool,
        Meta(description="Let it ask before it acts (see worker_approve), rather than trust its sandbox."),
    ] = False
    network: Annotated[
        bool | UnsetType,
        Meta(description="All hosts, or none; left out: those of its model provider, where they are known."),
    ] = UNSET
    allow_host: AllowHost = ()
    allow_net: AllowNet = ()
    ask_network: Annotated[
        bool,
        Meta(description="Let a connection to any other host wait for an answer (see worker_approve)."),
    ] = False
    allow_write: AllowWrite = ()
    allow_read: AllowRead = ()
    passed: Annotated[
        tuple[Name, ...], Meta(max_length=MAX_ITEMS, description="Names of environment variables to pass on.")
    ] = field(name="pass", default=())
    provider: Annotated[str, Meta(max_length=MAX_TITLE, description="Another provider's address.")] = ""
    key_env: KeyEnv = ""
    wall_seconds: Annotated[float, Meta(ge=0, description="End it after so long; 0: never.")] = 0


class ListWorkers(Parameters, kw_only=True):
    ended: Annotated[bool, Meta(description="Also those that have ended.")] = False


class WatchWorkers(Parameters, kw_only=True):
    worker: Annotated[str, Meta(max_length=MAX_NAME, description="Only this one.")] = ""
    seen: Annotated[
        str,
        Meta(
            max_length=MAX_NAME,
            description="`mark` of the last answer: changes since then are returned at once.",
        ),
    ] = ""
    timeout_seconds: Annotated[float, Meta(ge=0, le=MAX_WATCH_S)] = 30.0


class WaitForWorkers(Parameters, kw_only=True):
    worker: Annotated[
        tuple[Name, ...], Meta(max_length=MAX_ITEMS, description="One or several; all that run if left out.")
    ] = ()
    until: Annotated[
        tuple[Literal["ended", "waiting", "blocked"], ...],
        Meta(max_length=3, description="What to wait for; an end is always reported."),
    ] = ("ended", "waiting", "blocked")
    timeout_seconds: Annotated[float, Meta(ge=0, le=MAX_WATCH_S)] = 30.0


class OfWorker(Parameters, kw_only=True):
    worker: WorkerId


class ReadOutput(OfWorker, kw_only=True):
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_READ, description="Of the end of what it said.")] = 16 * 1024


class ReadDiff(OfWorker, kw_only=True):
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_READ, description="Of the beginning of the patch.")] = (
        32 * 1024
    )


class SendToWorker(OfWorker, kw_only=True):
    text: Text = ""
    keys: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS, description="enter, escape, ctrl-c …")] = ()


class AnswerWorker(OfWorker, kw_only=True):
    deny: Annotated[bool, Meta(description="Deny it instead.")] = False
    option: Annotated[
        str, Meta(max_length=MAX_NAME, description="One of the offered options; otherwise once.")
    ] = ""
    request: Annotated[
        str, Meta(max_length=MAX_NAME, description="Only if this is still the question, word for word.")
    ] = ""


class GrantToWorker(OfWorker, kw_only=True):
    allow_write: AllowWrite = ()
    allow_read: AllowRead = ()
    allow_host: AllowHost = ()
    allow_net: AllowNet = ()
    network: Annotated[bool, Meta(description="Let it have the network, all of it.")] = False
    key_env: KeyEnv = ""


class StopWorker(OfWorker, kw_only=True):
    grace_seconds: Annotated[float, Meta(ge=0, le=30)] = 5.0
