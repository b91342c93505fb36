"""The protocol between the supervisor and its clients: the methods of its socket and their structs.

Members that a later version adds have a default, so that a client and a supervisor of different versions
understand each other until one of them is replaced.
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
MAX_LINE: Final = 4 << 20  # bytes of a call: a prompt with everything around it


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
    """The usage that the worker reported."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    turns: int | None


class ReportedCalls(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Its tool calls, as a measure of its progress; see `ToolCalls`."""

    count: int
    fresh: int
    in_a_row: int
    last: str
    recent: int
    different: int


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The public view of a worker: its identity, its state with the evidence for it, and its restrictions.

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
    calls: ReportedCalls | None = None  # None if they cannot be observed
    limit_ends_in_seconds: float | None = None
    cwd: str = ""
    host: str | None = None  # the environment that it runs on; None: this machine
    # The next four are for a worker on another machine, where `cwd` is on that machine.
    source: str = ""  # the local directory that was carried over
    place: str = ""  # its directory on the other machine, while that still exists
    returned: str | None = None  # the commit, in its directory here, of the returned result
    unreturned: str | None = None  # why nothing was returned
    notes: list[str] = []  # remarks about its start for the user
    argv: list[str] = []
    environment: list[str] = []
    tty: bool = False
    acp: bool = False
    asks: Question | None = None
    asked_hosts: list[AskedHost] = []  # open questions about hosts, and the newest answered ones
    preflight: list[str] = []
    unwatched: str | None = None
    own_sandbox: bool = False  # each of its commands has its own sandbox, separate from the CLI's
    one_sandbox: str | None = None  # why not, for a CLI that supports it
    trace: bool = False
    untraced: str | None = None
    pane: str | None = None
    pid: int | None = None
    exit_code: int | None = None  # None while it runs, or if a signal ended it or its end was not seen
    created_at: float = 0.0
    backend: str | None = None
    weakened: list[str] = []
    network: bool = True  # the whole network
    hosts: list[str] = []  # otherwise the hosts it reaches by name: rules as in `--allow-host`
    denied_hosts: list[str] = []
    private: bool = False  # also at non-public addresses
    command_hosts: list[str] | None = None  # hosts of its commands, if each has a sandbox; None: the same
    by_name: list[str] = []  # how the host rules are enforced; empty if they are not
    traffic: NetworkReport | None = None  # its traffic by host name, once it has ended; None: not counted
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
    """A worker with its answer, and the content of its terminal if it has one."""

    answer: str
    screen: str = ""


class WorkerDiff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What changed in a worker's directory since the worker `since` was started there.

    `since` is the worker itself, or the one that it replaces. Each of `paths` has a letter (A, M, D). After
    them come, not in `count`, ignored files (!) and what was not examined (?).
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    cwd: str
    since: str
    count: int
    paths: list[str]
    diff: str


class AppliedWork(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was written here of a remote worker's result: `paths` below a directory, or a branch of it."""

    schema_version: int = SCHEMA_VERSION
    id: str
    directory: str
    paths: list[str] = []
    left_out: list[str] = []
    branch: str | None = None
    commit: str | None = None


class GrantParams(msgspec.Struct, kw_only=True):
    """Restart a worker with additional grants.

    The values of its variables are in no file, so they come here.
    """

    worker: str
    writable: list[str] = []
    readable: list[str] = []
    network: bool = False  # grant the whole network
    hosts: list[str] = []  # or these hosts by name
    presets: list[str] = []  # or the hosts of these clients
    private: bool = False  # also at non-public addresses
    environ: dict[str, str] = {}  # used for the variables that it was started with
    key: str | None = None
    id: str | None = None


class PruneParams(msgspec.Struct, kw_only=True):
    """For how long, and how many bytes of, ended workers are kept; None means the default."""

    kept_s: float | None = None
    kept_bytes: int | None = None


class PrunedWorker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    size: int
    pane: str | None = None


class StopParams(msgspec.Struct, omit_defaults=True):
    worker: str
    grace_s: float | None = None  # between asking it to end and killing it, if not the default


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
    request: str | None = None  # the id of the question, in case another one is open by now


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
    """The answer that was given: an option of a structured request, or keys of a dialog."""

    schema_version: int = SCHEMA_VERSION
    id: str
    question: str
    denied: bool
    request: str | UnsetType = UNSET
    option: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET


class Done(msgspec.Struct, frozen=True):
    """An empty result."""


class WorkerOutput(msgspec.Struct, frozen=True):
    worker: str
    data: bytes


RUN: Final = RpcMethod("run", WorkerSpec, WorkerReport)
LIST: Final = RpcMethod("list", ListParams, list[WorkerReport])
COUNT: Final = RpcMethod(
    "list", ListParams, list[msgspec.Raw]
)  # undecoded, because reports of another version may differ
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
