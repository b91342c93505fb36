"""Whether a worker makes progress: from samples over time to a reason to call it stuck. Pure module.

Three signals, from the weakest evidence of life to the strongest: the *process* exists; there is *activity*,
as the supervisor judges it; there is *progress*: files of the workspace changed, another note or plan step, a
tool call that was not made lately. Output alone is not progress: a loop produces output as well. A reason is
a hint for people, and no worker is ended because of it.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agents.catalog.output import WINDOW
from holdfast.agents.evidence.evidence import WorkerState

LOOK_S: Final = 20.0  # between two looks: each walks through a workspace
STILL_S: Final = 5 * 60.0  # a CLI that has waited for this long has nothing that will answer it
LOOP_CALLS: Final = 12  # the same call again: a retry or a poll is seldom tried so often
LOOP_S: Final = 5 * 60.0  # and in this time a healthy worker would have done something else
FEW: Final = 3  # different calls among the newest: edit, build, test, over and over
NOTHING_S: Final = 30 * 60.0  # long builds and long thoughts are shorter

_STILL: Final = frozenset({WorkerState.WAITING, WorkerState.BLOCKED, WorkerState.STALLED})
_BEFORE: Final = "before"  # the kind of a reason that was recorded by an earlier dispatcher


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
    """The worker's tool calls, as agents/catalog/output.py counts them."""

    fresh: int
    in_a_row: int
    last: str
    recent: int
    different: int


@dataclass(frozen=True, slots=True)
class LivenessSample:
    """A worker at one moment. `calls` is None if they cannot be seen, `files` if there are too many."""

    at: float
    state: WorkerState
    state_s: float  # for how long
    about: str = ""
    calls: CallCounts | None = None
    files: tuple[int, ...] | None = None
    note: str = ""
    asks: bool = False  # one of its connections waits for a decision about a host


class LivenessWatch:
    """The watch of one run. `stuck` is a reason recorded earlier: it stands until there is progress."""

    def __init__(self, limits: LivenessLimits, *, stuck: str = "") -> None:
        self._limits = limits
        self._began = self._progress_at = 0.0
        self._last: LivenessSample | None = None
        self._kind, self._reason = _BEFORE if stuck else "", stuck

    def look(self, look: LivenessSample) -> str:
        """Why it looks stuck; empty while it does not. The text stays the same while the cause does."""
        if self._last is None or self._last.state is WorkerState.STARTING:
            self._began = self._progress_at = look.at
        elif look.asks or self._last.asks or _has_progressed(self._last, look):
            self._progress_at = look.at  # time spent waiting for a person does not count
        self._last = look
        kind, reason = self._judge(look)
        if kind != self._kind and (kind or not self._is_as_before(look)):
            self._kind, self._reason = kind, reason
        return self._reason

    def _is_as_before(self, look: LivenessSample) -> bool:
        """Whether to keep the earlier reason: our clocks are new, so for a while only progress clears it."""
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
    """A duration in s, min or h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
