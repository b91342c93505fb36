"""What to tell the board about a worker that ended. Pure module.

A worker that answered has said it itself. One that did not is judged by how it ended, whether it changed
anything, and whether its profile lets an exit code speak. Work without a report is a failed handoff, never a
crash: whoever did the work is not made to do it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.agents.evidence import evidence
from holdfast.agents.evidence.evidence import WorkerState
from holdfast.board.rules.retry import FailureKind

MAX_REASON: Final = 2_000  # characters
MAX_DENIALS: Final = 3  # named in a reason: the cause comes first, and the run's own page has all of them


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended, from the supervisor's report of it."""

    state: str
    failure: str | None
    about: str
    exit_code: int | None = None
    denials: tuple[str, ...] = ()  # paths that the sandbox refused
    limit_s: float | None = None  # for how long a limit lasts that it ran into


@dataclass(frozen=True, slots=True)
class WorkFound:
    """What is there besides. `refused` is why an answer of the worker was not taken, if one was not."""

    changed: int = 0
    refused: str = ""
    report_only: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """Its exit code speaks for it."""

    summary: str


@dataclass(frozen=True, slots=True)
class Fail:
    failure: FailureKind
    reason: str
    resets_s: float | None = None  # of a quota: when it is over, from now on


@dataclass(frozen=True, slots=True)
class Stop:
    """A budget is spent, as `spent` says: a person must raise it."""

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
}  # all others are of the task: another try may go better, a third will not


def judge(end: WorkerEnd, work: WorkFound, success: Literal["report", "exit"], *, said: str = "") -> Outcome:
    """`said` is the end of its output, which stands for a summary where an exit code completes a task."""
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
    """What is done is done, and so is work without a report; whatever else came of it is not tried again."""
    if spent is None or not isinstance(judged, Fail) or judged.failure is FailureKind.HANDOFF:
        return judged
    return Stop(spent, judged.reason)


def apply_return(judged: Outcome, problem: str) -> Outcome:
    """Work on another machine that is not in its workspace is not done: a person says what becomes of it."""
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
    """Is the work there, or was it there before, so that only the report is missing?"""
    ended_well = end.state == WorkerState.COMPLETED
    if work.refused:
        return work.changed > 0 or ended_well
    if work.report_only:  # what is no fault of the worker's is tried again; the work is not
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
    """Without what no store keeps."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
