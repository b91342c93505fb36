"""Messages about processes. Pure module."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from holdfast.wire.environment import ShellInfo
from holdfast.wire.network import ManagedNetwork, NetworkProxy
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.structs import U64, MethodResult, Params


class EnvPolicy(Params, frozen=True):
    inherit: Literal["all", "core", "none"]
    ignore_default_excludes: bool
    exclude: list[str]
    set: dict[str, str]
    include_only: list[str]


class ShellSnapshotRequest(Params, frozen=True):
    scope_id: str
    shell: ShellInfo


class ProcessLimits(Params, frozen=True):
    """Ours: what a command and all its descendants may use together; bytes, counts, processors, ms."""

    memory: U64 | None = None
    pids: U64 | None = None
    cpus: float | None = None
    disk: U64 | None = None
    open_files: U64 | None = None
    timeout_ms: U64 | None = None


class CommandExecutor(Params, frozen=True):
    """Ours: an executor for commands that a process wants to run outside of its own sandbox, while it lives.

    It listens on `socket` and admits every client that shows the token. Each command gets the permissions
    that it requests, as far as `sandbox`, the process's own sandbox and its limits allow; `env` is what it
    may inherit.
    """

    socket: str
    token: str
    sandbox: SandboxContext
    env: dict[str, str]


class SecretKey(Params, frozen=True):
    """Ours: a key that stays outside of a command, which has a placeholder in the variable `name`.

    The placeholder is replaced in headers of requests to these hosts (`api.test:443`, `http://api.test:80`).
    """

    name: str
    value: str
    hosts: list[str]

    def __repr__(self) -> str:
        """The repr without the secret value."""
        return f"SecretKey({self.name!r}, hosts={self.hosts!r})"


class StartMetadata(Params, frozen=True):
    thread_id: str | None = None
    tool_call_id: str | None = None


class StartParams(Params, frozen=True):
    process_id: str
    argv: list[str]
    cwd: PathUri
    env: dict[str, str]
    tty: bool
    pipe_stdin: bool = False
    arg0: str | None = None
    env_policy: EnvPolicy | None = None
    shell_snapshot: ShellSnapshotRequest | None = None
    sandbox: SandboxContext | None = None
    enforce_managed_network: bool = False
    managed_network: ManagedNetwork | None = None
    network_proxy: NetworkProxy | None = None
    metadata: StartMetadata | None = None
    watch: bool = False  # ours: report what the sandbox refuses, as it happens
    limits: ProcessLimits | None = None  # ours
    commands: CommandExecutor | None = None  # ours
    secrets: list[SecretKey] = []  # ours


SandboxType: TypeAlias = Literal["none", "macosSeatbelt", "linuxSeccomp"]


class EnforcementReport(MethodResult, frozen=True):
    """Ours: what is really enforced for the started process."""

    backend: str
    missing: list[str] = []
    weakened: list[str] = []
    remedies: list[str] = []
    fingerprint: str | None = None
    limits: list[str] = []  # the mechanism that enforces each limit
    network: list[str] = []  # how hosts are reached by name, if they are


class WatchReport(MethodResult, frozen=True):
    """Ours: whether the sandbox's refusals are observed, or why not."""

    on: bool
    why: str | None = None


class StartResult(MethodResult, frozen=True, omit_defaults=True):
    process_id: str
    sandbox_type: SandboxType
    enforcement: EnforcementReport | None = None
    pid: int | None = None  # ours: the leader's pid on the server's host
    watch: WatchReport | None = None


class ReadParams(Params, frozen=True):
    process_id: str
    after_seq: U64 | None = None
    max_bytes: U64 | None = None
    wait_ms: U64 | None = None


class ProcessUsage(MethodResult, frozen=True):
    """Ours: what the process and the descendants it waited for consumed."""

    user_ms: int
    system_ms: int
    peak_rss_bytes: int


class DenialReport(MethodResult, frozen=True):
    """Ours: what the sandbox refused, by which rule, and the smallest grant that would allow it."""

    kind: Literal["filesystem", "network", "syscall", "setup"]
    path: str | None
    host: str | None
    access: Literal["read", "write"] | None
    rule: str | None
    grant: str | None
    confidence: float
    evidence: str
    witnessed: bool = False  # otherwise only the output claims it


class WatchedCall(MethodResult, frozen=True):
    """Ours: a watcher's report of a call; `count` is the number of equal calls.

    `number` increases with every report of one process: a repeated call is reported again, with a new number.
    A `predicted` call is no denial: its result was not seen. `DeniedCall` and `UnconfirmedCall` distinguish
    the two; `sort_out` converts a message to one of them.
    """

    process_id: str
    number: int
    access: Literal["write", "create", "remove", "connect", "socket", "listen"]
    asked: str  # as the program wrote it
    path: str  # the resolved path; of a connection the address
    syscall: str
    errno: str
    predicted: bool
    pid: int
    comm: str
    count: int
    at_ms: int  # since 1970
    rule: str | None
    grant: str | None
    command: str = ""  # the command that the process's executor ran; empty: the process itself


class DeniedCall(WatchedCall, frozen=True):
    """A call that the sandbox refused: the kernel's result was read."""

    def __post_init__(self) -> None:
        if self.predicted:
            raise ValueError("what is only predicted is no denial")


class UnconfirmedCall(WatchedCall, frozen=True):
    """A call that the sandbox may have refused: its result was not seen."""

    def __post_init__(self) -> None:
        if not self.predicted:
            raise ValueError("what was seen is confirmed")


def sort_out(call: WatchedCall) -> DeniedCall | UnconfirmedCall:
    kind = UnconfirmedCall if call.predicted else DeniedCall
    return kind(**msgspec.structs.asdict(call))


class DenialsParams(Params, frozen=True):
    process_id: str
    after: U64 = 0  # the number of the last one known


class DenialsResult(MethodResult, frozen=True):
    """Ours: `dropped` reports found no room; the arguments of `unread` calls could not be read."""

    denials: list[WatchedCall]
    dropped: int
    unread: int


class LimitReport(MethodResult, frozen=True):
    """Ours: a limit that the process reached; `killed`: it was ended for that."""

    what: Literal["memory", "pids", "disk", "timeout"]
    limit: float
    peak: float
    killed: bool
    message: str


class HostTraffic(MethodResult, frozen=True):
    """Ours: traffic between a command and a host that it reached by name; `failed` counts connections."""

    host: str
    port: int
    connections: int
    bytes_sent: int
    bytes_received: int
    failed: int
    first_ms: int  # since 1970
    last_ms: int
    slowed_ms: int = 0  # time that limits on the network made it wait


class HostRefusal(MethodResult, frozen=True):
    """Ours: a host that a command was refused; without a port, by its name."""

    host: str
    port: int | None
    rule: str
    grant: str | None
    count: int
    first_ms: int
    program: str | None = None


class NetworkReport(MethodResult, frozen=True):
    """Ours: traffic by host name, and refused hosts; `dropped` entries found no room."""

    sent: list[HostTraffic]
    refused: list[HostRefusal]
    dropped: int


class ProcessExited(MethodResult, frozen=True):
    process_id: str
    seq: int
    exit_code: int
    sandbox_denied: bool
    usage: ProcessUsage | msgspec.UnsetType = msgspec.UNSET
    denial: DenialReport | msgspec.UnsetType | None = msgspec.UNSET
    limit: LimitReport | msgspec.UnsetType = msgspec.UNSET
    network: NetworkReport | msgspec.UnsetType = msgspec.UNSET


class ReadChunk(MethodResult, frozen=True):
    seq: int
    stream: str
    chunk: bytes


class ReadResult(MethodResult, frozen=True):
    chunks: list[ReadChunk]
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool
    failure: str | None
    sandbox_denied: bool
    usage: ProcessUsage | msgspec.UnsetType = msgspec.UNSET
    limit: LimitReport | msgspec.UnsetType = msgspec.UNSET


class WriteParams(Params, frozen=True):
    process_id: str
    chunk: bytes
    write_id: str


class WriteResult(MethodResult, frozen=True):
    status: Literal["accepted", "unknownProcess", "stdinClosed", "starting"]


class SignalParams(Params, frozen=True):
    process_id: str
    signal: str


class ProcessParams(Params, frozen=True):
    process_id: str


class TerminateResult(MethodResult, frozen=True):
    running: bool


class ResizeParams(Params, frozen=True):
    process_id: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    cols: Annotated[int, msgspec.Meta(ge=1, le=65535)]
