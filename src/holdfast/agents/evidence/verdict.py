"""The verdict on a worker that ended: success, or why not. Pure module.

Exit code 0 does not prove success, nor does a final result event that claims it. The rules are tried in
order; the first that applies decides:

    ours      our own kill or a failed launch
    signal    a signal that we did not send
    result    the CLI's final result, weighed against refusals and errors without later successful work
    trouble   an error reported in words, or by a code that the CLI's record explains
    http      the exit code is an HTTP status modulo 256
    denied    the sandbox refused something before the end
    early     it ended before it took part
    zero      exit 0, interpreted as the CLI's record says
    code      any other exit code

Evidence that arrives after the exit still counts, so add `Exited` when the output is closed, or after
SETTLE_S.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from holdfast.agents.evidence.digest import LIFE_ONLY, began
from holdfast.agents.evidence.evidence import (
    Answered,
    Denied,
    Evidence,
    Exited,
    Failure,
    Foreseen,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Result,
    Retrying,
    Source,
    ToolFailed,
    Trouble,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)

SETTLE_S: Final = 2.0  # the last output arrives within this time, unless children of the leader still run

CUT_SHORT_S: Final = 1.5  # a command that was seen for so long is not a short-lived helper

WITH_DENIALS: Final = "with-denials"  # something was refused on the way
UNVERIFIED: Final = "unverified"  # nothing shows that the work was done
NO_TOOLS: Final = "no-tools"  # it used no tools: nothing can have changed
BACKGROUND: Final = "background"  # programs that it started still run

_HTTP_BASE: Final = 256  # an exit code has eight bits
_HTTP_ERRORS: Final = range(400, 600)
_HTTP: Final[Mapping[int, Failure]] = {
    401: Failure.AUTH,
    402: Failure.QUOTA,
    403: Failure.AUTH,
    404: Failure.MODEL,
    413: Failure.CONTEXT,
    429: Failure.RATE_LIMIT,
}

_WORDS_OF_CAUSE: Final[Mapping[Failure, str]] = {
    Failure.KILLED: "it was stopped",
    Failure.TIMEOUT: "it was stopped at its time limit",
    Failure.LAUNCH: "it could not be started",
}


@dataclass(frozen=True, slots=True)
class ExitRules:
    """What the exit codes of one CLI mean, according to its record."""

    zero_means_success: bool = True
    codes: Mapping[int, Failure] = field(default_factory=dict)
    http_modulo: bool = False  # a code without a better meaning is an HTTP status modulo 256


def _names(item: Evidence) -> list[str]:
    """Return the names of the commands that a look found."""
    return item.seen.removeprefix("runs ").split(", ")


def http_failure(status: int) -> Failure | None:
    """Return the failure that a provider's HTTP status means, or None if it is not an error."""
    return _HTTP.get(status, Failure.PROVIDER) if status in _HTTP_ERRORS else None


def denial_words(denied: Denied | Foreseen) -> str:
    """Describe a denial in one line: path and access, errno, rule, and what would help.

    Says so if it was a probe that was refused, and not the worker.
    """
    whom = " to a probe in its sandbox" if isinstance(denied, Foreseen) else ""
    role = f" ({denied.role})" if denied.role else ""
    rule = f", rule {denied.rule}" if denied.rule else ""
    ways = [f"grant {denied.grant}"] if denied.grant else []
    ways += [f"set {denied.relocation}"] if denied.relocation else []
    help_ = f", {' or '.join(ways)}" if ways else ""
    return f"{denied.path}{role}: {denied.access} refused{whom} with {denied.errno}{rule}{help_}"


class _End:
    """The evidence at the end, indexed for the rules; -1 means none."""

    def __init__(self, items: Sequence[Evidence], rules: ExitRules) -> None:
        self.items = items
        self.rules = rules
        self.last: dict[type, int] = {}
        self.tool = self.stream = self.question = self.said = -1
        self.worked = before = -1  # the last tool that did not fail
        self.denial = self.network = self.unknown = -1
        self.left_behind = False
        for index, item in enumerate(items):
            claim = item.claim
            self.last[type(claim)] = index
            if isinstance(claim, Progress) and item.source not in LIFE_ONLY:
                if claim.work is Work.TOOL:
                    self.tool = index
                    before, self.worked = self.worked, index
                elif claim.work is Work.STREAMING:
                    self.stream = index
            elif isinstance(claim, ToolFailed) and self.worked == index - 1:
                self.worked = before
            elif isinstance(claim, Denied) and not claim.host:
                if not claim.aside or self._is_named(claim.path):
                    self._take_denial(index, claim)
            elif (isinstance(claim, Foreseen) and claim.access == "connect") or (
                isinstance(claim, Obstructed) and claim.obstacle is Obstacle.SANDBOX_NETWORK
            ):
                self.network = index
            if (
                isinstance(claim, Trouble)
                and item.source is Source.DENIAL
                and claim.failure is Failure.NETWORK
            ):
                self.unknown = index
            if isinstance(claim, Wants) and claim.want is not Want.PROMPT:
                self.question = index
            elif isinstance(claim, Working | Idle | Answered | Progress | Result):
                self.said = index
        self.exit_at = self.last.get(Exited, -1)
        exited = items[self.exit_at]
        if not isinstance(exited.claim, Exited):
            raise AssertionError("verdict is asked about a worker that ended")
        self.exited, self.claim = exited, exited.claim
        children = [i.claim for i in items[self.exit_at + 1 :] if i.source is Source.CHILDREN]
        self.left_behind = bool(children) and isinstance(children[-1], Working | Progress)
        self.cut_short = "" if self.left_behind else self._find_cut_short()

    def _find_cut_short(self) -> str:
        """Return the commands that ran below it until the end, and so were killed with it.

        Short-lived helpers do not count: they come and go at any time.
        """
        seen = [item for item in self.items[: self.exit_at] if item.source is Source.CHILDREN]
        last = seen[-1] if seen else None
        if last is None or not isinstance(last.claim, Working) or self.exited.at - last.at > SETTLE_S:
            return ""
        names, begin = set(_names(last)), last.at
        for item in reversed(seen):
            common = names & set(_names(item))
            if not isinstance(item.claim, Working) or not common:
                break
            names, begin = common, item.at
        kept = [name for name in _names(last) if name in names]
        return ", ".join(kept) if last.at - begin >= CUT_SHORT_S else ""

    def _is_named(self, host: str) -> bool:
        """Return whether the worker reports an error that names this host; then it needed the host."""
        name = host.partition(":")[0]
        return any(name in item.seen for item in self.items if isinstance(item.claim, Trouble | Retrying))

    def _take_denial(self, index: int, claim: Denied) -> None:
        before = self.items[self.denial].claim if self.denial >= 0 else None
        if not (isinstance(before, Denied) and before.fatal and not claim.fatal):
            self.denial = index
        if claim.access == "connect":
            self.network = index

    def result(self) -> tuple[Evidence, Result] | None:
        item = self.items[self.last[Result]] if Result in self.last else None
        return (item, item.claim) if item is not None and isinstance(item.claim, Result) else None

    def trouble(self) -> tuple[int, Failure] | None:
        """Return the last failure reported in words without successful work after it."""
        for index in sorted((self.last.get(Trouble, -1), self.last.get(Retrying, -1)), reverse=True):
            claim = self.items[index].claim if index >= 0 else None
            if not isinstance(claim, Trouble | Retrying):
                continue
            failure = claim.failure or http_failure(claim.http or 0)
            # After a refusal, text ("done!") proves nothing: only a later tool shows that it found a way.
            refused = failure in (Failure.PERMISSION, Failure.SANDBOX)
            if failure is not None and index > (self.worked if refused else max(self.tool, self.stream)):
                return index, failure
        return None

    def tools_failed(self) -> bool:
        """Return whether the last known outcome of a tool was a failure."""
        return self.last.get(ToolFailed, -1) > self.tool

    def cause(self, failure: Failure) -> tuple[Failure, Evidence | None]:
        """Return the failure; if the sandbox caused it, SANDBOX and the denial that shows it."""
        if failure is Failure.PROVIDER and self.unknown > max(self.tool, self.stream):
            return Failure.NETWORK, None  # a gateway answered for a provider with an unresolved name
        if failure is Failure.NETWORK and self.network >= 0:
            return Failure.SANDBOX, self.items[self.network]
        if failure in (Failure.SANDBOX, Failure.STATE) and self.denial >= 0:
            return Failure.SANDBOX, self.items[self.denial]
        return failure, None

    def failed(self, failure: Failure, about: str, *shown: Evidence) -> WorkerStatus:
        failure, denial = self.cause(failure)
        if denial is not None:
            about = _denial_about(denial, self.exited.at)
            shown = (*(item for item in shown if item is not denial), denial)
        return WorkerStatus(WorkerState.FAILED, about=about, failure=failure, evidence=(self.exited, *shown))

    def completed(self, flags: set[str], about: str, *shown: Evidence) -> WorkerStatus:
        if self.denial >= 0:
            flags = flags | {WITH_DENIALS}
            shown = (*shown, self.items[self.denial])
            about = about or _denial_about(self.items[self.denial], self.exited.at)
        return WorkerStatus(
            WorkerState.COMPLETED, about=about, flags=frozenset(flags), evidence=(self.exited, *shown)
        )


def _denial_about(item: Evidence, end: float) -> str:
    if isinstance(item.claim, Denied | Foreseen):
        words = denial_words(item.claim)
    else:
        words = item.claim.detail if isinstance(item.claim, Obstructed) else ""
        words = words or "the sandbox has no network"
    age = round(end - item.at)
    return f"{words} ({age} s before the end)" if age > SETTLE_S else words


def _ours(end: _End) -> WorkerStatus | None:
    cause = end.claim.cause
    if cause is None:
        return None
    status = end.failed(cause, end.exited.seen or _WORDS_OF_CAUSE.get(cause, f"it was ended: {cause}"))
    found = end.result()
    if found is not None and found[1].ok:
        return replace(status, contradictions=("protocol says that its last turn succeeded",))
    return status


def _signal(end: _End) -> WorkerStatus | None:
    number = end.claim.signal
    if number is None:
        return None
    if (trouble := end.trouble()) is not None and trouble[1] is Failure.MEMORY:
        item = end.items[trouble[0]]
        return end.failed(Failure.MEMORY, f"{item.seen} (signal {number})", item)
    if end.claim.out_of_memory:
        about = f"signal {number}, while the kernel ended processes because no memory was left"
        return end.failed(Failure.MEMORY, about)
    return end.failed(Failure.CRASH, f"signal {number}, which we did not send{_limit(end)}")


def _limit(end: _End) -> str:
    """Return words about a limit that it exceeded without having been ended for it."""
    return f"; {end.claim.limit}" if end.claim.limit else ""


def _result(end: _End) -> WorkerStatus | None:
    found = end.result()
    if found is None:
        return None
    item, result = found
    trouble = end.trouble()
    if not result.ok:
        failure = result.failure or http_failure(result.http or 0) or (trouble[1] if trouble else None)
        failure = failure or end.rules.codes.get(end.claim.code or 0)
        if failure is None and end.denial > max(end.tool, end.stream):  # refused, and nothing after it
            return end.failed(Failure.SANDBOX, "", item)
        return end.failed(failure or Failure.CRASH, result.message or item.seen, item)
    if result.refused and (
        end.tool < 0 or end.tools_failed() or (trouble and trouble[1] is Failure.PERMISSION)
    ):
        return end.failed(Failure.PERMISSION, f"not allowed: {', '.join(result.refused)}", item)
    if trouble is not None and trouble[0] < end.last[Result]:
        cause = end.items[trouble[0]]
        status = end.failed(trouble[1], cause.seen, cause, item)
        words = f"protocol says success, {cause.source.name.lower()} says {trouble[1]}"
        return replace(status, contradictions=(words,))
    return _success(end, item, result, trouble)


def _success(end: _End, item: Evidence, result: Result, trouble: tuple[int, Failure] | None) -> WorkerStatus:
    """Return the status of a worker that reports success, with all doubts about it."""
    flags, doubts, contradictions, shown = set[str](), list[str](), list[str](), [item]
    if result.refused:
        flags.add(WITH_DENIALS)
        doubts.append(f"not allowed on the way: {', '.join(result.refused)}")
    if end.claim.code != 0:
        flags.add(UNVERIFIED)
        contradictions.append(f"protocol says success, exit code is {end.claim.code}")
    if trouble is not None:
        flags.add(UNVERIFIED)
        cause = end.items[trouble[0]]
        contradictions.append(f"protocol says success, {cause.source.name.lower()} says {trouble[1]}")
        shown.append(cause)
    failure = end.items[end.last[ToolFailed]] if end.tools_failed() else None
    if failure is not None and isinstance(failure.claim, ToolFailed):
        flags.add(UNVERIFIED)
        doubts.append(f"its last tool failed: {failure.claim.what}")
        shown.append(failure)
    if end.claim.limit:
        flags.add(UNVERIFIED)
        doubts.append(end.claim.limit)
    if result.unfinished:
        flags.add(UNVERIFIED)
        doubts.append(f"still at work when its turn ended: {', '.join(result.unfinished)}")
    elif failure is None and end.tool < 0:
        flags.add(NO_TOOLS)
        if end.stream < 0:
            flags.add(UNVERIFIED)
            doubts.append("it produced nothing")
    status = end.completed(flags, "; ".join(doubts), *shown)
    return replace(status, contradictions=tuple(contradictions))


def _trouble(end: _End) -> WorkerStatus | None:
    trouble, code = end.trouble(), end.claim.code
    if trouble is not None:
        item = end.items[trouble[0]]
        return end.failed(trouble[1], item.seen, item)
    if code is not None and code in end.rules.codes:
        return end.failed(end.rules.codes[code], f"exit code {code}")
    return None


def _http(end: _End) -> WorkerStatus | None:
    status = (end.claim.code or 0) + _HTTP_BASE
    failure = http_failure(status) if end.rules.http_modulo else None
    if failure is None:
        return None
    return end.failed(failure, f"exit code {end.claim.code}, which is HTTP {status} modulo {_HTTP_BASE}")


def _denied(end: _End) -> WorkerStatus | None:
    if end.denial < 0 or not end.claim.code:
        return None
    return end.failed(Failure.SANDBOX, "")


def _early(end: _End) -> WorkerStatus | None:
    dialog = end.question > end.said
    if began(end.items) or (end.claim.code == 0 and end.rules.zero_means_success and not dialog):
        return None
    if end.claim.code is None:
        return None
    where = "in a dialog of its start" if dialog else "before it took part"
    failure = Failure.SANDBOX if end.denial >= 0 else Failure.LAUNCH
    return end.failed(failure, f"it ended {where}, {end.exited.seen or f'exit code {end.claim.code}'}")


def _zero(end: _End) -> WorkerStatus | None:
    if end.claim.code != 0:
        return None
    if not end.rules.zero_means_success:
        return end.completed({UNVERIFIED}, "exit code 0, which says little here, and no result")
    if end.question > end.said:
        return end.completed({UNVERIFIED}, "it ended while it asked for something", end.items[end.question])
    return end.completed(set(), "")


def _code(end: _End) -> WorkerStatus | None:
    if end.claim.code is None:
        return WorkerStatus(
            WorkerState.LOST, about="it is gone, and its exit code is lost", evidence=(end.exited,)
        )
    why = _limit(end) or ", and no word about the cause"
    return end.failed(Failure.CRASH, f"exit code {end.claim.code}{why}")


Rule: TypeAlias = Callable[[_End], WorkerStatus | None]
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("ours", _ours),
    ("signal", _signal),
    ("result", _result),
    ("trouble", _trouble),
    ("http", _http),
    ("denied", _denied),
    ("early", _early),
    ("zero", _zero),
    ("code", _code),
)


def verdict(evidence: Sequence[Evidence], rules: ExitRules) -> WorkerStatus:
    """Return the verdict on a worker; its evidence must hold an `Exited`."""
    end = _End(evidence, rules)
    for name, rule in RULES:
        status = rule(end)
        if status is not None:
            flags = status.flags | {BACKGROUND} if end.left_behind else status.flags
            if end.cut_short and status.state is WorkerState.COMPLETED:
                flags |= {UNVERIFIED}
            more = f"it still ran {end.cut_short}, which ended with it" if end.cut_short else ""
            about = "; ".join(filter(None, (status.about, more)))
            return replace(status, rule=f"exit-{name}", since=end.exited.at, flags=flags, about=about)
    raise AssertionError("the last rule knows every exit code")
