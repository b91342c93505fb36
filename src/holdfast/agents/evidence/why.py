"""A status in words: the rule that decided, its evidence, and what would change the verdict. Pure module."""

from collections.abc import Mapping
from typing import Final

from holdfast.agents.evidence.evidence import (
    Answered,
    Claim,
    Denied,
    Drift,
    Evidence,
    Exited,
    Idle,
    Obstructed,
    Progress,
    Ready,
    Requested,
    Result,
    Retrying,
    Status,
    ToolFailed,
    Trouble,
    Unread,
    Used,
    Vanished,
    Wants,
    WorkerState,
    Working,
)
from holdfast.agents.evidence.holdups import DENIALS, DENIALS_S
from holdfast.agents.evidence.status import HOLD_S, PROVIDER_QUIET_S, QUIET_S, STORM_REQUESTS, STORM_S
from holdfast.agents.evidence.verdict import denial_words

_FINAL: Final = "nothing: it has ended"
_ITS_CHECK: Final = "a check of the work itself, by whoever gave the task"

# Rule → what it says, and what would change the verdict.
RULES: Final[Mapping[str, tuple[str, str]]] = {
    "vanished": ("nobody can tell what became of it", "any new sign of it"),
    "stopped": ("its process is stopped", "the signal that continues it"),
    "request": (
        "it asked, with a request of its own protocol, and has no answer",
        "an answer to that request",
    ),
    "denied-again": (
        f"the sandbox refused one path {DENIALS} times within {DENIALS_S:.0f} s, and nothing else happened",
        f"any progress, or {DENIALS_S:.0f} s without a refusal and a report that it goes on",
    ),
    "cut-off": ("the sandbox refused its connection, and it complains about the network", "any progress"),
    "obstructed": (
        "something outside holds it up, and no work was seen since",
        "any progress, or a free way",
    ),
    "proof": ("the kernel shows what it waits for, later than its own word", "its input, or any progress"),
    "wants": ("the strongest report that stands is a question", "an answer, or any progress"),
    "request-storm": (
        f"more than {STORM_REQUESTS} requests to its provider within {STORM_S:.0f} s and no output",
        "output; otherwise it is ended",
    ),
    "retrying": (
        "its last try failed, and it says that it tries again",
        f"output, or no new try {QUIET_S:.0f} s after it was due; hopeless tries are ended",
    ),
    "starting": ("it has not taken part yet", "its first event, prompt or request"),
    "idle": (
        "the strongest report that stands is that it has nothing to do",
        "its next prompt, or any progress",
    ),
    "hold": (
        "it has just become still, which it also does between two steps",
        f"{HOLD_S:.0f} s without work",
    ),
    "silent-provider": (
        f"a request is without an answer for more than {PROVIDER_QUIET_S:.0f} s",
        "a byte from the provider; this is advice, its limits end it",
    ),
    "working": (
        "the strongest report that stands is that it works",
        f"a newer report, or {QUIET_S:.0f} s without any sign of work",
    ),
    "progress": (
        "work was seen to go on, and no report stands against it",
        f"{QUIET_S:.0f} s without any sign of work",
    ),
    "quiet": (
        f"no sign of work for more than {QUIET_S:.0f} s, and no cause known",
        "any progress; this is advice, its limits end it",
    ),
    "exit-ours": ("it was ended from here, or never started", _FINAL),
    "exit-signal": ("a signal ended it that was not sent from here", _FINAL),
    "exit-result": ("its last word on its turn, weighed against refusals and errors", _ITS_CHECK),
    "exit-trouble": ("an error that no later work made good, or a code its record explains", _ITS_CHECK),
    "exit-http": ("its exit code is an HTTP status modulo 256", _FINAL),
    "exit-denied": ("the sandbox refused something, and it ended with an error", _FINAL),
    "exit-early": ("it ended before it took part", _FINAL),
    "exit-zero": ("exit code 0, worth what its record says", _ITS_CHECK),
    "exit-code": ("its exit code is all that is known", _FINAL),
}


def why(status: Status, now: float) -> list[str]:
    """Lines for people: state, rule, evidence with source and age, contradictions, what would change it."""
    rule, change = RULES[status.rule]
    lines = [headline(status, now), f"rule {status.rule}: {rule}"]
    lines += [f"evidence: {_line(item, now)}" for item in status.evidence] or [
        "evidence: none, only the clock"
    ]
    lines += [f"contradiction: {words}" for words in status.contradictions]
    if not status.state.ended:
        lines.append(f"last sign of work: {age(now - status.progress_at)} ago")
    return [*lines, f"would change it: {change}"]


def headline(status: Status, now: float) -> str:
    """State, detail and age in one line."""
    detail = status.failure if status.state is WorkerState.FAILED else status.detail
    particulars = ", ".join(filter(None, (detail, *sorted(status.flags))))
    about = f": {status.about}" if status.about else ""
    return f"{status.state}{f' ({particulars})' if particulars else ''} for {age(now - status.since)}{about}"


def age(seconds: float) -> str:
    """A length of time, in the unit that suits it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def _line(item: Evidence, now: float) -> str:
    seen = f" ({item.seen})" if item.seen else ""
    return f"{item.source.name.lower()}, {age(now - item.at)} ago: {claim_words(item.claim)}{seen}"


def claim_words(claim: Claim) -> str:
    """One claim as a phrase."""
    match claim:
        case Ready():
            return "takes part"
        case Progress(work=work):
            return f"goes on ({work})"
        case Working(work=work):
            return f"works ({work})"
        case Idle():
            return "nothing to do"
        case Wants(want=want, question=question):
            return f"wants {want}" + (f": {question}" if question else "")
        case Unread():
            return "waits for nobody: its terminal is not read"
        case Answered():
            return "answered"
        case Retrying(attempt=attempt, failure=failure, http=http):
            return f"tries again, attempt {attempt} failed" + _cause(failure, http)
        case Denied():
            return denial_words(claim)
        case Obstructed(obstacle=obstacle, detail=detail):
            return f"held up by {obstacle}" + (f": {detail}" if detail else "")
        case Requested():
            return "sent a request to its provider"
        case Used(usage=usage):
            return f"has used {usage.tokens} tokens"
        case Result(ok=ok, failure=failure, http=http):
            return "turn succeeded" if ok else "turn failed" + _cause(failure, http)
        case ToolFailed(what=what, code=code):
            return f"tool failed: {what}" + (f" (exit code {code})" if code is not None else "")
        case Trouble(failure=failure, http=http):
            return "error" + _cause(failure, http)
        case Drift(what=what, count=count):
            return f"said what we do not know: {what}" + (f" ({count} times)" if count > 1 else "")
        case Exited(code=code, signal=signal):
            return f"ended by signal {signal}" if signal is not None else f"exit code {code}"
        case Vanished(why=reason):
            return f"gone: {reason}"


def _cause(failure: str | None, http: int | None) -> str:
    words = " ".join(filter(None, (failure, f"HTTP {http}" if http is not None else None)))
    return f" ({words})" if words else ""
