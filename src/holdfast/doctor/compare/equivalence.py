"""Compare two observations: is a command in its sandbox where it would be without one? Pure module.

An observation is what a probe saw of its surroundings, by group and field, and how the command itself ended.
The verdict is about the surroundings. That a command behaved alike only shows that the differences did not
matter to it.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

from holdfast.sandbox.host.hostfacts import capabilities

# By group and field; an empty field stands for any other of that group.
CONSEQUENCES: Final[Mapping[tuple[str, str], str]] = {
    ("files", ""): "whatever needs that fails there; databases need create, lock and map",
    ("files", "read-only mounts"): "writing fails with 'Read-only file system'",
    ("files", "devices"): "programs that want one of them do not find it",
    ("files", "umask"): "new files have other permissions",
    ("network", "interfaces"): "no address outside is reached, and no name resolved",
    ("network", "families"): "such sockets cannot be made: clients and servers fail at once",
    ("network", "default route"): "no address outside is reached",
    ("network", "name servers"): "names are resolved otherwise",
    (
        "network",
        "loopback of the host",
    ): "servers on this machine, databases and proxies too, are out of reach",
    ("network", "abstract sockets of the host"): "services of the desktop and of the bus are out of reach",
    ("network", "own loopback"): "a server inside cannot be reached from inside: test suites fail",
    ("environment", ""): "a program that asks for it decides otherwise",
    ("environment", "PATH"): "other programs may be found",
    ("environment", "HOME"): "settings and credentials are looked for elsewhere",
    ("identity", "user"): "files belong to somebody else",
    ("identity", "groups"): "what is open to these groups is closed, a container socket for example",
    ("identity", "ssh agent"): "keys that the agent holds cannot be used: git over ssh fails",
    ("terminal", "new terminals"): "tmux, script and expect cannot open a terminal",
    ("terminal", "controlling terminal"): "passwords cannot be asked for",
    ("process", "ignored signals"): "a writer without a reader fails otherwise, if SIGPIPE is among them",
    ("process", "blocked signals"): "such a signal has no effect",
    ("process", "open descriptors"): "a file or socket of somebody else is inherited, or one is missed",
    ("process", "limit on open files"): "builds and test runners may run out of descriptors",
    ("process", "working directory"): "relative paths lead elsewhere",
    ("confinement", "user namespace"): "owners that have no number inside show as nobody",
    ("confinement", "mnt namespace"): "what is mounted later is seen on one side only",
    ("confinement", "pid namespace"): "process numbers are others: lock files that hold one look stale",
    ("confinement", "net namespace"): "a port opened inside is not the host's",
    ("confinement", "ipc namespace"): "System V memory and queues are not the host's",
    ("confinement", "capabilities"): "root may do less",
    ("confinement", "no new privileges"): "sudo and other set-user-id programs gain nothing",
    ("confinement", "seccomp"): "some system calls are refused: debuggers and nested sandboxes fail",
    ("confinement", "sees the processes outside"): "ps, kill and debuggers do not reach them",
}

# For an agent CLI, where its own record is more specific than the group.
RELOCATED: Final = "its state is the worker's own: logins, settings and history in the home are not used"
OTHER_PROVIDER: Final = "it talks to another provider than it would without us"
PROVIDER_OUT_OF_REACH: Final = "its provider may be out of reach"
Value: TypeAlias = str | int | bool | tuple[str, ...] | None  # None: could not be observed
Circumstances: TypeAlias = Mapping[str, Mapping[str, Value]]

SCHEMA_VERSION: Final = 1
UNLIMITED: Final = (1 << 63) - 1  # marks an unlimited value among the limits
ENVIRONMENT, OUTCOME = "environment", "outcome"
GROUPS: Final = (  # in the order in which a command meets them
    OUTCOME, "files", "network", ENVIRONMENT, "identity", "terminal", "process", "confinement"
)  # fmt: skip
MAX_NAMES: Final = 6  # of a list, on one line for people
MAX_LINE: Final = 160  # characters of one line of output: two of them fit on a screen
# Variables with values that are never secret.
HARMLESS: Final = frozenset(
    {
        *("COLORTERM", "COLUMNS", "HOME", "HOSTNAME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "MAIL"),
        *("NO_COLOR", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TEMP", "TERM", "TERM_PROGRAM", "TMP"),
        *("TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "_"),
    }
)
_ABSENT: Final = "not set"


class EquivalenceVerdict(enum.StrEnum):
    SAME = "same"
    WEAKER = "weaker"  # inside there is less of it
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class ReachAnswer(enum.StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CapturedStream:
    """The output of one stream: its beginning, its size, and a digest of all of it."""

    kept: bytes = b""
    size: int = 0
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Ran:
    """How the command ended; without a `code` its time was over. `note` has details, such as a signal."""

    code: int | None
    stdout: CapturedStream = field(default_factory=CapturedStream)
    stderr: CapturedStream = field(default_factory=CapturedStream)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One side. A missing group could not be observed; `ran` is None if nothing was run."""

    circumstances: Circumstances
    ran: Ran | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One property that was observed on both sides, in words without secrets."""

    group: str
    field: str
    host: str
    worker: str
    verdict: EquivalenceVerdict
    consequence: str | None = None

    @property
    def differs(self) -> bool:
        return self.verdict in (EquivalenceVerdict.WEAKER, EquivalenceVerdict.DIFFERENT)


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[ComparedRow, ...]

    @property
    def host_equivalent(self) -> ReachAnswer:
        """Whether the surroundings are those of the host."""
        return _answer([row for row in self.rows if row.group != OUTCOME])

    @property
    def behaved_alike(self) -> ReachAnswer:
        """Whether the command ended alike and printed the same."""
        return _answer([row for row in self.rows if row.group == OUTCOME])

    @property
    def exit_code(self) -> int:
        """0: equivalent, 1: something differs, 2: undecided."""
        answers = (self.host_equivalent, self.behaved_alike)
        return 1 if ReachAnswer.NO in answers else 2 if ReachAnswer.UNKNOWN in answers else 0

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "hostEquivalent": self.host_equivalent.value,
            "behavedAlike": self.behaved_alike.value,
            "rows": [asdict(row) for row in self.rows],
        }


def _answer(rows: Sequence[ComparedRow]) -> ReachAnswer:
    if any(row.differs for row in rows):
        return ReachAnswer.NO
    return (
        ReachAnswer.UNKNOWN
        if not rows or any(row.verdict is EquivalenceVerdict.UNKNOWN for row in rows)
        else ReachAnswer.YES
    )


def compare(host: Observation, worker: Observation, *, secrets: Sequence[str] = ()) -> Comparison:
    """The differences between a command beside the sandbox and the same one inside.

    `secrets` are texts that are never shown, even where the command printed them.
    """
    rows = [] if host.ran is None and worker.ran is None else list(_outcome(host.ran, worker.ran, secrets))
    for group in GROUPS[1:]:
        rows += _group(group, host.circumstances.get(group), worker.circumstances.get(group))
    return Comparison(tuple(rows))


def is_harmless(variable: str) -> bool:
    """Whether the value of this variable may be shown."""
    return variable in HARMLESS or variable.startswith("LC_")


# --- the surroundings


def of_status(text: str) -> Circumstances:
    """Facts from /proc/self/status of a program that changed nothing about itself."""
    lines = (line.partition(":") for line in text.splitlines())
    told = {name: rest.strip() for name, _, rest in lines}

    def mask(name: str) -> tuple[str, ...] | None:
        found = int(told[name], 16) if name in told else None
        return (
            None
            if found is None
            else tuple(str(bit + 1) for bit in range(found.bit_length()) if found >> bit & 1)
        )

    return {
        "files": {"umask": told.get("Umask")},
        "process": {"ignored signals": mask("SigIgn"), "blocked signals": mask("SigBlk")},
        "confinement": {
            "capabilities": capabilities(int(told["CapEff"], 16)) if "CapEff" in told else None,
            "capabilities to gain": capabilities(int(told["CapBnd"], 16)) if "CapBnd" in told else None,
            "no new privileges": told.get("NoNewPrivs"),
            "seccomp": told.get("Seccomp_filters", told.get("Seccomp")),
        },
    }


def _group(
    group: str, host: Mapping[str, Value] | None, worker: Mapping[str, Value] | None
) -> Iterator[ComparedRow]:
    if host is None or worker is None:
        yield ComparedRow(
            group, "all", _describe_side(host), _describe_side(worker), EquivalenceVerdict.UNKNOWN
        )
        return
    for name in dict.fromkeys((*host, *worker)):
        one, other = host.get(name), worker.get(name)
        if group == ENVIRONMENT:
            yield _variable(name, one, other)
            continue
        verdict = _judge(one, other)
        shown = _texts(one, other)
        yield ComparedRow(group, name, *shown, verdict, _consequence(group, name, verdict))


def _describe_side(side: Mapping[str, Value] | None) -> str:
    return "not observed" if side is None else "observed"


def _judge(host: Value, worker: Value) -> EquivalenceVerdict:
    if host is None or worker is None:
        return EquivalenceVerdict.UNKNOWN
    if host == worker:
        return EquivalenceVerdict.SAME
    if isinstance(host, tuple) and isinstance(worker, tuple):
        return EquivalenceVerdict.WEAKER if set(worker) < set(host) else EquivalenceVerdict.DIFFERENT
    if isinstance(host, int) and isinstance(worker, int):
        return EquivalenceVerdict.WEAKER if worker < host else EquivalenceVerdict.DIFFERENT
    return EquivalenceVerdict.DIFFERENT


def _variable(name: str, host: Value, worker: Value) -> ComparedRow:
    """Compare a variable. A missing variable counts as not set, not as unobserved."""
    if host == worker:
        verdict = EquivalenceVerdict.SAME
    elif worker is None:
        verdict = EquivalenceVerdict.WEAKER
    else:
        verdict = EquivalenceVerdict.DIFFERENT
    one, other = (_value(name, value) for value in (host, worker))
    if one == other and verdict is not EquivalenceVerdict.SAME:
        other = "set to something else"
    return ComparedRow(ENVIRONMENT, name, one, other, verdict, _consequence(ENVIRONMENT, name, verdict))


def _value(name: str, value: Value) -> str:
    if value is None:
        return _ABSENT
    return _text(value) if is_harmless(name) else "set"


def _texts(host: Value, worker: Value) -> tuple[str, str]:
    if isinstance(host, tuple) and isinstance(worker, tuple) and host != worker:
        common = set(host) & set(worker)
        if common:
            return _only(host, common), _only(worker, common)
    return _text(host), _text(worker)


def _only(names: tuple[str, ...], common: set[str]) -> str:
    own = tuple(name for name in names if name not in common)
    return f"also {_text(own)}" if own else "nothing more"


def _text(value: Value) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == UNLIMITED:
        return "unlimited"
    if isinstance(value, tuple):
        more = f" and {len(value) - MAX_NAMES} more" if len(value) > MAX_NAMES else ""
        return _shorten(", ".join(value[:MAX_NAMES])) + more if value else "nothing"
    return _shorten(str(value))


def _consequence(group: str, name: str, verdict: EquivalenceVerdict) -> str | None:
    if verdict not in (EquivalenceVerdict.WEAKER, EquivalenceVerdict.DIFFERENT):
        return None
    return CONSEQUENCES.get((group, name)) or CONSEQUENCES.get((group, ""))


# --- the command


def _outcome(host: Ran | None, worker: Ran | None, secrets: Sequence[str]) -> Iterator[ComparedRow]:
    if host is None or worker is None:
        yield ComparedRow(
            OUTCOME, "all", _describe_end(host), _describe_end(worker), EquivalenceVerdict.UNKNOWN
        )
        return
    verdict = EquivalenceVerdict.SAME if host.code == worker.code else EquivalenceVerdict.DIFFERENT
    if host.code is None and worker.code is None:
        verdict = EquivalenceVerdict.UNKNOWN  # how it would have ended is unknown
    yield ComparedRow(OUTCOME, "exit code", _describe_end(host), _describe_end(worker), verdict)
    for name, one, other in (
        ("stdout", host.stdout, worker.stdout),
        ("stderr", host.stderr, worker.stderr),
    ):
        if (one.size, one.digest) == (other.size, other.digest):
            told = f"{one.size} bytes"
            yield ComparedRow(
                OUTCOME,
                name,
                told,
                told,
                verdict if verdict is EquivalenceVerdict.UNKNOWN else EquivalenceVerdict.SAME,
            )
        else:
            yield ComparedRow(
                OUTCOME, name, *_find_divergence(one, other, secrets), EquivalenceVerdict.DIFFERENT
            )


def _describe_end(ran: Ran | None) -> str:
    if ran is None:
        return "not run"
    if ran.code is None:
        return "did not end in its time"
    return f"{ran.code} ({ran.note})" if ran.note else str(ran.code)


def _find_divergence(host: CapturedStream, worker: CapturedStream, secrets: Sequence[str]) -> tuple[str, str]:
    """The first line that differs, on either side."""
    sides = [stream.kept.split(b"\n") if stream.size else [] for stream in (host, worker)]
    for number in range(max(map(len, sides))):
        one, other = (lines[number] if number < len(lines) else None for lines in sides)
        if one != other:
            return _line(number + 1, one, secrets), _line(number + 1, other, secrets)
    return ("differs later than what is kept of it",) * 2


def _line(number: int, text: bytes | None, secrets: Sequence[str]) -> str:
    if text is None:
        return "nothing" if number == 1 else f"ends before line {number}"
    shown = text.decode("utf-8", "replace").expandtabs()
    for secret in secrets:
        shown = shown.replace(secret, "***")
    return f"line {number}: {_shorten(shown)}" if shown else f"line {number} is empty"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…"


# --- for people


def lines(found: Comparison, *, verbose: bool = True) -> list[str]:
    """The comparison for people: the verdict, the differences as `plain → confined`, the rest as a count.

    The outcome comes first. Without `verbose` the circumstances that differ are only counted by group.
    """
    alike = {
        ReachAnswer.YES: "behaved the same",
        ReachAnswer.NO: "behaved differently",
        ReachAnswer.UNKNOWN: "may have behaved differently",
    }
    told = [f"host-equivalent: {found.host_equivalent}; the command {alike[found.behaved_alike]}"]
    for group in (OUTCOME, *(one for one in GROUPS if one != OUTCOME and verbose)):
        rows = [
            row for row in found.rows if row.group == group and row.verdict is not EquivalenceVerdict.SAME
        ]
        told += ["", f"{group} (plain → confined)"] if rows else []
        shared: dict[tuple[str, str, str | None], list[str]] = {}
        for row in rows:
            shared.setdefault((row.host, row.worker, row.consequence), []).append(row.field)
        for (host, worker, consequence), fields in shared.items():
            text = f"  {', '.join(fields)}: {host} → {worker}"
            told += (
                [text]
                if len(text) <= MAX_LINE
                else [f"  {', '.join(fields)}:", f"    {host} →", f"    {worker}"]
            )
            told += [f"    so {consequence}"] if consequence else []
    same = sum(row.verdict is EquivalenceVerdict.SAME for row in found.rows)
    if not verbose and (differing := _count_circumstances(found)):
        told += ["", f"circumstances that differ: {differing} (--verbose names them)"]
    return [*told, "", f"{same} things are the same"]


def _count_circumstances(found: Comparison) -> str:
    counts: dict[str, int] = {}
    for row in found.rows:
        if row.group != OUTCOME and row.verdict is not EquivalenceVerdict.SAME:
            counts[row.group] = counts.get(row.group, 0) + 1
    return ", ".join(f"{number} of {group}" for group, number in counts.items())
