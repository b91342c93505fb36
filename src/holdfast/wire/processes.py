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
    """Ours: what a command and all that it starts may use together; bytes, counts, processors, ms."""

    memory: U64 | None = None
    pids: U64 | None = None
    cpus: float | None = None
    disk: U64 | None = None
    open_files: U64 | None = None
    timeout_ms: U64 | None = None


class CommandExecutor(Params, frozen=True):
    """Ours: an executor for what a process wants run outside of its own sandbox, while it lives.

    It listens on `socket` for whoever shows the token. Each command has what it asks for, as far as
    `sandbox`, the process's own sandbox and its limits allow; `env` is what it may inherit.
    """

    socket: str
    token: str
    sandbox: SandboxContext
    env: dict[str, str]


class SecretKey(Params, frozen=True):
    """Ours: a key that stays outside of a command, which has a placeholder in the variable `name`.

    It is put into headers of requests to these hosts (`api.test:443`, `http://api.test:80`) on their way.
    """

    name: str
    value: str
    hosts: list[str]

    def __repr__(self) -> str:
        """Without what nobody is to see."""
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
    watch: bool = False  # ours: tell what the sandbox refuses, as it happens
    limits: ProcessLimits | None = None  # ours
    commands: CommandExecutor | None = None  # ours
    secrets: list[SecretKey] = []  # ours


SandboxType: TypeAlias = Literal["none", "macosSeatbelt", "linuxSeccomp"]


class EnforcementReport(MethodResult, frozen=True):
    """Ours: what really holds for the started process."""

    backend: str
    missing: list[str] = []
    weakened: list[str] = []
    remedies: list[str] = []
    fingerprint: str | None = None
    limits: list[str] = []  # who holds which limit on what it uses
    network: list[str] = []  # how hosts are reached by name, if they are


class WatchReport(MethodResult, frozen=True):
    """Ours: whether the sandbox's refusals are seen, or why not."""

    on: bool
    why: str | None = None


class StartResult(MethodResult, frozen=True, omit_defaults=True):
    process_id: str
    sandbox_type: SandboxType
    enforcement: EnforcementReport | None = None
    pid: int | None = None  # ours: the leader of what was started, as the server's host counts
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
    """Ours: what the sandbox refused, who decided, and the smallest grant that would allow it."""

    kind: Literal["filesystem", "network", "syscall", "setup"]
    path: str | None
    host: str | None
    access: Literal["read", "write"] | None
    rule: str | None
    grant: str | None
    confidence: float
    evidence: str
    witnessed: bool = False  # or only claimed by the output


class WatchedCall(MethodResult, frozen=True):
    """Ours: what a watcher tells of a call; `count` is of all that were alike.

    `number` grows with everything that is told of one process: what is alike comes again, with a new one.
    What is only `predicted` is no denial: nobody saw how the call ended. `DeniedCall` and `UnconfirmedCall`
    tell the two apart; `sort_out` makes one of them of what came over the wire.
    """

    process_id: str
    number: int
    access: Literal["write", "create", "remove", "connect", "socket", "listen"]
    asked: str  # as the program wrote it
    path: str  # where that leads; of a connection the address
    syscall: str
    errno: str
    predicted: bool
    pid: int
    comm: str
    count: int
    at_ms: int  # since 1970
    rule: str | None
    grant: str | None
    command: str = ""  # that the process had its executor run; nothing: the process itself


class DeniedCall(WatchedCall, frozen=True):
    """The sandbox refused it: the kernel's answer was read."""

    def __post_init__(self) -> None:
        if self.predicted:
            raise ValueError("what is only predicted is no denial")


class UnconfirmedCall(WatchedCall, frozen=True):
    """The sandbox may refuse it; how it ended nobody saw."""

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
    """Ours: `dropped` found no room; nobody could read what `unread` calls were about."""

    denials: list[WatchedCall]
    dropped: int
    unread: int


class LimitReport(MethodResult, frozen=True):
    """Ours: a limit on what it may use that it reached; `killed`: it was ended for that."""

    what: Literal["memory", "pids", "disk", "timeout"]
    limit: float
    peak: float
    killed: bool
    message: str


class HostTraffic(MethodResult, frozen=True):
    """Ours: what passed between a command and a host that it reached by name; `failed` are connections."""

    host: str
    port: int
    connections: int
    bytes_sent: int
    bytes_received: int
    failed: int
    first_ms: int  # since 1970
    last_ms: int
    slowed_ms: int = 0  # for which limits on the network made it wait


class HostRefusal(MethodResult, frozen=True):
    """Ours: a host that a command asked for in vain; without a port, by its name."""

    host: str
    port: int | None
    rule: str
    grant: str | None
    count: int
    first_ms: int
    program: str | None = None


class NetworkReport(MethodResult, frozen=True):
    """Ours: what went out by name, and what did not; `dropped` found no room."""

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
