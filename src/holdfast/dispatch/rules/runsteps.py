"""The life of one run: which step follows which, and what is recorded on the board at its end.

Pure module.

FIND      is there a worker with the run's name? It may have been started before a crash
BEGIN     workspace, capability, prompt; then the worker is started
FOLLOW    until its leader ends, the board says that the run is over, or its budget is spent
KEEP      outbox read, changes, output and report kept, the outcome recorded on the board
CHECK     the commands that must succeed before the work counts
TEAR_DOWN the script of its worker profile
FORGET    the mark that this run still has to be finished is removed

When a driver fails in any step, it begins again at FIND, in this process or in the next.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.agents.evidence import evidence
from holdfast.agents.evidence.evidence import WorkerState
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import JsonObject
from holdfast.wire.processes import NetworkReport


class RunStep(enum.Enum):
    FIND = enum.auto()
    BEGIN = enum.auto()
    FOLLOW = enum.auto()
    KEEP = enum.auto()
    CHECK = enum.auto()
    TEAR_DOWN = enum.auto()
    FORGET = enum.auto()
    END = enum.auto()


class RunEvent(enum.Enum):
    FOUND = enum.auto()  # a worker, which may have ended
    MISSING = enum.auto()  # there never was one
    OVER = enum.auto()  # there never was one, and the run is over
    STARTED = enum.auto()
    REFUSED = enum.auto()  # it could not be started, and the board knows why; or the run was over meanwhile
    UNDONE = enum.auto()  # its start on another machine failed without effect and is to be repeated
    DONE = enum.auto()


TABLE: Final[Mapping[tuple[RunStep, RunEvent], RunStep]] = {
    (RunStep.FIND, RunEvent.FOUND): RunStep.FOLLOW,
    (RunStep.FIND, RunEvent.MISSING): RunStep.BEGIN,
    (RunStep.FIND, RunEvent.OVER): RunStep.CHECK,
    (RunStep.BEGIN, RunEvent.STARTED): RunStep.FOLLOW,
    (RunStep.BEGIN, RunEvent.REFUSED): RunStep.CHECK,
    (RunStep.FOLLOW, RunEvent.DONE): RunStep.KEEP,
    (RunStep.FOLLOW, RunEvent.UNDONE): RunStep.FIND,
    (RunStep.KEEP, RunEvent.DONE): RunStep.CHECK,
    (RunStep.CHECK, RunEvent.DONE): RunStep.TEAR_DOWN,
    (RunStep.TEAR_DOWN, RunEvent.DONE): RunStep.FORGET,
    (RunStep.FORGET, RunEvent.DONE): RunStep.END,
}

ANSWERED_S: Final = 5.0  # for a worker to end by itself once it has answered
# Outcomes that the worker itself brought about; any other end of a run comes from elsewhere.
ANSWERED: Final = frozenset({"completed", "blocked", "waiting", "review_requested"})


def after(step: RunStep, event: RunEvent) -> RunStep:
    """Return the next step. Raises AssertionError when the step cannot end with this event."""
    try:
        return TABLE[step, event]
    except KeyError:
        raise AssertionError(f"{step.name} cannot end with {event.name}") from None


def farewell_s(outcome: str | None) -> float:
    """How long a worker may keep running after its run has ended with this outcome on the board."""
    return ANSWERED_S if outcome in ANSWERED else 0.0


# --- how a run ends
#
# A worker that reported has stated its outcome itself. One that did not is judged by how it ended, whether it
# changed anything, and whether its profile accepts an exit code. Work without a report is a failed handoff,
# never a crash: the work must not be done again.

MAX_REASON: Final = 2_000  # characters
MAX_DENIALS: Final = 3  # named in a reason: the cause comes first, and all of them are kept with the run


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended, from the supervisor's report."""

    state: str
    failure: str | None
    about: str
    exit_code: int | None = None
    denials: tuple[str, ...] = ()  # paths that the sandbox refused
    limit_s: float | None = None  # how long the limit that it ran into still lasts


@dataclass(frozen=True, slots=True)
class WorkFound:
    """What else was found. `refused` is why an answer of the worker was rejected, empty if none was."""

    changed: int = 0
    refused: str = ""
    report_only: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """Completed by its exit code."""

    summary: str


@dataclass(frozen=True, slots=True)
class Fail:
    failure: FailureKind
    reason: str
    resets_s: float | None = None  # of a quota: seconds until it resets


@dataclass(frozen=True, slots=True)
class Stop:
    """The budget named by `spent` is used up: a person must raise it."""

    spent: str
    reason: str


Outcome: TypeAlias = Complete | Fail | Stop

_CLASSES: Final[Mapping[str, FailureKind]] = {
    evidence.Failure.QUOTA: FailureKind.QUOTA,
    evidence.Failure.RATE_LIMIT: FailureKind.QUOTA,
    evidence.Failure.AUTH: FailureKind.AUTH,
    evidence.Failure.PROVIDER: FailureKind.INFRA,
    evidence.Failure.NETWORK: FailureKind.INFRA,
    evidence.Failure.LAUNCH: FailureKind.INFRA,
    evidence.Failure.STATE: FailureKind.INFRA,
}  # all others are failures of the task: another try may go better, a third will not


def judge(end: WorkerEnd, work: WorkFound, success: Literal["report", "exit"], *, said: str = "") -> Outcome:
    """The outcome of a run. `said` is the end of its output, the summary if an exit code completes a task."""
    if end.exit_code == 0 and success == "exit" and not work.refused and not work.report_only:
        return Complete(_replace_zero_bytes(said.strip()[-MAX_REASON:]) or "exit code 0")
    if _lacks_only_report(end, work):
        return Fail(FailureKind.HANDOFF, _describe(_describe_missing(work), end))
    if end.state == WorkerState.COMPLETED:
        return Fail(FailureKind.TASK, _describe("it ended without a report, and nothing has changed", end))
    if success == "exit" and end.exit_code:
        return Fail(FailureKind.TASK, _describe(f"exit code {end.exit_code}", end))
    failure = _classify(end)
    resets_s = end.limit_s if failure is FailureKind.QUOTA else None
    return Fail(failure, _describe(f"failed: {end.failure or end.state}", end), resets_s)


def apply_budget(judged: Outcome, spent: str | None) -> Outcome:
    """Stop instead of retrying when the budget is spent; keep completed work and work without a report."""
    if spent is None or not isinstance(judged, Fail) or judged.failure is FailureKind.HANDOFF:
        return judged
    return Stop(spent, judged.reason)


def apply_return(judged: Outcome, problem: str) -> Outcome:
    """Fail completed work that did not return from another machine: a person decides what becomes of it."""
    if not problem or not isinstance(judged, Complete):
        return judged
    return Fail(FailureKind.HANDOFF, f"it ended well, but its work is not here: {problem}"[:MAX_REASON])


def _classify(end: WorkerEnd) -> FailureKind:
    return (
        FailureKind.INFRA
        if end.state == WorkerState.LOST
        else _CLASSES.get(end.failure or "", FailureKind.TASK)
    )


def _lacks_only_report(end: WorkerEnd, work: WorkFound) -> bool:
    """Whether the work is there, now or from before, so that only the report is missing."""
    ended_well = end.state == WorkerState.COMPLETED
    if work.refused:
        return work.changed > 0 or ended_well
    if work.report_only:  # a failure that is not the worker's fault is retried; the work is not done again
        return ended_well or _classify(end) is FailureKind.TASK
    return work.changed > 0 and ended_well


def _describe_missing(work: WorkFound) -> str:
    if work.refused:
        return f"its report was not taken: {work.refused}"
    if work.report_only:
        return "it was asked for its report again, and gave none"
    return f"it ended without a report; {work.changed} files have changed"


def _describe(what: str, end: WorkerEnd) -> str:
    more = len(end.denials) - MAX_DENIALS
    others = f" and {more} more" if more > 0 else ""
    denied = f"denied: {', '.join(end.denials[:MAX_DENIALS])}{others}" if end.denials else ""
    parts = [what, end.about, denied]
    return _replace_zero_bytes("; ".join(part for part in parts if part)[:MAX_REASON])


def _replace_zero_bytes(text: str) -> str:
    """Replace zero bytes, which no store keeps."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


# --- the network access of a run, and its traffic

MAX_ROWS: Final = 20  # of hosts, and of refused ones: the event is read by every process that follows a board


def make_account(hosts: Sequence[str], told: NetworkReport | None, *, whole: bool) -> JsonObject:
    """The hosts that it was allowed, the traffic with each, and what was refused; bounded.

    `counted` is false where counting was impossible: it had the whole network, or its end was not observed.
    """
    found: JsonObject = {"whole": whole, "hosts": [*hosts[:MAX_ROWS]], "counted": told is not None}
    if told is None:
        return found
    sent: list[JsonObject] = [
        {
            "host": row.host,
            "port": row.port,
            "connections": row.connections,
            "sent": row.bytes_sent,
            "received": row.bytes_received,
            "from_ms": row.first_ms,
            "to_ms": row.last_ms,
        }
        for row in told.sent[:MAX_ROWS]
    ]
    refused: list[JsonObject] = [
        {"host": row.host, "port": row.port, "count": row.count, "rule": row.rule, "grant": row.grant}
        for row in told.refused[:MAX_ROWS]
    ]
    more = len(told.sent) + len(told.refused) - len(sent) - len(refused) + told.dropped
    return {**found, "sent": sent, "refused": refused, "more": more}
