"""When to ask the registry or dial the relay again. Pure module.

Numbers are the reference's. `random` gives numbers in [0, 1).
"""

import enum
from collections.abc import Callable, Iterator
from typing import Final

DIAL_S: Final = 10.0  # for a relay to answer the upgrade
REQUEST_S: Final = 10.0  # for a registry to answer, whole
FIRST_REQUEST_S: Final = 6.0  # the same while retries are left
FIRST_BUDGET_S: Final = 14.0  # for all requests of a first connection together
FIRST_RETRIES: Final = 4
SETTLED_S: Final = 120.0  # a relay connection that lasted so long counts as stable

_REDIAL_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_REGISTER_S: Final = (1.0, 2.0, 4.0, 8.0)
_CONNECT_S: Final = (0.5, 1.0, 2.0, 4.0, 5.0)


class Redial:
    """Delays of an executor: each is half to all of a step; the steps grow until a connection has lasted."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._step = 0

    def after(self, lasted_s: float) -> float:
        """Return how long to wait after a connection that lasted so long, 0 if there was none."""
        if lasted_s >= SETTLED_S:
            self._step = 0
        longest = _REDIAL_S[min(self._step, len(_REDIAL_S) - 1)]
        self._step += 1
        return longest * (1 - self._random() / 2)


class HostRedial:
    """Delays of an executor that dials its host: steps grow only while there is no connection at all."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def after(self, lasted_s: float) -> float:
        if lasted_s > 0:
            self._failures = 0
        delay = connect_delay(self._failures, self._random)
        self._failures += 1
        return delay


class AfterRefusal(enum.Enum):
    """What an executor does after an upgrade that was refused."""

    REDIAL = enum.auto()  # the same address, later
    REGISTER = enum.auto()  # for another address, at once
    GIVE_UP = enum.auto()


def after_relay(status: int) -> AfterRefusal:
    """Interpret a relay's refusal: any 4xx means that the address has expired."""
    return AfterRefusal.REGISTER if 400 <= status < 500 else AfterRefusal.REDIAL


def after_host(status: int) -> AfterRefusal:
    """Interpret a host's refusal: 409 means register again, 408 and 429 pass, any other 4xx is final."""
    if status == 409:
        return AfterRefusal.REGISTER
    return AfterRefusal.GIVE_UP if 400 <= status < 500 and status not in (408, 429) else AfterRefusal.REDIAL


def registering(random: Callable[[], float]) -> Iterator[float]:
    """Yield delays between registrations while the registry cannot authenticate."""
    for step in _REGISTER_S:
        yield step * (1 - random() / 2)
    while True:
        yield _REGISTER_S[-1] * (1 - random() / 2)


def connect_delay(attempt: int, random: Callable[[], float]) -> float:
    """The delay before a client's retry of this number, from 0: growing to 5 s, plus up to half."""
    return _CONNECT_S[min(attempt, len(_CONNECT_S) - 1)] * (1 + random() / 2)


class FirstContact:
    """A client's requests for its first connection: few, and together not longer than FIRST_BUDGET_S."""

    def __init__(self, now: float, random: Callable[[], float]) -> None:
        self._deadline = now + FIRST_BUDGET_S
        self._random = random
        self._retries = 0

    def allowance(self, now: float) -> float:
        """Return how long the next request may take."""
        return max(0.0, min(FIRST_REQUEST_S, self._deadline - now))

    def retry_in(self, now: float) -> float | None:
        """Return how long to wait before another request; None: the last failure is the result."""
        if self._retries >= FIRST_RETRIES:
            return None
        delay = connect_delay(self._retries, self._random)
        self._retries += 1
        return delay if now + delay < self._deadline else None
