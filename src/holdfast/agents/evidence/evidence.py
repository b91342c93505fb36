"""Evidence about a worker: its source, the claim, and the time. Pure module.

Every watcher of a worker (of its event stream, its terminal, the kernel, denials) turns what it sees into
`Evidence`; only `status.py` draws conclusions. `at` is in seconds on the supervisor's clock. `seen` is short
and redacted: it is shown to people and written to disk.

A watcher reports when what it sees changes; repeating a report does no harm. A polling watcher (terminal
attributes, system calls, children, sockets) reports `Idle` when what it saw is gone.
"""

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast import decoding

MAX_SEEN = 300  # characters of what was seen: enough to recognise it


class Source(enum.IntEnum):
    """The sources, strongest first. A weaker source may add detail, but not override a newer stronger one."""

    EXIT = 1
    PROTOCOL = 2  # the CLI's own event stream or request
    ESCAPE = 3  # OSC 7501 and the like
    DENIAL = 4  # the watcher of refused system calls
    SYSCALL = 5  # what a blocked thread waits for
    TTY = 6  # attributes of the terminal
    TITLE = 7
    SOCKET = 8  # a request sent later than the last byte received
    CHILDREN = 9  # a command runs below the worker
    FILE = 10  # a file in which the CLI records its state
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
    """What a running worker is doing."""

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
    NETWORK = "network"  # permission for a host that no rule covers: a connection to it waits


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
    LIMIT = "limit"  # a resource limit
    MEMORY = "memory"  # out of memory
    STATE = "state"  # its files on disk were unusable: locked by another process, or not writable


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has started: its first event, its prompt, or its first status was seen."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Something happened that only happens during work; an edge, not a state."""

    work: Work


@dataclass(frozen=True, slots=True)
class Working:
    """The source reports that the worker works; valid until newer evidence contradicts it."""

    work: Work


@dataclass(frozen=True, slots=True)
class Idle:
    """The source reports that the worker has nothing to do; `since` is known for an unchanging screen."""

    since: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """One answer that a structured request offers."""

    id: str
    kind: str  # allow_once, allow_always, reject_once, reject_always
    name: str = ""


@dataclass(frozen=True, slots=True)
class Wants:
    """The worker cannot go on without this. `request` is the id that an answer must carry, if any."""

    want: Want
    question: str = ""
    options: tuple[AnswerOption, ...] = ()
    request: str = ""
    failure: Failure | None = None  # of the previous turn, if the screen shows that it failed


class AskedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that no rule covers: the user is asked about it while a connection to it waits.

    `told` is the outcome of the question; empty while it waits for an answer.
    """

    request: str
    host: str
    port: int
    program: str = ""  # the program that connects, if known
    pattern: str = ""  # the host pattern that an answer may allow instead
    told: str = ""

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Unread:
    """No process reads the worker's terminal, so it does not wait for input, whatever the screen shows.

    It is no sign of work.
    """


@dataclass(frozen=True, slots=True)
class Answered:
    """The request with this id was answered."""

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
    """The kernel refused a call of the worker because of the sandbox; the refusal itself was seen.

    `rule` explains the refusal, and `grant` would allow the call.
    """

    access: str  # read, write, create, remove, connect
    path: str  # or host and port
    errno: str
    syscall: str
    rule: str = ""
    grant: str = ""
    relocation: str = ""  # a variable that moves this state elsewhere, as NAME=PATH
    role: str = ""  # the role of this path in the catalogue
    pid: int = 0
    comm: str = ""
    count: int = 1  # the number of refusals, all within the last few seconds, that this item stands for
    fatal: bool = False  # the program ended because of it
    host: bool = False  # the host itself refuses the read, not the sandbox
    command: str = ""  # the command, if each has its own sandbox
    aside: bool = False  # a host besides the provider's: most CLIs contact some, and work without

    @property
    def counts(self) -> bool:
        """Return whether the sandbox kept something from the work, as far as can be told."""
        return not self.host and not self.aside


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The sandbox refused a probe something that the worker will need; no call of the worker was seen.

    It explains what the worker says or does, and never counts as a denial.
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
    """The worker is blocked by something other than a denial: a foreign lock, a stopped process, no route."""

    obstacle: Obstacle
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Requested:
    """One request to the model's provider went out."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a worker used since it started. Input includes cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None  # if the CLI reports it
    turns: int = 0  # if the CLI reports them

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
    """The usage so far, reported during the run; no sign of anything else."""

    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class Result:
    """The CLI's own report of the end of a turn. `refused` are the tool calls that were not allowed."""

    ok: bool
    failure: Failure | None = None
    message: str = ""
    http: int | None = None
    usage: TokenUsage | None = None
    refused: tuple[str, ...] = ()
    announced: str = ""  # as in Trouble
    unfinished: tuple[str, ...] = ()  # commands that it started and did not wait for


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """A tool of the worker failed. That is not a failure of the worker, but its task may need the tool."""

    what: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure reported in words, by an error event or an error line. By itself it ends nothing."""

    failure: Failure
    http: int | None = None
    announced: str = ""  # the words that say when a limit ends


@dataclass(frozen=True, slots=True)
class Drift:
    """The event stream held something unknown; `seen` is the first sample. It does not judge the worker."""

    what: str  # the type of the event, "not JSON", or "line too long"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Exited:
    """The leader process ended. `cause` is set if we ended it: killed, timeout, launch, or limit.

    `limit` says which limit it exceeded, also if it was not ended for that. `out_of_memory` says that the
    kernel killed processes for lack of memory at that time.
    """

    code: int | None
    signal: int | None = None
    cause: Failure | None = None
    limit: str = ""
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Vanished:
    """The fate of the worker is unknown: its host, its server or its record is gone."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreached:
    """The machine it runs on is unreachable, so its activity is unknown. `over` retracts this claim."""

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
    """What a worker is doing, since when, and the evidence for it."""

    state: WorkerState
    detail: str = ""  # a Work, Want or Obstacle; `about` has the particulars
    about: str = ""  # one line for people: attempt and cause, path and rule, question
    failure: Failure | None = None
    flags: frozenset[str] = (
        frozenset()
    )  # of a completed one: with-denials, unverified, no-tools; of any: background
    since: float = 0.0
    evidence: tuple[Evidence, ...] = ()  # the deciding items, strongest first
    contradictions: tuple[str, ...] = ()
    rule: str = ""  # the name of the rule that decided; `why` explains it
    progress_at: float = 0.0  # when progress was last seen


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
    """A line of the journal, from which a supervisor that takes over a worker learns what was known.

    `seq` is the number of the output event that the evidence came from, 0 if it came from elsewhere. With it,
    output that is read again after a restart is not counted twice.
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
    """Encode the entry as one line, including the newline."""
    item = entry.item
    fields = msgspec.Raw(msgspec.json.encode(item.claim))
    line = _Line(item.source, item.at, type(item.claim).__name__, fields, item.seen, entry.seq)
    return msgspec.json.encode(line) + b"\n"


def decode_entry(line: bytes) -> JournalEntry | None:
    """Decode a line. None if it is truncated, as the last line after a crash may be, or not an entry."""
    try:
        found = _decoder.decode(line)
        if found.claim == Denied.__name__ and b'"predicted":true' in bytes(found.fields):
            return None  # written by 0.1, which also recorded predicted denials
        claim = decoding.decode(found.fields, _CLAIMS[found.claim])
    except (msgspec.MsgspecError, KeyError):
        return None
    return JournalEntry(Evidence(found.source, found.at, claim, found.seen), found.seq)
