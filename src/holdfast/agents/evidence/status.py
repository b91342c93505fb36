"""Computes the state of a worker from evidence and clock. Pure module.

No other module draws conclusions. RULES are tried in order and the first with a result decides; its name is
in the status and `why` explains it. The same evidence and clock give the same status, whatever the status was
before. `since` is when the evidence began to say so; a caller that saw the state earlier keeps its own time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from holdfast.agents.evidence import holdups
from holdfast.agents.evidence.digest import LIFE_ONLY, Digest
from holdfast.agents.evidence.evidence import (
    Answered,
    Claim,
    Denied,
    Drift,
    Evidence,
    Exited,
    Failure,
    Foreseen,
    Idle,
    Obstructed,
    Progress,
    Ready,
    Requested,
    Result,
    Retrying,
    Source,
    ToolFailed,
    Trouble,
    Unreached,
    Unread,
    Used,
    Vanished,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.holdups import DENIALS, DENIALS_S
from holdfast.agents.evidence.verdict import RULES as VERDICTS
from holdfast.agents.evidence.verdict import ExitRules, denial_words, http_failure, verdict

START_S: Final = (
    30.0  # most take part within 10 s; records of CLIs that need longer on a cold, busy host say so
)
HOLD_S: Final = 3.0  # between two steps a CLI looks idle for a shorter time
_SAID: Final = (Source.TITLE, Source.ESCAPE)  # what a program reports to its terminal about itself
QUIET_S: Final = 90.0  # a thinking model or a working tool shows something sooner
PROVIDER_QUIET_S: Final = 120.0  # a provider under load may take so long for its first byte
STORM_REQUESTS: Final = 20  # a CLI that backs off makes far fewer; a loop made 120 per minute
STORM_S: Final = 60.0

RETRYING: Final = "retrying"
STORM: Final = "request-storm"
UNREACHABLE: Final = "unreachable"

# Sources that are too noisy or imprecise to count as contradictions.
_NO_CONTRADICTION: Final = LIFE_ONLY | {Source.SOCKET, Source.TEXT}
HOPELESS: Final = frozenset(
    {Failure.AUTH, Failure.MODEL, Failure.QUOTA}
)  # the same request fails the same way
HOPELESS_HTTP: Final = frozenset({401, 403, 404})
ENOUGH_ATTEMPTS: Final = 2  # the second confirms the first; CLIs would go on for minutes
_FINAL: Final = "nothing: it has ended"
_ITS_CHECK: Final = "a check of the work itself, by the user who gave the task"

# Rule → what it means, and what would change the verdict.
REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "vanished": ("what became of it is not known", "any new sign of it"),
    "unreachable": (
        "the machine that it runs on is not reached, and what it does there is not known",
        "a link to that machine; if its session is gone by then, it is lost",
    ),
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


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Bounds for one worker. `wall_s` and `idle_s` end it; the others only change its state."""

    start_s: float = START_S
    wall_s: float | None = None
    idle_s: float | None = None
    quiet_s: float = QUIET_S
    provider_quiet_s: float = PROVIDER_QUIET_S
    one_turn: bool = False  # a run of one prompt: its result is its end, not a wait for the next one


class _Look(Digest):
    __slots__ = ("exits", "limits", "started_at")

    def __init__(
        self, items: Sequence[Evidence], now: float, started_at: float, limits: WorkerLimits, exits: ExitRules
    ) -> None:
        super().__init__(items, now, started_at)
        self.started_at = started_at
        self.limits = limits
        self.exits = exits

    def in_flight(self) -> float | None:
        """Return since when a request has been waiting for its first byte; None if none is."""
        heard = self.items[self.received].at if self.received >= 0 else self.started_at
        index = self.reports.get(Source.SOCKET, -1)
        if index > self.received and isinstance(self.items[index].claim, Working):
            return max(self.since(index), heard)
        sent = [index for index in self.of(Requested) if index > self.received]
        return self.items[sent[0]].at if sent else None

    def quiet(self) -> bool:
        """Return whether there has been no sign of work for too long."""
        allowed = self.limits.quiet_s if self.in_flight() is None else self.limits.provider_quiet_s
        return self.now - self.progress_at > allowed and not self.command_runs()

    @property
    def tool(self) -> int:
        """The index of the last progress of a tool."""
        return self._newest_progress((Work.TOOL,))

    def last_work(self) -> Work:
        """Return the kind of work last seen, ignoring commands below it that have ended."""
        over = LIFE_ONLY if self.command_runs() else LIFE_ONLY | {Source.CHILDREN}
        for item in reversed(self.items):
            if isinstance(item.claim, Progress | Working) and item.source not in over:
                return item.claim.work
        return Work.THINKING

    def rest(self) -> tuple[Evidence, float, float] | None:
        """Return the report that it rests, since when, and how long it must rest before we accept that."""
        voice = self.voice()
        if voice is None or not holdups.rests(voice):
            return None
        if voice.source in holdups.SHOWN and self.unread() is not None:
            return None
        if self.limits.one_turn and isinstance(voice.claim, Result):
            return None
        index = self.live[0]
        begin = self.since(index)
        if isinstance(voice.claim, Idle) and voice.claim.since is not None:
            begin = voice.claim.since
        stable = holdups.STABLE_S if voice.source in holdups.SHOWN else 0.0
        answered = self.newest(Answered)
        if answered >= 0 and (stable or voice.source in _SAID):  # these remain for a while after an answer
            begin = max(begin, self.items[answered].at)
        # If it shows its prompt, earlier changes of the screen are life, not work.
        life = LIFE_ONLY if voice.source is Source.SCREEN else frozenset()
        worked = any(
            isinstance(item.claim, Working | Progress | Answered) and item.source not in life
            for item in self.items[:index]
        )
        worked = worked or (voice.source in _SAID and answered > index)
        return voice, begin, stable + (HOLD_S if worked else 0.0)


def _exit(look: _Look) -> WorkerStatus | None:
    return verdict(look.items, look.exits) if look.of(Exited) else None


def _vanished(look: _Look) -> WorkerStatus | None:
    last = look.items[-1] if look.items else None
    if last is None or not isinstance(last.claim, Vanished):
        return None  # it never vanished, or was seen again since
    return WorkerStatus(WorkerState.LOST, about=last.claim.why, since=last.at, evidence=(last,))


def _unreachable(look: _Look) -> WorkerStatus | None:
    index = look.newest(Unreached)
    item = look.items[index] if index >= 0 else None
    if item is None or not isinstance(item.claim, Unreached) or item.claim.over:
        return None
    about = f"not reached for {look.age(index):.0f} s: {item.claim.why}"
    return WorkerStatus(WorkerState.STALLED, UNREACHABLE, about, since=item.at, evidence=(item,))


def _storm(look: _Look) -> WorkerStatus | None:
    requests = [i for i in look.of(Requested) if i > look.output and look.age(i) <= STORM_S]
    if len(requests) <= STORM_REQUESTS:
        return _same_turn_again(look)
    return _report_loop(look, requests, "requests", "nothing came of them")


def _same_turn_again(look: _Look) -> WorkerStatus | None:
    """Detect a retry loop in which each attempt yields a partial answer, and so looks like work."""
    tries = [
        i
        for i in look.of(Retrying)
        if i > look.tool and look.age(i) <= STORM_S and look.items[i].source is Source.PROTOCOL
    ]
    if len(tries) <= STORM_REQUESTS:
        return None
    return _report_loop(look, tries, "attempts", "no tool was called")


def _report_loop(look: _Look, tries: list[int], what: str, but: str) -> WorkerStatus:
    about = f"retry loop: {len(tries)} {what} within {STORM_S:.0f} s, and {but}"
    shown = tuple(look.items[i] for i in reversed(tries[-2:]))
    return WorkerStatus(WorkerState.RUNNING, RETRYING, about, since=look.items[tries[0]].at, evidence=shown)


def _retrying(look: _Look) -> WorkerStatus | None:
    index = look.newest(Retrying)
    item = look.items[index] if index > look.output else None
    if item is None or not isinstance(item.claim, Retrying):
        return None
    claim = item.claim
    if look.now - max(item.at, claim.next_at or item.at) > look.limits.quiet_s:
        return None
    if any(
        i > index and look.items[i].source not in LIFE_ONLY and holdups.rests(look.items[i])
        for i in look.live
    ):
        return None
    if item.source is Source.SCREEN and look.reports.get(Source.SCREEN, -1) > index:
        return None  # the screen no longer shows it
    same = _attempts_like(look, claim)
    if claim.failure is None and claim.http is None:
        claim = replace(claim, failure=_find_trouble(look)[0])
    claim = replace(claim, failure=holdups.blame(look, claim.failure))
    about = _retry_words(claim, look.now)
    return WorkerStatus(WorkerState.RUNNING, RETRYING, about, claim.failure, since=same[-1].at, evidence=same)


def _find_trouble(look: _Look) -> tuple[Failure | None, Evidence | None]:
    """Return the last failure reported since the last output; it is the cause of attempts without one."""
    for index in sorted((*look.of(Trouble), *look.of(Retrying)), reverse=True):
        claim = look.items[index].claim
        if index > look.output and isinstance(claim, Trouble | Retrying) and claim.failure is not None:
            return claim.failure, look.items[index]
    return None, None


def _attempts_like(look: _Look, claim: Retrying) -> tuple[Evidence, ...]:
    """Return attempts since the last output that failed in the same way, newest first.

    They are all from one source, because two sources may report the same attempt. Each event is an attempt of
    its own, but a screen shows the same attempt many times.
    """
    found: dict[Source, dict[tuple[int, float], Evidence]] = {}
    for index in reversed(look.of(Retrying)):
        item = look.items[index]
        if index <= look.output or not isinstance(item.claim, Retrying):
            break
        if (item.claim.failure, item.claim.http) == (claim.failure, claim.http):
            when = item.at if item.source is Source.PROTOCOL else 0.0
            found.setdefault(item.source, {}).setdefault((item.claim.attempt, when), item)
    return tuple(max(found.values(), key=len).values())[: holdups.MAX_SHOWN]


def _retry_words(claim: Retrying, now: float) -> str:
    of = f"/{claim.of}" if claim.of is not None else ""
    http = f"HTTP {claim.http}" if claim.http is not None else ""
    cause = " ".join(filter(None, (claim.failure, http))) or "cause not told"
    left = (claim.next_at or now) - now
    return f"attempt {claim.attempt}{of}, {cause}" + (f", next in {left:.0f} s" if left > 0 else "")


def _starting(look: _Look) -> WorkerStatus | None:
    if look.began:
        return None
    begin = max([look.started_at, *(look.items[i].at for i in look.of(Wants)[-1:])])
    shown = holdups.shown(look)
    if look.now - begin <= look.limits.start_s:
        return WorkerStatus(WorkerState.STARTING, since=look.started_at, evidence=shown)
    about = f"started {look.now - begin:.0f} s ago, and nothing says that it takes part"
    return WorkerStatus(WorkerState.STALLED, about=about, since=begin + look.limits.start_s, evidence=shown)


def _idle(look: _Look) -> WorkerStatus | None:
    found = look.rest()
    if found is None or look.now - found[1] < found[2]:
        return None
    return holdups.waiting(look, holdups.find_failed_turn(look) or found[0], found[1])


def _hold(look: _Look) -> WorkerStatus | None:
    found = look.rest()
    if found is None:
        return None
    about = "it has just become still"
    return WorkerStatus(
        WorkerState.RUNNING, look.last_work(), about, since=look.progress_at, evidence=(found[0],)
    )


def _silent_provider(look: _Look) -> WorkerStatus | None:
    begin = look.in_flight()
    if begin is None or look.now - begin <= look.limits.provider_quiet_s or look.command_runs():
        return None
    heard = f"{look.age(look.received):.0f} s ago" if look.received >= 0 else "never"
    about = f"request sent {look.now - begin:.0f} s ago, no answer; last received {heard}"
    index = max(look.reports.get(Source.SOCKET, -1), look.newest(Requested))
    since = begin + look.limits.provider_quiet_s
    return WorkerStatus(WorkerState.STALLED, Work.NETWORK, about, since=since, evidence=(look.items[index],))


def _working(look: _Look) -> WorkerStatus | None:
    voice = look.voice()
    if voice is None or not isinstance(voice.claim, Working) or look.quiet():
        return None
    work = voice.claim.work
    if work in (Work.THINKING, Work.NETWORK) and look.tool_runs(voice):
        work = Work.TOOL  # a weaker source adds the detail
    since = look.since(look.live[0])
    return WorkerStatus(
        WorkerState.RUNNING, work, voice.seen, since=since, evidence=holdups.shown(look, voice)
    )


def _progress(look: _Look) -> WorkerStatus | None:
    if look.quiet():
        return None
    voice = look.voice()
    if voice is not None and isinstance(voice.claim, Result) and not voice.claim.ok:
        about = f"its turn failed, and it has not ended yet: {voice.claim.message}"
        failure = holdups.blame(look, voice.claim.failure or _find_trouble(look)[0])
        return WorkerStatus(
            WorkerState.RUNNING, look.last_work(), about, failure, since=voice.at, evidence=(voice,)
        )
    index = max(look.edges.values(), default=-1)
    shown = tuple(look.items[index : index + 1]) if index >= 0 else ()
    if (proof := look.unread()) is not None:
        shown = (*shown, proof)
    return WorkerStatus(WorkerState.RUNNING, look.last_work(), since=look.progress_at, evidence=shown)


def _quiet(look: _Look) -> WorkerStatus | None:
    if (unreachable := holdups.unreachable(look)) is not None:
        return unreachable
    about = f"no sign of work for {look.now - look.progress_at:.0f} s"
    shown = holdups.shown(look) or tuple(look.items[-1:])
    since, work = look.progress_at + look.limits.quiet_s, look.last_work()
    failure, trouble = _find_trouble(look)
    if failure is Failure.NETWORK and trouble is not None:
        about, work, shown = f"{about}; {trouble.seen}", Work.NETWORK, (trouble, *shown)
    return WorkerStatus(WorkerState.STALLED, work, about, since=since, evidence=shown)


Rule: TypeAlias = Callable[[_Look], WorkerStatus | None]
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("exit", _exit),
    ("vanished", _vanished),
    (UNREACHABLE, _unreachable),
    ("stopped", holdups.stopped),
    ("request", holdups.request),
    ("denied-again", holdups.denied_again),
    ("cut-off", holdups.cut_off),
    ("obstructed", holdups.obstructed),
    ("proof", holdups.proof),
    ("wants", holdups.wants),
    (STORM, _storm),
    (RETRYING, _retrying),
    ("starting", _starting),
    ("idle", _idle),
    ("hold", _hold),
    ("silent-provider", _silent_provider),
    ("working", _working),
    ("progress", _progress),
    ("quiet", _quiet),
)
NAMES: Final = (*(name for name, _ in RULES if name != "exit"), *(f"exit-{name}" for name, _ in VERDICTS))


def classify(
    evidence: Sequence[Evidence],
    now: float,
    *,
    started_at: float,
    limits: WorkerLimits,
    exits: ExitRules = ExitRules(),  # noqa: B008 - a value that nobody changes
) -> WorkerStatus:
    """Return the state of a worker from its evidence, newest last. Always returns a status."""
    look = _Look(evidence, now, started_at, limits, exits)
    for name, rule in RULES:
        status = rule(look)
        if status is not None:
            found = status.contradictions or _contradictions(look, status)
            name = status.rule or name
            return replace(status, rule=name, progress_at=look.progress_at, contradictions=found)
    raise AssertionError("the last rule always knows")


_FAMILY: Final = {WorkerState.WAITING: "waiting", WorkerState.BLOCKED: "blocked"}


def _contradictions(look: _Look, status: WorkerStatus) -> tuple[str, ...]:
    """Describe other valid reports that contradict the status of a living worker."""
    if status.state.ended or not status.evidence:
        return ()
    decided = _FAMILY.get(status.state, "running")
    mine = f"{status.evidence[0].source.name.lower()} says {status.state} ({status.detail})"
    found = []
    for item in map(look.items.__getitem__, look.live):
        family, detail = _says(item)
        differs = family != decided or (
            decided == "waiting" and holdups.asks(item) and detail != status.detail
        )
        if item is not status.evidence[0] and item.source not in _NO_CONTRADICTION and differs:
            found.append(f"{item.source.name.lower()} says {family} ({detail}), {mine}")
    return tuple(found)


def _says(item: Evidence) -> tuple[str, str]:
    match item.claim:
        case Working(work=work):
            return "running", work
        case Obstructed(obstacle=obstacle):
            return "blocked", obstacle
        case Wants(want=want):
            return "waiting", want
        case _:
            return "waiting", "prompt"


@dataclass(frozen=True, slots=True)
class WorkerStop:
    """The worker is to be ended for this cause; the verdict is then `failed` with this failure and reason."""

    failure: Failure
    why: str


def decide_end(
    status: WorkerStatus, now: float, *, started_at: float, limits: WorkerLimits
) -> WorkerStop | None:
    """Decide whether a worker is to be ended now, and why; None means no.

    Advice about a worker (it stalls, it waits) never ends it. Only failures that cannot get better do, and
    the limits that its owner set.
    """
    if status.state.ended:
        return None
    if status.rule == UNREACHABLE:
        return None  # we neither know whether it works nor could end it
    if limits.wall_s is not None and now - started_at > limits.wall_s:
        return WorkerStop(Failure.TIMEOUT, f"it ran for more than {limits.wall_s:.0f} s")
    if status.rule == STORM:
        return WorkerStop(Failure.PROVIDER, status.about)
    if status.rule == RETRYING and (failure := _hopeless(status)) is not None:
        return WorkerStop(failure, f"trying again cannot help: {status.about}")
    idle_s = now - max(status.progress_at, started_at)
    # A worker that waits for its owner does not count as idle.
    if limits.idle_s is not None and idle_s > limits.idle_s and status.state is not WorkerState.WAITING:
        return WorkerStop(Failure.TIMEOUT, f"no sign of work for more than {limits.idle_s:.0f} s")
    return None


def _hopeless(status: WorkerStatus) -> Failure | None:
    """Return the failure that would repeat for ever. The evidence holds attempts that failed alike."""
    # A person at a screen that shows attempts decides for themselves; a run of one prompt has no such person.
    told = [item for item in status.evidence if item.source is not Source.SCREEN]
    attempts = [item.claim for item in told if isinstance(item.claim, Retrying)]
    if len(attempts) < ENOUGH_ATTEMPTS:
        return None
    failure = attempts[0].failure or http_failure(attempts[0].http or 0)
    return failure if failure in HOPELESS or attempts[0].http in HOPELESS_HTTP else None


def why(status: WorkerStatus, now: float) -> list[str]:
    """Return lines for people: state, rule, evidence with its age, contradictions, what would change it."""
    rule, change = REASONS[status.rule]
    lines = [headline(status, now), f"rule {status.rule}: {rule}"]
    lines += [f"evidence: {_line(item, now)}" for item in status.evidence] or [
        "evidence: none, only the clock"
    ]
    lines += [f"contradiction: {words}" for words in status.contradictions]
    if not status.state.ended:
        lines.append(f"last sign of work: {age(now - status.progress_at)} ago")
    return [*lines, f"would change it: {change}"]


def headline(status: WorkerStatus, now: float) -> str:
    """Return state, detail and age in one line."""
    detail = status.failure if status.state is WorkerState.FAILED else status.detail
    particulars = ", ".join(filter(None, (detail, *sorted(status.flags))))
    about = f": {status.about}" if status.about else ""
    return f"{status.state}{f' ({particulars})' if particulars else ''} for {age(now - status.since)}{about}"


def age(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def _line(item: Evidence, now: float) -> str:
    seen = f" ({item.seen})" if item.seen else ""
    return f"{item.source.name.lower()}, {age(now - item.at)} ago: {claim_words(item.claim)}{seen}"


def claim_words(claim: Claim) -> str:
    """Describe a claim as a phrase."""
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
            return "does not read its terminal: it waits for no input"
        case Answered():
            return "answered"
        case Retrying(attempt=attempt, failure=failure, http=http):
            return f"tries again, attempt {attempt} failed" + _cause(failure, http)
        case Denied() | Foreseen():
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
        case Unreached(why=reason, over=over):
            return "reached again" if over else f"not reached: {reason}"


def _cause(failure: str | None, http: int | None) -> str:
    words = " ".join(filter(None, (failure, f"HTTP {http}" if http is not None else None)))
    return f" ({words})" if words else ""
