"""What the supervisor and its clients say to each other: the methods of its socket and their structs.

Members that a later version adds have a default, so that a client and a supervisor of different versions
understand each other for as long as it takes to replace one of them.
"""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.agents.evidence.advice import EquivalenceReport
from holdfast.agents.evidence.evidence import AnswerOption, AskedHost, Denied, WorkerState
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.unixrpc.calls import Notice, RpcMethod
from holdfast.wire.processes import NetworkReport

SCHEMA_VERSION: Final = 1
MAX_LINE: Final = 4 << 20  # bytes of a call: a prompt with all that goes with it


class ShownEvidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    source: str
    claim: str
    seconds_ago: float
    seen: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The structured request that `approve` would answer."""

    request: str
    question: str
    options: list[AnswerOption]


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As far as the worker said."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    turns: int | None


class ReportedCalls(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Its tool calls, for whoever asks whether it gets anywhere."""

    count: int
    fresh: int
    in_a_row: int
    last: str
    recent: int
    different: int


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker as everybody outside sees it: what it is, what it does, why we say so, and what holds for it.

    As JSON it is what `holdfast worker status --json` prints, with a stable schema.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    agent: str = ""
    state: WorkerState
    detail: str = ""
    about: str = ""
    failure: str | None = None
    flags: list[str] = []
    rule: str = ""
    for_seconds: float = 0.0
    evidence: list[ShownEvidence] = []
    contradictions: list[str] = []
    denials: list[Denied] = []
    usage: ReportedUsage | None = None
    calls: ReportedCalls | None = None  # None where they cannot be seen
    limit_ends_in_seconds: float | None = None
    cwd: str = ""
    host: str | None = None  # the environment that it runs on; None: this machine
    source: str = ""  # of one elsewhere: the directory here that was carried over; `cwd` is over there
    place: str = ""  # likewise: what of it is still over there
    returned: str | None = None  # likewise: the commit, in its directory here, of what came back
    unreturned: str | None = None  # likewise: why nothing did
    notes: list[str] = []  # what about its start somebody should know
    argv: list[str] = []
    environment: list[str] = []
    tty: bool = False
    acp: bool = False
    asks: Question | None = None
    asked_hosts: list[AskedHost] = []  # with the newest of those that have their answer
    preflight: list[str] = []
    unwatched: str | None = None
    own_sandbox: bool = False  # each of its commands has a sandbox of its own, beside that of the CLI
    one_sandbox: str | None = None  # why not, of a CLI that could
    trace: bool = False
    untraced: str | None = None
    pane: str | None = None
    pid: int | None = None
    exit_code: int | None = None  # None while it runs, and of one that was ended or that nobody saw end
    created_at: float = 0.0
    backend: str | None = None
    weakened: list[str] = []
    network: bool = True  # all of it
    hosts: list[str] = []  # otherwise what it reaches by name: rules, as `--allow-host` has them
    denied_hosts: list[str] = []
    private: bool = False  # also at addresses that are not public
    command_hosts: list[str] | None = None  # of its commands, where each has a sandbox; None: as its own
    by_name: list[str] = []  # how that is enforced; none where it is not
    traffic: NetworkReport | None = None  # once it has ended: what went out by name; None: nobody counted
    keys: list[str] = []  # which of its keys stay outside, and what enters
    writable: list[str] = []
    after: str | None = None


class ExplainedReport(WorkerReport, frozen=True, kw_only=True, rename="camel"):
    why: list[str]


class AttachedReport(WorkerReport, frozen=True, kw_only=True, rename="camel"):
    shown: str  # what its terminal shows now


class ListParams(msgspec.Struct):
    ended: bool = False


class WorkerParams(msgspec.Struct):
    worker: str


class LogsParams(msgspec.Struct):
    worker: str
    max_bytes: int = 64 * 1024


class WorkerResult(WorkerReport, frozen=True, kw_only=True, rename="camel"):
    """A worker with what it answered, and what its terminal shows if it has one."""

    answer: str
    screen: str = ""


class WorkerDiff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What changed in a worker's directory since the worker `since` was started there.

    That is the worker itself, or the one that it was started again instead of. `paths` have a letter each
    (A, M, D); behind them, and not in `count`, stands what is ignored (!) and what was not looked at (?).
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    cwd: str
    since: str
    count: int
    paths: list[str]
    diff: str


class AppliedWork(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a worker on another machine was written here: `paths` below a directory, or a branch of it."""

    schema_version: int = SCHEMA_VERSION
    id: str
    directory: str
    paths: list[str] = []
    left_out: list[str] = []
    branch: str | None = None
    commit: str | None = None


class GrantParams(msgspec.Struct, kw_only=True):
    """Start a worker again, with more than it had. Values of its variables are in no file: they come here."""

    worker: str
    writable: list[str] = []
    readable: list[str] = []
    network: bool = False  # also let it have the network, all of it
    hosts: list[str] = []  # or these hosts by name
    presets: list[str] = []  # or those of these clients
    private: bool = False  # also where they are at an address that is not public
    environ: dict[str, str] = {}  # of these, those that it was started with
    key: str | None = None
    id: str | None = None


class PruneParams(msgspec.Struct, kw_only=True):
    """How long, and how much of, workers that have ended are kept; None: as by default."""

    kept_s: float | None = None
    kept_bytes: int | None = None


class PrunedWorker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    size: int
    pane: str | None = None


class StopParams(msgspec.Struct, omit_defaults=True):
    worker: str
    grace_s: float | None = None  # between asking it to end and ending it, if not the usual time


class InputParams(msgspec.Struct):
    worker: str
    data: bytes


class SendParams(msgspec.Struct):
    worker: str
    text: str = ""
    keys: list[str] = []


class ApproveParams(msgspec.Struct):
    worker: str
    option: str | None = None
    deny: bool = False
    request: str | None = None  # the question that is meant, if another one may be open by now


class ShownParams(msgspec.Struct):
    worker: str
    pane: str


class SizeParams(msgspec.Struct):
    worker: str
    rows: int
    cols: int


class Logs(msgspec.Struct, frozen=True):
    data: bytes


class Sent(msgspec.Struct, frozen=True):
    worker: str
    outcome: str


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was answered: an option of a structured request, or keys of a dialog."""

    schema_version: int = SCHEMA_VERSION
    id: str
    question: str
    denied: bool
    request: str | UnsetType = UNSET
    option: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET


class Done(msgspec.Struct, frozen=True):
    """Nothing but that."""


class WorkerOutput(msgspec.Struct, frozen=True):
    worker: str
    data: bytes


RUN: Final = RpcMethod("run", WorkerSpec, WorkerReport)
LIST: Final = RpcMethod("list", ListParams, list[WorkerReport])
COUNT: Final = RpcMethod(
    "list", ListParams, list[msgspec.Raw]
)  # whatever reports of another version look like
STATUS: Final = RpcMethod("status", WorkerParams, WorkerReport)
EQUIVALENCE: Final = RpcMethod("equivalence", WorkerParams, EquivalenceReport)
WHY: Final = RpcMethod("why", WorkerParams, ExplainedReport)
LOGS: Final = RpcMethod("logs", LogsParams, Logs)
WAIT: Final = RpcMethod("wait", WorkerParams, WorkerReport)
STOP: Final = RpcMethod("stop", StopParams, WorkerReport)
CHANGES: Final = RpcMethod("changes", ListParams, list[WorkerReport])
ATTACH: Final = RpcMethod("attach", WorkerParams, AttachedReport)
INPUT: Final = RpcMethod("input", InputParams, Done)
SHOWN: Final = RpcMethod("shown", ShownParams, WorkerReport)
SEND: Final = RpcMethod("send", SendParams, Sent)
APPROVE: Final = RpcMethod("approve", ApproveParams, GivenAnswer)
RESULT: Final = RpcMethod("result", WorkerParams, WorkerResult)
GRANT: Final = RpcMethod("grant", GrantParams, WorkerReport)
PRUNE: Final = RpcMethod("prune", PruneParams, list[PrunedWorker])
RESIZE: Final = RpcMethod("resize", SizeParams, Done)

CHANGE: Final = Notice("change", WorkerReport)
OUTPUT: Final = Notice("output", WorkerOutput)
