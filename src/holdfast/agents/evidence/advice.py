"""Advice for a user with a worker that does not work: what it got of the user's files, what was refused, and
which options to add so that it is not refused again. Pure module.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from holdfast.agents.evidence.evidence import Denied, Foreseen, WorkerState
from holdfast.agents.evidence.verdict import denial_words

Refused: TypeAlias = Denied | Foreseen

MAX_DENIALS: Final = 5  # denials listed; the combined grant covers all
COMPARED: Final = 1  # schema version of a comparison with the host
_TROUBLED: Final = (WorkerState.FAILED, WorkerState.BLOCKED, WorkerState.STALLED)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts about one worker that the advice depends on."""

    worker: str
    state: str  # where its CLI keeps its state; empty for the usual place
    keeps_state: bool  # whether its CLI keeps any state
    given: Sequence[str]
    denials: Sequence[Refused]  # refused calls, and what a probe was refused
    confined: bool
    traced: bool
    notes: Sequence[str] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the comparison. `matters` means that it is relevant to this CLI."""

    group: str
    field: str
    host: str
    worker: str
    verdict: str
    consequence: str | None = None
    matters: bool = False


class EquivalenceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer, the reason, and everything that was compared, with the relevant rows first."""

    id: str
    agent: str
    host_equivalent: str
    why: str
    supervision: list[str] = []
    rows: list[Difference] = []
    schema_version: int = COMPARED


def advise(status: WorkerState, about: Surroundings) -> list[str]:
    """Return the lines to print after the reason of a status."""
    lines = list(about.notes)
    if about.keeps_state and about.state:
        lines.append(f"its state is relocated: its CLI keeps it in {about.state}, not in the home")
        lines += [f"  of its user's: {line}" for line in about.given]
        if not about.given:
            lines.append("  of its user's: nothing")
    elif about.keeps_state:
        lines.append("its state is not relocated: its CLI keeps it in the home, as far as that is writable")
    if status not in _TROUBLED:
        return lines
    denials = [denied for denied in about.denials if not isinstance(denied, Denied) or denied.counts]
    lines += [f"refused: {denial_words(denied)}" for denied in denials[:MAX_DENIALS]]
    if grant := combine_grants(denials):
        lines.append(f"one grant that is enough for all of it: {grant}")
    if not about.state and any(denied.relocation for denied in denials):
        lines.append("or let its state be relocated: leave out --no-relocate")
    if about.confined and not any(isinstance(denied, Denied) for denied in denials) and not about.traced:
        lines.append("no refusal was seen; those of reading are seen with --trace")
    return [*lines, f"what is different from a terminal: holdfast worker equivalence {about.worker}"]


def combine_grants(denials: Sequence[Refused]) -> str:
    """Return the options that allow everything that was refused, without duplicates or nested paths."""
    wanted: dict[str, list[str]] = {}
    for denied in denials:
        match shlex.split(denied.grant):
            case [option, value]:
                wanted.setdefault(option, []).append(value)
    return " ".join(
        f"{option} {shlex.quote(value)}"
        for option, values in sorted(wanted.items())
        for value in sorted(set(values))
        if not any(value.startswith(f"{other.rstrip('/')}/") for other in values)
    )
