"""The outcome of `holdfast exec`, as lines for people and as a tree for machines. Pure module."""

from holdfast.errors import HoldfastError, SandboxUnavailable, UsageError
from holdfast.light import TYPE_CHECKING, Any, Final, Mapping, Protocol, Sequence, replace, value
from holdfast.sandbox.policy.policy import PathDecision

if TYPE_CHECKING:  # of a local command, or as another machine reports it
    from holdfast.sandbox.limits import Reached
    from holdfast.sandbox.plan.select import Enforcement
    from holdfast.sandbox.reasons.denials import Denial
    from holdfast.wire.processes import (
        DenialReport,
        DeniedCall,
        EnforcementReport,
        LimitReport,
        WatchReport,
    )

SCHEMA_VERSION: Final = 1
CERTAIN: Final = 0.6  # below this confidence a denial is worded as a guess
NOT_SET_UP, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127  # the codes of env(1) and shells
BAD_USAGE: Final = 2
NOT_WRITTEN: Final = 74  # EX_IOERR of sysexits
_SIGPIPE: Final = 128 + 13  # of a command whose output has lost its reader

_DENIAL: Final = ("kind", "path", "host", "access", "rule", "grant", "confidence", "evidence", "witnessed")
_MAX_NAMED: Final = 3  # of each kind of withheld things; --json names all
_LIMIT: Final = ("what", "limit", "peak", "killed", "message")
_FAILURE: Final = ("message", "remedy", "fingerprint")
_ACCESS: Final = {"read": "reading", "write": "writing", None: "access to"}


class ExecUsage(Protocol):
    """What a command consumed, with the descendants that it waited for."""

    @property
    def user_ms(self) -> int: ...
    @property
    def system_ms(self) -> int: ...
    @property
    def peak_rss_bytes(self) -> int: ...


@value
class ExecFailure:
    message: str
    remedy: str | None = None
    fingerprint: str | None = None


@value
class Withheld:
    """What a command did not get although its user has it."""

    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def words(self, whom: str = "the command") -> list[str]:
        """One line for a person."""
        told = []
        if self.paths:
            told.append(f"{_name_some(self.paths)} (--allow-credentials)")
        if self.variables:
            told.append(f"${_name_some(self.variables)} (--pass-env NAME)")
        return _printable([f"holdfast: withheld from {whom}: {'; '.join(told)}"]) if told else []


@value
class Ending:
    """How a command ended; without `usage` it was not run."""

    code: int
    enforcement: "Enforcement | EnforcementReport | None" = None
    denial: "Denial | DenialReport | None" = None
    usage: ExecUsage | None = None
    failure: ExecFailure | None = None
    unexplained: bool = False  # another server reports that its sandbox denied something, but not what
    watch: "WatchReport | None" = None
    denials: "Sequence[DeniedCall]" = ()
    unconfirmed: int = 0  # calls of which the watcher could not see whether they were refused
    withheld: Withheld = Withheld()
    reached: "Reached | LimitReport | None" = None  # a limit on its resources that it reached
    traffic: "Mapping[str, Any] | None" = None  # connections to hosts by name (`egress/traffic.py`)

    def account(self) -> list[str]:
        """Describe the network traffic, for a person."""
        from holdfast.exec.traffic import describe_sent

        told = self.enforcement.network if self.enforcement else ()
        presets = [text.removeprefix("preset ") for text in told if text.startswith("preset ")]
        given = [f"holdfast: --allow-net {text}" for text in presets]
        return _printable([*given, *describe_sent(self.traffic)])

    def lines(self) -> list[str]:
        """What a person should know besides the command's own output."""
        held = self.enforcement
        lines = [f"holdfast: {held.backend} did not keep {text}" for text in held.missing] if held else []
        if self.failure is not None:
            lines.append(f"holdfast: {self.failure.message}")
            if self.failure.remedy:
                lines.append(f"  try: {self.failure.remedy}")
        if self.watch is not None and not self.watch.on:
            lines.append(f"holdfast: not watched: {self.watch.why}")
        if self.unconfirmed:
            lines.append(f"holdfast: whether {self.unconfirmed} calls were refused could not be seen")
        if self.reached is not None:
            lines.append(f"holdfast: {self.reached.message}")
        refused = self.traffic["refused"] if self.traffic and self.code != 0 else ()
        if refused:
            from holdfast.exec.traffic import describe_refused

            lines += describe_refused(refused)
        if self.denial is not None and not (refused and self.denial.kind == "network"):
            lines += _explain_denial(self.denial)
        elif self.unexplained:
            lines.append("holdfast: the sandbox over there denied something; its server does not say what")
        return _printable(lines)

    def report(self) -> dict[str, object]:
        failure = self.failure
        return {
            "schemaVersion": SCHEMA_VERSION,
            "exitCode": self.code,
            "enforcement": None if self.enforcement is None else _report_enforcement(self.enforcement),
            "denial": None if self.denial is None else _pick_fields(self.denial, _DENIAL),
            "usage": None if self.usage is None else _report_usage(self.usage),
            "error": None if failure is None else _pick_fields(failure, _FAILURE),
            "withheld": {"paths": list(self.withheld.paths), "variables": list(self.withheld.variables)},
            **({} if self.reached is None else {"limit": _pick_fields(self.reached, _LIMIT)}),
            **({} if self.traffic is None else {"network": self._report_traffic()}),
            **({} if self.watch is None else self._report_watch()),
        }

    def _report_traffic(self) -> object:
        from holdfast.exec.traffic import report

        return report(self.traffic or {})

    def _report_watch(self) -> dict[str, object]:
        import msgspec  # slow to import, and needed only here

        return {
            "watch": msgspec.to_builtins(self.watch),
            "denials": msgspec.to_builtins(list(self.denials)),
            "unconfirmed": self.unconfirmed,
        }


@value
class Planned:
    """What would be done, in order, and what would enforce it."""

    operations: list[str]
    enforcement: "Enforcement | EnforcementReport"
    code = 0

    def lines(self) -> list[str]:
        held = self.enforcement
        by = "nothing: the command is not confined" if held.backend == "none" else held.backend
        notes = [f"weakened: {text}" for text in held.weakened]
        notes += [f"missing: {text}" for text in held.missing]
        return _printable([*self.operations, f"enforced by {by}", *notes])

    def report(self) -> dict[str, object]:
        return {
            "schemaVersion": SCHEMA_VERSION,
            "plan": self.operations,
            "enforcement": _report_enforcement(self.enforcement),
        }


@value
class PathAnswer:
    """Which rules decide about one path; `real` is where its links lead."""

    path: str
    real: str
    read: PathDecision
    write: PathDecision

    def lines(self) -> list[str]:
        lines = [self.path if self.path == self.real else f"{self.path}, which is {self.real}"]
        for name, decision in (("read", self.read), ("write", self.write)):
            verb = "allowed" if decision.allowed else "denied"
            grant = f" ({decision.grant} allows it)" if decision.grant else ""
            lines.append(f"  {name}: {verb}: {decision.why}{grant}")
        return lines

    def report(self) -> dict[str, object]:
        answer: dict[str, object] = {"path": self.path, "realPath": self.real}
        for name, decision in (("read", self.read), ("write", self.write)):
            answer[name] = {"allowed": decision.allowed, "why": decision.why, "grant": decision.grant}
        return answer


@value
class Explained:
    answers: list[PathAnswer]
    code = 0

    def lines(self) -> list[str]:
        return _printable([line for answer in self.answers for line in answer.lines()])

    def report(self) -> dict[str, object]:
        return {"schemaVersion": SCHEMA_VERSION, "paths": [answer.report() for answer in self.answers]}


def build_failure(exc: HoldfastError) -> Ending:
    """The ending of a command that could not be started."""
    code = BAD_USAGE if isinstance(exc, UsageError) else NOT_SET_UP
    fingerprint = exc.fingerprint if isinstance(exc, SandboxUnavailable) else None
    return Ending(code, failure=ExecFailure(str(exc), exc.remedy, fingerprint))


def lose_output(ending: Ending, why: str) -> Ending:
    """The command's output could not be written here; then exit code 0 of the command is not enough."""
    code = ending.code if ending.code not in (0, _SIGPIPE) else NOT_WRITTEN
    return replace(ending, code=code, failure=ExecFailure(why))


def _pick_fields(told: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(told, name) for name in names}


def _report_enforcement(held: "Enforcement | EnforcementReport") -> dict[str, object]:
    lists = {name: list(getattr(held, name)) for name in ("missing", "weakened", "remedies")}
    more = {name: list(told) for name in ("limits", "network") if (told := getattr(held, name))}
    return {"backend": str(held.backend), **lists, "fingerprint": held.fingerprint, **more}


def _report_usage(usage: ExecUsage) -> dict[str, object]:
    return {
        "userMs": usage.user_ms,
        "systemMs": usage.system_ms,
        "peakRssBytes": usage.peak_rss_bytes,
    }


def _explain_denial(denial: "Denial | DenialReport") -> list[str]:
    target = _describe_target(denial)
    if denial.witnessed:
        lines = [f"holdfast: the sandbox denied {target}"]
    elif denial.confidence >= CERTAIN:
        lines = [f"holdfast: the sandbox denies {target} (claimed by the output)"]
    else:
        lines = [f"holdfast: the sandbox may have denied {target} (claimed by the output)"]
    if denial.rule:
        lines.append(f"  rule: {denial.rule}")
    if denial.grant:
        lines.append(f"  to allow it: {denial.grant}")
    lines.append(f"  seen: {denial.evidence}")
    return lines


def _name_some(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _describe_target(denial: "Denial | DenialReport") -> str:
    if denial.kind == "filesystem":
        return f"{_ACCESS[denial.access]} {denial.path or 'a file'}"
    if denial.kind == "network":
        target = denial.path or denial.host
        return f"a connection to {target}" if target else "the network"
    return "a system call"


def _printable(lines: list[str]) -> list[str]:
    """Replace unprintable characters: output and file names of a command must not control our terminal."""
    return ["".join(char if char.isprintable() else "\ufffd" for char in line) for line in lines]
