"""Whether a worker gets anywhere: looks at it over time in, a reason to call it stuck out. Pure module.

Three signals, each weaker evidence of life than the next: the *process* is there; there is *activity*, as the
supervisor judges it; there is *progress*: files of the workspace changed, another note or plan step, a tool
call that was not made lately. Output alone is no progress: a loop talks as well. A reason is a hint for
people, and nothing is ended for it.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agents.catalog.output import WINDOW
from holdfast.agents.evidence.evidence import WorkerState

LOOK_S: Final = 20.0  # between two looks: each walks through a workspace
STILL_S: Final = 5 * 60.0  # a CLI that waits for somebody or something for so long has nobody to wait for
LOOP_CALLS: Final = 12  # the same again: a retry or a poll is seldom tried so often
LOOP_S: Final = 5 * 60.0  # and in this time something else would have come of it
FEW: Final = 3  # different calls among the newest: edit, build, test, over and over
NOTHING_S: Final = 30 * 60.0  # long builds and long thoughts are shorter

_STILL: Final = frozenset({WorkerState.WAITING, WorkerState.BLOCKED, WorkerState.STALLED})
_BEFORE: Final = "before"  # the kind of a reason that somebody gave who looked before us


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """When a worker looks stuck."""

    look_s: float = LOOK_S
    still_s: float = STILL_S
    loop_calls: int = LOOP_CALLS
    loop_s: float = LOOP_S
    nothing_s: float = NOTHING_S


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Its tool calls, as agents/calls.py counts them."""

    fresh: int
    in_a_row: int
    last: str
    recent: int
    different: int


@dataclass(frozen=True, slots=True)
class LivenessSample:
    """At one moment. `calls` is None where they cannot be seen, `files` where there are too many."""

    at: float
    state: WorkerState
    state_s: float  # for how long
    about: str = ""
    calls: CallCounts | None = None
    files: tuple[int, ...] | None = None
    note: str = ""
    asks: bool = False  # a connection of it waits until somebody has decided about a host


class LivenessWatch:
    """Of one run, once it takes part. `stuck` is a reason given before: it stands until something moves."""

    def __init__(self, limits: LivenessLimits, *, stuck: str = "") -> None:
        self._limits = limits
        self._began = self._progress_at = 0.0
        self._last: LivenessSample | None = None
        self._kind, self._reason = _BEFORE if stuck else "", stuck

    def look(self, look: LivenessSample) -> str:
        """Why it looks stuck; empty while it does not. The same cause keeps its words."""
        if self._last is None or self._last.state is WorkerState.STARTING:
            self._began = self._progress_at = look.at
        elif look.asks or self._last.asks or _has_progressed(self._last, look):
            self._progress_at = look.at  # what it waits for a person is no time of its own
        self._last = look
        kind, reason = self._judge(look)
        if kind != self._kind and (kind or not self._is_as_before(look)):
            self._kind, self._reason = kind, reason
        return self._reason

    def _is_as_before(self, look: LivenessSample) -> bool:
        """Our own clocks began when we did, so for a while only progress says that it moves again."""
        young = look.at - self._began < self._limits.nothing_s
        return self._kind == _BEFORE and young and self._progress_at == self._began

    def _judge(self, look: LivenessSample) -> tuple[str, str]:
        limits, calls = self._limits, look.calls
        if look.state.ended or look.asks:
            return "", ""
        if look.state in _STILL and look.state_s >= limits.still_s:
            about = f": {look.about}" if look.about else ""
            return look.state, f"{look.state} for {span(look.state_s)}{about}"
        quiet = look.at - self._progress_at
        since = f"nothing {'new' if look.files is None else 'changed'} for {span(quiet)}"
        if calls is not None and quiet >= limits.loop_s:
            if calls.in_a_row >= limits.loop_calls:
                return "loop", f"the same call {calls.in_a_row} times in a row ({calls.last}), {since}"
            if calls.recent >= WINDOW and calls.different <= FEW:
                return "circle", f"{calls.different} different calls among the last {calls.recent}, {since}"
        if quiet >= limits.nothing_s and not (calls is None and look.files is None):
            return "nothing", f"it is {look.state}, but {since}"
        return "", ""


def _has_progressed(before: LivenessSample, now: LivenessSample) -> bool:
    wrote = before.files is not None and now.files is not None and before.files != now.files
    said = bool(now.note) and before.note != now.note
    tried = now.calls is not None and (before.calls is None or before.calls.fresh != now.calls.fresh)
    return wrote or said or tried


def span(seconds: float) -> str:
    """As people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
