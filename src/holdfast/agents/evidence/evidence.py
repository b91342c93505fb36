"""Evidence about a worker: who says what, and when it was seen. Pure module.

Everything that watches a worker (its event stream, its terminal, the kernel, the watcher of denials) turns
what it sees into `Evidence`; only `status.py` draws conclusions. `at` is seconds on the supervisor's clock.
`seen` is short and redacted: it is shown to people and written to disk.

A watcher speaks when what it sees changes; saying it again does no harm. One that looks (terminal attributes,
system calls, children, sockets) says `Idle` when what it saw is gone.
"""

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast import decoding

MAX_SEEN = 300  # characters of what was seen: enough to recognise it


class Source(enum.IntEnum):
    """Who says it, the strongest first: a weaker one may add detail, not overturn a fresher stronger one."""

    EXIT = 1
    PROTOCOL = 2  # the CLI's own event stream or request
    ESCAPE = 3  # OSC 7501 and the like
    DENIAL = 4  # the watcher of refused calls
    SYSCALL = 5  # what a blocked thread waits for
    TTY = 6  # attributes of the terminal
    TITLE = 7
    SOCKET = 8  # a request sent later than the last byte received
    CHILDREN = 9  # a command runs below the worker
    FILE = 10  # a record the CLI keeps of itself
    SCREEN = 11  # a fingerprint on the rendered screen
    STABILITY = 12  # the screen did or did not change
    TEXT = 13  # a fingerprint in plain output
    CLOCK = 14


class WorkerState(enum.StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # cannot go on without input
    BLOCKED = "blocked"  # alive, no progress, cause outside model and user
    STALLED = "stalled"  # alive, no progress, cause unknown or provider silent
    FAILED = "failed"
    COMPLETED = "completed"
    LOST = "lost"  # the supervisor cannot see it

    @property
    def ended(self) -> bool:
        return self in (WorkerState.FAILED, WorkerState.COMPLETED, WorkerState.LOST)


class Work(enum.StrEnum):
    """What a running worker is at."""

    THINKING = "thinking"
    TOOL = "tool"
    STREAMING = "streaming"
    NETWORK = "network-wait"


class Want(enum.StrEnum):
    """What a waiting worker wants."""

    PROMPT = "prompt"
    DECISION = "decision"
    QUESTION = "question"
    PASSWORD = "password"  # noqa: S105 - a kind of prompt
    TRUST = "trust"
    LOGIN = "login"
    STDIN_EOF = "stdin-eof"
    EDITOR = "editor"
    PAGER = "pager"
    NETWORK = "network"  # a host that no rule decides about: its connection waits


class Obstacle(enum.StrEnum):
    """What blocks a worker that is alive."""

    SANDBOX_PATH = "sandbox-path"
    SANDBOX_NETWORK = "sandbox-network"
    LOCK = "lock"
    STOPPED = "stopped"


class Failure(enum.StrEnum):
    """Why a worker ended without success."""

    SANDBOX = "sandbox"
    PERMISSION = "permission"
    AUTH = "auth"
    MODEL = "model"
    QUOTA = "quota"
    RATE_LIMIT = "rate-limit"
    PROVIDER = "provider"
    NETWORK = "network"
    CONTEXT = "context"
    REFUSAL = "refusal"
    CONFIGURATION = "configuration"
    LAUNCH = "launch"
    CRASH = "crash"
    KILLED = "killed"
    TIMEOUT = "timeout"
    LIMIT = "limit"  # on what it may use
    MEMORY = "memory"  # there was none left
    STATE = "state"  # what it keeps on disk could not be used: held by another, or not to be written


@dataclass(frozen=True, slots=True)
class Ready:
    """It has started and takes part: its first event, its prompt, its first status."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Something happened that only happens when work goes on; an edge, not a state."""

    work: Work


@dataclass(frozen=True, slots=True)
class Working:
    """It says that it works, until something newer says otherwise."""

    work: Work


@dataclass(frozen=True, slots=True)
class Idle:
    """It says that it has nothing to do; `since` is known for a screen that does not change."""

    since: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """One answer that a structured request offers."""

    id: str
    kind: str  # allow_once, allow_always, reject_once, reject_always
    name: str = ""


@dataclass(frozen=True, slots=True)
class Wants:
    """It cannot go on without this. `request` is the id that an answer must carry, if there is one."""

    want: Want
    question: str = ""
    options: tuple[AnswerOption, ...] = ()
    request: str = ""
    failure: Failure | None = None  # of the turn before, where its screen says that it failed


class AskedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that no rule decides about and that somebody is asked about, while a connection to it waits.

    `told` is what became of the question; empty while it waits for an answer.
    """

    request: str
    host: str
    port: int
    program: str = ""  # that wants to reach it, where that is known
    pattern: str = ""  # what an answer may allow instead
    told: str = ""

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Unread:
    """Nobody reads its terminal, whatever that shows: it does not wait for input. It is no sign of work."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The request with this id has its answer."""

    request: str


@dataclass(frozen=True, slots=True)
class Retrying:
    attempt: int
    of: int | None
    failure: Failure | None
    http: int | None = None
    next_at: float | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The kernel refused a call of the worker because of the sandbox: its answer was seen.

    `rule` and `grant` are what explains and would allow it.
    """

    access: str  # read, write, create, remove, connect
    path: str  # or host and port
    errno: str
    syscall: str
    rule: str = ""
    grant: str = ""
    relocation: str = ""  # a variable that moves this state elsewhere, as NAME=PATH
    role: str = ""  # what the catalogue calls this path
    pid: int = 0
    comm: str = ""
    count: int = 1  # how many refusals, none more than a few seconds ago, this item stands for
    fatal: bool = False  # the program ended over it
    host: bool = False  # not the sandbox's doing: reading that the host itself refuses
    command: str = ""  # which one, where each has a sandbox of its own
    aside: bool = False  # a host that its CLI asked for besides its provider's: most do, and go without

    @property
    def counts(self) -> bool:
        """Is it something that the sandbox kept from the work, as far as one can tell?"""
        return not self.host and not self.aside


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the worker will want was refused to a probe in its sandbox; that it wanted it was not seen.

    It explains what the worker says or does, and never stands for a denial.
    """

    access: str
    path: str  # or host and port
    errno: str
    rule: str = ""
    grant: str = ""
    relocation: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Obstructed:
    """Blocked by something else than a denial: a foreign lock, a stopped process, no route."""

    obstacle: Obstacle
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Requested:
    """One request to the model's provider went out."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a worker used since it started. Input includes what was cached."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None  # where the CLI says it
    turns: int = 0  # likewise

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, more: "TokenUsage") -> "TokenUsage":
        costs = [cost for cost in (self.cost_usd, more.cost_usd) if cost is not None]
        return TokenUsage(
            self.input_tokens + more.input_tokens,
            self.output_tokens + more.output_tokens,
            self.cached_tokens + more.cached_tokens,
            sum(costs) if costs else None,
            self.turns + more.turns,
        )


@dataclass(frozen=True, slots=True)
class Used:
    """What it has used so far, said while it goes on; no sign of anything else."""

    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class Result:
    """The CLI's own last word on a turn. `refused` are the tool calls it was not allowed to make."""

    ok: bool
    failure: Failure | None = None
    message: str = ""
    http: int | None = None
    usage: TokenUsage | None = None
    refused: tuple[str, ...] = ()
    announced: str = ""  # as of Trouble
    unfinished: tuple[str, ...] = ()  # commands that it started and did not wait for


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """A tool of the worker ended badly: not the worker's failure, but a task may need it."""

    what: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure told in words, by an error event or an error line; not the end of anything by itself."""

    failure: Failure
    http: int | None = None
    announced: str = ""  # the words that say when a limit is over


@dataclass(frozen=True, slots=True)
class Drift:
    """Its event stream said what we do not know; `seen` is the first sample. No judgement of the worker."""

    what: str  # the type of the event, "not JSON", or "line too long"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Exited:
    """The leader is gone. `cause` is set when that was our doing: killed, timeout, launch, or limit.

    `limit` says what it used too much of, also if it was not ended for that. `out_of_memory` says that the
    kernel ended processes for want of memory just then.
    """

    code: int | None
    signal: int | None = None
    cause: Failure | None = None
    limit: str = ""
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Vanished:
    """Nobody can tell what became of it: its host, its server or its record is gone."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreached:
    """The machine it runs on cannot be reached: what it does there is not known. `over` takes that back."""

    why: str
    over: bool = False


Claim: TypeAlias = (
    Ready
    | Progress
    | Working
    | Idle
    | Wants
    | Unread
    | Answered
    | Retrying
    | Denied
    | Foreseen
    | Obstructed
    | Requested
    | Used
    | Result
    | ToolFailed
    | Trouble
    | Drift
    | Exited
    | Vanished
    | Unreached
)


@dataclass(frozen=True, slots=True)
class Evidence:
    source: Source
    at: float
    claim: Claim
    seen: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker is doing, since when, and why we say so."""

    state: WorkerState
    detail: str = ""  # a Work, Want or Obstacle, with its particulars in `about`
    about: str = ""  # one line for people: attempt and cause, path and rule, question
    failure: Failure | None = None
    flags: frozenset[str] = (
        frozenset()
    )  # of a completed one: with-denials, unverified, no-tools; of any: background
    since: float = 0.0
    evidence: tuple[Evidence, ...] = ()  # the items that decided, strongest first
    contradictions: tuple[str, ...] = ()
    rule: str = ""  # the name of the rule that decided; `why` explains it
    progress_at: float = 0.0  # when work was last seen to go on


_CLAIMS: Final[dict[str, type[Claim]]] = {
    kind.__name__: kind
    for kind in (
        Ready,
        Progress,
        Working,
        Idle,
        Wants,
        Unread,
        Answered,
        Retrying,
        Denied,
        Foreseen,
        Obstructed,
        Requested,
        Used,
        Result,
        ToolFailed,
        Trouble,
        Drift,
        Exited,
        Vanished,
        Unreached,
    )
}


class JournalEntry(NamedTuple):
    """A line of the journal, so that whoever takes a worker over knows what was known.

    `seq` is the number of the output event that the evidence came from, 0 if it came from elsewhere: what is
    read again after a restart is not counted twice.
    """

    item: Evidence
    seq: int


class _Line(msgspec.Struct, omit_defaults=True):
    source: Source
    at: float
    claim: str
    fields: msgspec.Raw
    seen: str = ""
    seq: int = 0


_decoder = decoding.decoder(_Line)


def encode_entry(entry: JournalEntry) -> bytes:
    """One line, with its end."""
    item = entry.item
    fields = msgspec.Raw(msgspec.json.encode(item.claim))
    line = _Line(item.source, item.at, type(item.claim).__name__, fields, item.seen, entry.seq)
    return msgspec.json.encode(line) + b"\n"


def decode_entry(line: bytes) -> JournalEntry | None:
    """The entry of a line; None when it is torn, as the last one after a crash may be, or from elsewhere."""
    try:
        found = _decoder.decode(line)
        if found.claim == Denied.__name__ and b'"predicted":true' in bytes(found.fields):
            return None  # of 0.1, where a denial was what nobody had seen
        claim = decoding.decode(found.fields, _CLAIMS[found.claim])
    except (msgspec.MsgspecError, KeyError):
        return None
    return JournalEntry(Evidence(found.source, found.at, claim, found.seen), found.seq)
