"""The status of a dispatcher: updated as things happen, reported on request. Pure module."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

SCHEMA: Final = 1
SAME_S: Final = 10.0  # after this a report is written again even if it says nothing new
MAX_STARTS: Final = 500  # the newest, used to report how long a start takes
MAX_ERROR: Final = 300  # characters


class DispatcherReport(msgspec.Struct, kw_only=True, rename="camel"):
    """Times are seconds since 1970 on this machine's clock; None means that it has not happened yet."""

    schema: int = SCHEMA
    host: str
    pid: int
    boards: list[str]
    since: float
    at: float  # when this was written
    round_at: float | None = None  # when it last looked at the board and completed the round
    runs: list[str] = []
    profiles: list[str] = []
    claims: int = 0
    leases_renewed: int = 0
    starts: int = 0
    start_p50_s: float | None = None  # from the claim until the worker runs, of the newest starts
    start_p95_s: float | None = None
    error: str = ""  # the newest, and when; the dispatcher goes on after it
    error_at: float | None = None
    reloads: int = 0  # of worker-profiles.toml
    reload_error: str = ""  # why the file that is there now is not in force; empty if it is


class DispatcherStatus:
    """The status of one dispatcher. `now` is seconds since 1970. Plain counters are fields of `so_far`."""

    def __init__(self, host: str, pid: int, boards: Sequence[str], now: float) -> None:
        self.so_far = DispatcherReport(host=host, pid=pid, boards=list(boards), since=now, at=now)
        self._took_s: deque[float] = deque(maxlen=MAX_STARTS)

    def count_start(self, took_s: float) -> None:
        self.so_far.starts += 1
        self._took_s.append(took_s)

    def note_error(self, words: str, now: float) -> None:
        self.so_far.error, self.so_far.error_at = words[:MAX_ERROR], now

    def note_reload(self, error: str = "") -> None:
        """Record that the profiles were read again; an unusable file counts as no reload."""
        self.so_far.reloads += not error
        self.so_far.reload_error = error[:MAX_ERROR]

    def report(self, now: float, *, runs: Iterable[str], profiles: Iterable[str]) -> DispatcherReport:
        return msgspec.structs.replace(
            self.so_far,
            at=now,
            runs=sorted(runs),
            profiles=sorted(profiles),
            start_p50_s=quantile(self._took_s, 0.5),
            start_p95_s=quantile(self._took_s, 0.95),
        )


def is_news(before: DispatcherReport | None, now: DispatcherReport) -> bool:
    """Whether the report is worth writing: something but the time differs, or the last write is long ago.

    The first look at the board counts as a difference, because the report showed that there had been none.
    """
    if before is None or not 0 <= now.at - before.at < SAME_S:
        return True
    if before.round_at is None and now.round_at is not None:
        return True
    same = msgspec.structs.replace(before, at=now.at, round_at=now.round_at)
    return same != now


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that is not exceeded by the given share of the values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None
