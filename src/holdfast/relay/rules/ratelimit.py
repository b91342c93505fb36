"""Rate limits. Pure module.

Each client has a bucket of `burst` requests that refills at `per_s`. There are at most MOST_BUCKETS. When
there are more, full buckets are dropped, which makes no difference for their clients, and then the oldest.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

MOST_BUCKETS: Final = 10_000  # some 2 MB; a client with more addresses than that gets fresh buckets


class Rate(NamedTuple):
    per_s: float
    burst: int


class RateLimit:
    def __init__(self, rate: Rate, *, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, and when it was set

    def take(self, who: str, now: float, *, count: int = 1) -> bool:
        """Return whether `who` may send `count` requests now; if so, they are deducted."""
        left = self._left(who, now)
        if left < count:
            return False
        self._buckets[who] = (left - count, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._forget(now)
        return True

    def has(self, who: str, now: float) -> bool:
        """Whether `who` could send a request now, without deducting it."""
        return self._left(who, now) >= 1

    def _left(self, who: str, now: float) -> float:
        left, since = self._buckets.get(who, (float(self._rate.burst), now))
        return min(float(self._rate.burst), left + max(0.0, now - since) * self._rate.per_s)

    def _forget(self, now: float) -> None:
        for who in [one for one in self._buckets if self._left(one, now) >= self._rate.burst]:
            del self._buckets[who]
        while len(self._buckets) > self._most * 3 // 4:  # not one by one: each pass looks at all of them
            self._buckets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._buckets)
