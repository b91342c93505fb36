"""What a dispatcher says of itself: counted as it happens, told when somebody asks. Pure module."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

SCHEMA: Final = 1
MAX_STARTS: Final = 500  # the newest, which say how long a start takes
MAX_ERROR: Final = 300  # characters


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times are seconds since 1970 on this machine's clock; None is what has not happened yet."""

    schema: int = SCHEMA
    host: str
    pid: int
    boards: list[str]
    since: float
    at: float  # when this was written
    round_at: float | None  # when it last looked at the board and could do what was to be done
    runs: list[str]
    profiles: list[str]
    claims: int
    leases_renewed: int
    starts: int
    start_p50_s: float | None  # from the claim until the worker runs, of the newest starts
    start_p95_s: float | None
    error: str  # the newest, and when; it goes on after that
    error_at: float | None
    reloads: int  # of worker-profiles.toml
    reload_error: str  # why the file that is there now is not what holds, if it is not


class DispatcherStatus:
    """Of one dispatcher. `now` is seconds since 1970."""

    def __init__(self, host: str, pid: int, boards: Sequence[str], now: float) -> None:
        self._host = host
        self._pid = pid
        self._boards = list(boards)
        self._since = now
        self._round_at: float | None = None
        self._claims = self._renewed = self._starts = self._reloads = 0
        self._took_s: deque[float] = deque(maxlen=MAX_STARTS)
        self._error = ""
        self._error_at: float | None = None
        self._reload_error = ""

    def rounded(self, now: float) -> None:
        self._round_at = now

    def claimed(self) -> None:
        self._claims += 1

    def renewed(self) -> None:
        self._renewed += 1

    def started(self, took_s: float) -> None:
        self._starts += 1
        self._took_s.append(took_s)

    def erred(self, words: str, now: float) -> None:
        self._error, self._error_at = words[:MAX_ERROR], now

    def reloaded(self) -> None:
        self._reloads += 1
        self._reload_error = ""

    def kept_old(self, words: str) -> None:
        """A file that cannot be used changes nothing."""
        self._reload_error = words[:MAX_ERROR]

    def told(self, now: float, *, runs: Iterable[str], profiles: Iterable[str]) -> Told:
        return Told(
            host=self._host,
            pid=self._pid,
            boards=self._boards,
            since=self._since,
            at=now,
            round_at=self._round_at,
            runs=sorted(runs),
            profiles=sorted(profiles),
            claims=self._claims,
            leases_renewed=self._renewed,
            starts=self._starts,
            start_p50_s=quantile(self._took_s, 0.5),
            start_p95_s=quantile(self._took_s, 0.95),
            error=self._error,
            error_at=self._error_at,
            reloads=self._reloads,
            reload_error=self._reload_error,
        )


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None
