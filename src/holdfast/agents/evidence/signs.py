"""What the screen and the title of a worker say, read with the signs of its CLI. Pure module.

Wants first, then work: a dialog may stand beside a spinner. Only the bottom of the screen counts, where a
program talks to its user; above it an agent may be writing about dialogs. Of a title only the fixed beginning
counts: the rest may be the model's words.
"""

import re
from collections.abc import Sequence
from typing import Final, Protocol

from holdfast.agents.evidence.evidence import (
    MAX_SEEN,
    Claim,
    Evidence,
    Idle,
    Progress,
    Source,
    Want,
    Wants,
    Work,
    Working,
)

BOTTOM_LINES: Final = 20  # lines with something on them: the tallest dialog that was recorded has 14
STABLE_S: Final = 2.0  # unchanged for so long means waiting: right in 93 of 95 measured cases

_UNKNOWN: Final = "a dialog that is not known"
_FRAME: Final = " \t│┃║|╭╮╰╯─"
# A dialog that no sign describes, after an update for example: a marked choice, or keys that confirm one.
_UNKNOWN_DIALOG: Final = (
    re.compile("^[\\s│┃║|]*[\u203a\u276f\u25cf\u25b6\u2192]\\s*[1-9][.)]\\s+\\S", re.MULTILINE),
    re.compile(r"\benter\b(?: to)? (?:confirm|continue|select)\b", re.IGNORECASE),
)


class WantSign(Protocol):
    """A pattern on the bottom of the screen that means: it wants something."""

    @property
    def pattern(self) -> re.Pattern[str]: ...
    @property
    def want(self) -> Want: ...


class BusySign(Protocol):
    """A pattern on the bottom of the screen that means: it is at work."""

    @property
    def pattern(self) -> re.Pattern[str]: ...
    @property
    def work(self) -> Work: ...


class Signs(Protocol):
    """What is known of a CLI's screen; the records of the catalogue are such."""

    @property
    def wants(self) -> Sequence[WantSign]: ...
    @property
    def busy(self) -> Sequence[BusySign]: ...
    @property
    def ready(self) -> Sequence[re.Pattern[str]]: ...  # it takes a prompt, if it wants nothing else
    @property
    def titles(self) -> Sequence[tuple[str, Claim]]: ...  # the title's beginning → what it means


def read_title(title: str, signs: Signs, at: float) -> Evidence | None:
    """What the title says, if it begins as one that says something."""
    for prefix, claim in signs.titles:
        if title.startswith(prefix):
            return Evidence(Source.TITLE, at, claim, title[:MAX_SEEN])
    return None


def read_screen(lines: Sequence[str], signs: Signs, at: float) -> Evidence | None:
    """What the bottom of the screen says: a want, else work, else an unknown dialog, else readiness."""
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
    """It wants a decision, and nobody knows which: no key is safe."""
    return evidence.source is Source.SCREEN and evidence.seen.startswith(_UNKNOWN)


def read_stability(changed_at: float, at: float) -> Evidence | None:
    """A screen that changes means work, one that has not for a while that it waits; in between nothing."""
    if changed_at >= at:
        return Evidence(Source.STABILITY, at, Progress(Work.STREAMING), "the screen changed")
    if at - changed_at >= STABLE_S:
        return Evidence(Source.STABILITY, at, Idle(since=changed_at), "the screen does not change")
    return None


def bottom(lines: Sequence[str]) -> str:
    """The last lines that have something on them, as one text."""
    return "\n".join([line for line in lines if line.strip(_FRAME)][-BOTTOM_LINES:])


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.start())
    return text[start : len(text) if end < 0 else end].strip(_FRAME)[:MAX_SEEN]
