"""What the screen of a CLI says: its signs, another attempt, and that its last turn failed. Pure module.

A turn that failed ends as one that succeeded does, at the prompt. That it failed stands above it, as the last
thing that was said; what stands further up was of an earlier turn.
"""

import re
from collections.abc import Sequence
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.output import Attempts
from holdfast.agents.evidence.evidence import MAX_SEEN, Evidence, Retrying, Source, Want, Wants
from holdfast.agents.evidence.holdups import bottom, read_screen

MAX_LATER: Final = 12  # lines with something on them below the failure: those around an input line
_AGAIN: Final = re.compile(r"\bKeep trying\b")  # a choice that is offered after a failure
_FRAME: Final = " \t│┃║|╭╮╰╯─━▀▄╹█"
_BULLET: Final = re.compile("^[\\s│┃║|•◦●∙·\u2800-\u28ff■⬝✻✽✶✢✳✕✗⎿└*!⚠\ufe0f]+")


def read_terminal(lines: Sequence[str], agent: Agent, at: float) -> list[Evidence]:
    """All that it says, the strongest last: an attempt stands beside the sign of work."""
    found = read_screen(lines, agent, at)
    items = [] if found is None else [_add_failure(found, lines, agent)]
    attempt = None if _rests(found) else read_attempt(lines, agent, at)
    return [*items, *([attempt] if attempt is not None else [])]


def read_attempt(lines: Sequence[str], agent: Agent, at: float) -> Evidence | None:
    """Another attempt that it shows. A screen shows one many times: its number tells it from the next."""
    for line in reversed(bottom(lines).splitlines()):
        said = _BULLET.sub("", line).rstrip(_FRAME)
        claim = Attempts(agent.shown_retries).read(said, at)
        if isinstance(claim, Retrying):
            return Evidence(Source.SCREEN, at, claim, said[:MAX_SEEN])
    return None


def read_failed_turn(lines: Sequence[str], agent: Agent) -> str:
    """Why its last turn failed, in its own words; empty when it did not."""
    text = "\n".join(lines)
    for pattern in agent.failures:
        found = list(pattern.finditer(text))
        if not found:
            continue
        last = found[-1]
        below = [line for line in text[last.end() :].splitlines()[1:] if line.strip(_FRAME)]
        if len(below) <= MAX_LATER and not any(said.search(line) for said in agent.said for line in below):
            return " ".join(last["message"].replace("┃", " ").split())[:MAX_SEEN]
    return ""


def _rests(found: Evidence | None) -> bool:
    return found is not None and isinstance(found.claim, Wants) and found.claim.want is Want.PROMPT


def _add_failure(found: Evidence, lines: Sequence[str], agent: Agent) -> Evidence:
    again = isinstance(found.claim, Wants) and _AGAIN.search(found.seen) is not None
    words = read_failed_turn(lines, agent) if again or _rests(found) else ""
    trouble = of_message(words) if words else None
    if not words:
        return found
    failure = None if trouble is None else trouble.failure
    want = Want.DECISION if again else Want.PROMPT
    claim = Wants(want, question=f"its last turn failed: {words}"[:MAX_SEEN], failure=failure)
    return Evidence(found.source, found.at, claim, found.seen)
