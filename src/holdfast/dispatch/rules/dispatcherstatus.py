"""What a dispatcher says of itself: counted as it happens, told when somebody asks. Pure module."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

SCHEMA: Final = 1
SAME_S: Final = 10.0  # for which a report that says nothing new is not written again
MAX_STARTS: Final = 500  # the newest, which say how long a start takes
MAX_ERROR: Final = 300  # characters


class DispatcherReport(msgspec.Struct, kw_only=True, rename="camel"):
    """Times are seconds since 1970 on this machine's clock; None is what has not happened yet."""

    schema: int = SCHEMA
    host: str
    pid: int
    boards: list[str]
    since: float
    at: float  # when this was written
    round_at: float | None = None  # when it last looked at the board and could do what was to be done
    runs: list[str] = []
    profiles: list[str] = []
    claims: int = 0
    leases_renewed: int = 0
    starts: int = 0
    start_p50_s: float | None = None  # from the claim until the worker runs, of the newest starts
    start_p95_s: float | None = None
    error: str = ""  # the newest, and when; it goes on after that
    error_at: float | None = None
    reloads: int = 0  # of worker-profiles.toml
    reload_error: str = ""  # why the file that is there now is not what holds, if it is not


class DispatcherStatus:
    """Of one dispatcher. `now` is seconds since 1970. What is only counted is counted in `so_far`."""

    def __init__(self, host: str, pid: int, boards: Sequence[str], now: float) -> None:
        self.so_far = DispatcherReport(host=host, pid=pid, boards=list(boards), since=now, at=now)
        self._took_s: deque[float] = deque(maxlen=MAX_STARTS)

    def count_start(self, took_s: float) -> None:
        self.so_far.starts += 1
        self._took_s.append(took_s)

    def note_error(self, words: str, now: float) -> None:
        self.so_far.error, self.so_far.error_at = words[:MAX_ERROR], now

    def note_reload(self, error: str = "") -> None:
        """The profiles were read again; a file that cannot be used changes nothing."""
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
    """Is it worth writing: something but the time differs, or it was long ago?

    That it looked at the board for the first time is no time: until then it said that it had not.
    """
    if before is None or not 0 <= now.at - before.at < SAME_S:
        return True
    if before.round_at is None and now.round_at is not None:
        return True
    same = msgspec.structs.replace(before, at=now.at, round_at=now.round_at)
    return same != now


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None
