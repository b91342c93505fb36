"""What holds a worker up: a missing answer, or an obstacle outside model and user. Pure module.

On the screen and in the title, wants outrank work, because a dialog may stand beside a spinner. Only the
bottom of the screen counts, where a program talks to its user; above it, an agent may write about dialogs. Of
a title only the fixed beginning counts, because the rest may be words of the model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from holdfast.agents.evidence.digest import Digest
from holdfast.agents.evidence.evidence import (
    MAX_SEEN,
    Answered,
    Claim,
    Denied,
    Evidence,
    Failure,
    Foreseen,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Result,
    Retrying,
    Source,
    Trouble,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.verdict import denial_words

DENIALS: Final = 3  # two can be a probe and its retry
DENIALS_S: Final = 10.0  # a loop retries every second or faster
# As in projects.json.ed94832e-60ff-4ed7-beaf-71264bd67d46.tmp: a UUID, a process number, or a timestamp.
_TEMPORARY: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=[.-])\d{3,}(?=[.-]|$)")

SHOWN: Final = (Source.SCREEN, Source.STABILITY)  # sources that read what a terminal displays

MAX_SHOWN: Final = 5  # items of evidence in a status, which is written on every change
BOTTOM_LINES: Final = 20  # non-empty lines: the tallest dialog that was recorded has 14
STABLE_S: Final = 2.0  # unchanged for so long means waiting: correct in 93 of 95 measured cases

_UNKNOWN: Final = "a dialog that is not known"
_FRAME: Final = " \t│┃║|╭╮╰╯─⬝■"  # frames, and animated characters at the beginning of a line
# A dialog without a sign, after an update for example: a marked choice, or keys that confirm one.
_UNKNOWN_DIALOG: Final = (
    re.compile("^[\\s│┃║|]*[\u203a\u276f\u25cf\u25b6\u2192]\\s*[1-9][.)]\\s+\\S", re.MULTILINE),
    re.compile(r"\benter\b(?: to)? (?:confirm|continue|select)\b", re.IGNORECASE),
)


def asks(item: Evidence) -> bool:
    """Return whether it wants something other than its next prompt."""
    return isinstance(item.claim, Wants) and item.claim.want is not Want.PROMPT


def rests(item: Evidence) -> bool:
    """Return whether it says that the worker has nothing to do until it gets a prompt."""
    return isinstance(item.claim, Idle | Result) or (isinstance(item.claim, Wants) and not asks(item))


def takes_text(item: Evidence) -> bool:
    """Return whether it says that text can be typed."""
    return isinstance(item.claim, Wants) and item.claim.want in (Want.PROMPT, Want.QUESTION)


def shows_work(item: Evidence) -> bool:
    """Return whether it says that the worker began something: work, or a question that results from it."""
    if item.source in (Source.STABILITY, Source.CLOCK, Source.TEXT):
        return False
    return isinstance(item.claim, Working | Progress | Retrying | Result) or asks(item)


def find_failed_turn(digest: Digest) -> Evidence | None:
    """Return what the screen says about a failed turn, if that report is valid."""
    for item in map(digest.items.__getitem__, digest.live):
        if item.source is Source.SCREEN and isinstance(item.claim, Wants) and not asks(item):
            return item if item.claim.question else None
    return None


def blame(digest: Digest, failure: Failure | None) -> Failure | None:
    """Return the cause of a failed request: an unresolved name outranks the words of a gateway.

    The gateway that makes the worker's connections answers in place of a provider that it cannot reach.
    """
    if failure is not Failure.PROVIDER:
        return failure
    unknown = [
        index
        for index in digest.of(Trouble)
        if digest.items[index].source is Source.DENIAL and _is_network(digest.items[index])
    ]
    return Failure.NETWORK if unknown and unknown[-1] > digest.output else failure


def waiting(digest: Digest, item: Evidence, since: float) -> WorkerStatus:
    """Return the status of waiting for what this item says."""
    want, about = Want.PROMPT, item.seen
    failure: Failure | None = None
    match item.claim:
        case Wants() as asked:
            want, about, failure = asked.want, asked.question or item.seen, asked.failure
        case Result(ok=False) as result:
            failure = result.failure
            about = f"its last turn failed: {result.failure or result.http or 'no reason given'}"
        case _:
            pass
    failure = blame(digest, failure)
    return WorkerStatus(WorkerState.WAITING, want, about, failure, since=since, evidence=shown(digest, item))


def shown(digest: Digest, *deciding: Evidence) -> tuple[Evidence, ...]:
    """Return the deciding items, then the other valid reports."""
    others = [item for item in map(digest.items.__getitem__, digest.live) if item not in deciding]
    return (*deciding, *others)[:MAX_SHOWN]


def stopped(digest: Digest) -> WorkerStatus | None:
    """A stopped process does nothing, whatever it reported before it was stopped."""
    for index in digest.reports.values():
        item = digest.items[index]
        held = isinstance(item.claim, Obstructed) and item.claim.obstacle is Obstacle.STOPPED
        # A stopped command may remain in the background; then the worker itself was seen to continue.
        begin = digest.since(index) if item.source is Source.CHILDREN else item.at
        if held and index > digest.advance and begin >= digest.advanced_at:
            return _obstruction(digest, index)
    return None


def request(digest: Digest) -> WorkerStatus | None:
    """A structured request without an answer."""
    unanswered = open_requests(digest)
    if not unanswered:
        return None
    status = waiting(digest, unanswered[0], unanswered[0].at)
    more = len(unanswered) - 1
    return replace(status, about=f"{status.about} (and {more} more)") if more else status


def open_requests(digest: Digest) -> list[Evidence]:
    """Return structured requests without an answer, oldest first.

    Other tools may go on meanwhile; the model does not. So a request is closed if the model went on.
    """
    open_: dict[str, tuple[int, Evidence]] = {}
    for index in digest.of(Wants):
        item = digest.items[index]
        if isinstance(item.claim, Wants) and item.claim.request and _is_structured(item):
            open_.setdefault(item.claim.request, (index, item))
    for index in digest.of(Answered):
        claim = digest.items[index].claim
        if isinstance(claim, Answered) and open_.get(claim.request, (index,))[0] < index:
            del open_[claim.request]
    resumed = _model_went_on(digest) if open_ else -1
    # A connection keeps waiting for its answer whatever the model does meanwhile.
    return [item for index, item in open_.values() if index > resumed or _is_about_network(item)]


def _is_structured(item: Evidence) -> bool:
    return item.source is Source.PROTOCOL or _is_about_network(item)


def _is_about_network(item: Evidence) -> bool:
    return isinstance(item.claim, Wants) and item.claim.want is Want.NETWORK


def _model_went_on(digest: Digest) -> int:
    for index in reversed(range(len(digest.items))):
        item = digest.items[index]
        if item.source is Source.PROTOCOL:
            match item.claim:
                case Result():
                    return index
                case Progress(work=work) | Working(work=work) if work is not Work.TOOL:
                    return index
                case _:
                    pass
    return -1


def denied_again(digest: Digest) -> WorkerStatus | None:
    """The sandbox refuses the same path repeatedly, and nothing else happens."""
    if _waits_by_its_own_word(digest) or _shows_its_prompt(digest):
        return None  # failing writes do not hold it up while it waits
    loops = [loop for denials in _denials_by_path(digest).values() if (loop := _loop(digest, denials))]
    if not loops:
        return None
    first, last = max(loops, key=lambda loop: loop[1])
    over = digest.age(last) > DENIALS_S
    if over and any(index > last for index in digest.live):
        return None  # it gave up on that path and went on
    return _denial(digest, last, since=digest.items[first].at)


def _denials_by_path(digest: Digest) -> dict[str, list[int]]:
    """Return denials since it last advanced, newest first, by path.

    Temporary names differ at each attempt, so they are replaced by a pattern.
    """
    found: dict[str, list[int]] = {}
    for index in reversed(digest.of(Denied)):
        if index <= digest.advance:
            break
        claim = digest.items[index].claim
        if isinstance(claim, Denied) and claim.counts:
            found.setdefault(_TEMPORARY.sub("*", claim.path), []).append(index)
    return found


def _loop(digest: Digest, denials: Sequence[int]) -> tuple[int, int] | None:
    """Return the first and last of the newest run of enough denials within DENIALS_S."""
    counted, newest = 0, 0
    for place, index in enumerate(denials):
        counted += _count(digest, index)
        while digest.items[denials[newest]].at - digest.items[index].at > DENIALS_S:
            counted -= _count(digest, denials[newest])
            newest += 1
        if counted >= DENIALS:
            return denials[place], denials[0]
    return None


def _count(digest: Digest, index: int) -> int:
    claim = digest.items[index].claim
    return claim.count if isinstance(claim, Denied) else 0


def cut_off(digest: Digest) -> WorkerStatus | None:
    """A refused connection, followed by the worker's own report that it has no network."""
    refused = _list_refused_connections(digest)
    if not refused or _waits_by_its_own_word(digest):
        return None
    complaints = [i for kind in (Trouble, Retrying) for i in digest.of(kind) if _is_network(digest.items[i])]
    if not complaints or max(complaints) < refused[0]:
        return None
    return _denial(digest, refused[-1], digest.items[max(complaints)], since=digest.items[refused[0]].at)


def unreachable(digest: Digest) -> WorkerStatus | None:
    """For a worker that shows nothing: a connection that was refused since it last advanced."""
    refused = _list_refused_connections(digest)
    return _denial(digest, refused[-1], since=digest.items[refused[0]].at) if refused else None


def obstructed(digest: Digest) -> WorkerStatus | None:
    """A lock held by another process, or a sandbox without a network, seen later than any sign of work."""
    for index in digest.live:
        if isinstance(digest.items[index].claim, Obstructed) and index > digest.advance:
            return None if _waits_by_its_own_word(digest) else _obstruction(digest, index)
    return None


def proof(digest: Digest) -> WorkerStatus | None:
    """The kernel shows what it waits for, later than its own report that it works."""
    voice = digest.voice()
    if voice is None or isinstance(voice.claim, Wants):
        return None
    for index in digest.live:
        item = digest.items[index]
        if item.source in (Source.SYSCALL, Source.TTY) and asks(item):
            return waiting(digest, item, digest.since(index))
    return None


def wants(digest: Digest) -> WorkerStatus | None:
    """The strongest valid report is a question; or it says that it rests, and its screen shows a question.

    An unknown dialog does not outweigh what the kernel shows.
    """
    voice = digest.voice()
    if voice is None or (voice.source in SHOWN and digest.unread() is not None):
        return None
    if asks(voice):
        return waiting(digest, voice, digest.since(digest.live[0]))
    for index in digest.live if rests(voice) else ():
        item = digest.items[index]
        guessed = voice.source is Source.SYSCALL and is_unknown_dialog(item)
        if item.source is Source.SCREEN and asks(item) and not guessed and digest.unread() is None:
            return waiting(digest, item, digest.since(index))
    return None


def _waits_by_its_own_word(digest: Digest) -> bool:
    voice = digest.voice()
    return voice is not None and voice.source <= Source.ESCAPE and (asks(voice) or rests(voice))


def _shows_its_prompt(digest: Digest) -> bool:
    """Return whether its screen accepts text and no stronger evidence contradicts that."""
    voice, index = digest.voice(), digest.reports.get(Source.SCREEN, -1)
    return voice is not None and rests(voice) and index in digest.live and takes_text(digest.items[index])


def _obstruction(digest: Digest, index: int) -> WorkerStatus:
    item = digest.items[index]
    detail, about = ("", "")
    if isinstance(item.claim, Obstructed):
        detail, about = item.claim.obstacle, item.claim.detail
    return WorkerStatus(
        WorkerState.BLOCKED,
        detail,
        about or item.seen,
        since=digest.since(index),
        evidence=shown(digest, item),
    )


def _denial(digest: Digest, index: int, *others: Evidence, since: float) -> WorkerStatus:
    item = digest.items[index]
    network = _is_connect(item)
    about = denial_words(item.claim) if isinstance(item.claim, Denied | Foreseen) else item.seen
    detail = Obstacle.SANDBOX_NETWORK if network else Obstacle.SANDBOX_PATH
    return WorkerStatus(
        WorkerState.BLOCKED, detail, about, since=since, evidence=shown(digest, item, *others)
    )


def _list_refused_connections(digest: Digest) -> list[int]:
    """Return refusals since it last advanced, including the provider if a probe was refused it."""
    kinds = sorted(digest.of(Denied) + digest.of(Foreseen))
    return [i for i in kinds if i > digest.advance and _is_connect(digest.items[i])]


def _is_connect(item: Evidence) -> bool:
    claim = item.claim
    aside = isinstance(claim, Denied) and claim.aside
    return isinstance(claim, Denied | Foreseen) and claim.access == "connect" and not aside


def _is_network(item: Evidence) -> bool:
    """Return whether it reports a network problem. An attempt after no answer at all counts as one."""
    match item.claim:
        case Retrying(failure=None, http=None):
            return True
        case Trouble(failure=failure) | Retrying(failure=failure):
            return failure is Failure.NETWORK
        case _:
            return False


@dataclass(frozen=True, slots=True)
class WantSign:
    """A pattern at the bottom of the screen that means that the worker wants something."""

    pattern: re.Pattern[str]
    want: Want


@dataclass(frozen=True, slots=True)
class BusySign:
    """A pattern at the bottom of the screen that means that the worker works."""

    pattern: re.Pattern[str]
    work: Work


class Signs(Protocol):
    """The signs on a CLI's screen; the records of the catalogue implement this."""

    @property
    def wants(self) -> Sequence[WantSign]: ...
    @property
    def busy(self) -> Sequence[BusySign]: ...
    @property
    def ready(self) -> Sequence[re.Pattern[str]]: ...  # it accepts a prompt, if it wants nothing else
    @property
    def titles(self) -> Sequence[tuple[str, Claim]]: ...  # the title's beginning → what it means


def read_title(title: str, signs: Signs, at: float) -> Evidence | None:
    """Return the evidence in the title, if it has a known beginning."""
    for prefix, claim in signs.titles:
        if title.startswith(prefix):
            return Evidence(Source.TITLE, at, claim, title[:MAX_SEEN])
    return None


def read_screen(lines: Sequence[str], signs: Signs, at: float) -> Evidence | None:
    """Return the evidence at the bottom of the screen: a want, else work, an unknown dialog, or readiness."""
    text = bottom(lines)
    for want in signs.wants:
        if (found := want.pattern.search(text)) is not None:
            line = _line_of(text, found)
            return Evidence(Source.SCREEN, at, Wants(want.want, question=line), line)
    for busy in signs.busy:
        if (found := busy.pattern.search(text)) is not None:
            return Evidence(Source.SCREEN, at, Working(busy.work), _line_of(text, found))
    for pattern in _UNKNOWN_DIALOG:
        if (found := pattern.search(text)) is not None:
            return Evidence(Source.SCREEN, at, Wants(Want.DECISION), f"{_UNKNOWN}: {_line_of(text, found)}")
    for pattern in signs.ready:
        if (found := pattern.search(text)) is not None:
            return Evidence(Source.SCREEN, at, Wants(Want.PROMPT), _line_of(text, found))
    return None


def is_unknown_dialog(evidence: Evidence) -> bool:
    """Return whether it wants an unknown decision, for which no key is known to be safe."""
    return evidence.source is Source.SCREEN and evidence.seen.startswith(_UNKNOWN)


def read_stability(changed_at: float, at: float) -> Evidence | None:
    """A changing screen means work; one unchanged for STABLE_S means waiting; in between, nothing."""
    if changed_at >= at:
        return Evidence(Source.STABILITY, at, Progress(Work.STREAMING), "the screen changed")
    if at - changed_at >= STABLE_S:
        return Evidence(Source.STABILITY, at, Idle(since=changed_at), "the screen does not change")
    return None


def bottom(lines: Sequence[str]) -> str:
    """Return the last non-empty lines, as one text."""
    return "\n".join([line for line in lines if line.strip(_FRAME)][-BOTTOM_LINES:])


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.start())
    return text[start : len(text) if end < 0 else end].strip(_FRAME)[:MAX_SEEN]
