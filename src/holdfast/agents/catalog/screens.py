"""Reads the screen of a CLI: its signs, another attempt, and a failed last turn. Pure module.

A failed turn ends at the prompt, just like a successful one. The failure is shown above the prompt as the
last message; a failure further up belongs to an earlier turn.
"""

import re
from collections.abc import Sequence
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.output import Attempts
from holdfast.agents.evidence.evidence import MAX_SEEN, Evidence, Retrying, Source, Want, Wants
from holdfast.agents.evidence.holdups import bottom, read_screen

MAX_LATER: Final = 12  # non-empty lines below the failure: those around an input line
_AGAIN: Final = re.compile(r"\bKeep trying\b")  # a choice that is offered after a failure
_FRAME: Final = " \t│┃║|╭╮╰╯─━▀▄╹█"
_BULLET: Final = re.compile("^[\\s│┃║|•◦●∙·\u2800-\u28ff■⬝✻✽✶✢✳✕✗⎿└*!⚠\ufe0f]+")


def read_terminal(lines: Sequence[str], agent: Agent, at: float) -> list[Evidence]:
    """Return all evidence on the screen, strongest last: an attempt appears beside the sign of work."""
    found = read_screen(lines, agent, at)
    items = [] if found is None else [_add_failure(found, lines, agent)]
    attempt = None if _rests(found) else read_attempt(lines, agent, at)
    return [*items, *([attempt] if attempt is not None else [])]


def read_attempt(lines: Sequence[str], agent: Agent, at: float) -> Evidence | None:
    """Return the attempt on the screen, if any. A screen shows one many times; its number identifies it."""
    for line in reversed(bottom(lines).splitlines()):
        said = _BULLET.sub("", line).rstrip(_FRAME)
        claim = Attempts(agent.shown_retries).read(said, at)
        if isinstance(claim, Retrying):
            return Evidence(Source.SCREEN, at, claim, said[:MAX_SEEN])
    return None


def read_failed_turn(lines: Sequence[str], agent: Agent) -> str:
    """Return why the last turn failed, in the CLI's words; empty if it did not fail."""
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
