"""Which workers that have ended are kept no longer. Pure module.

A worker leaves its output, its evidence and its CLI's state behind, which is megabytes of each. The oldest
go first: those that ended long ago, and of the others as many as make what is left fit.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

KEPT_S: Final = 14 * 24 * 3600.0  # long enough to look at after a holiday
KEPT_BYTES: Final = 1 << 30  # of all that have ended
SPARED_S: Final = 3600.0  # after its end nothing goes for its size: somebody may still look at it


class EndedWorker(NamedTuple):
    """What is left of one."""

    id: str
    ended_at: float
    size: int


def choose_oldest(
    ended: Iterable[EndedWorker], now: float, *, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES
) -> list[EndedWorker]:
    """Those to be removed, the oldest first."""
    by_age = sorted(ended, key=lambda one: (one.ended_at, one.id))
    left = sum(one.size for one in by_age)
    gone = []
    for one in by_age:
        age = now - one.ended_at
        if age >= kept_s or (left > kept_bytes and age >= SPARED_S):
            gone.append(one)
            left -= one.size
    return gone
