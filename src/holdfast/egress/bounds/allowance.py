"""Limits on the amount and the rate of traffic: total bytes, bytes and connections per second. Pure module.

A limit applies to the whole run, or to all hosts of one rule together: more names, ports or connections do
not increase it. Traffic that is too fast waits; traffic beyond the total is refused.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.egress.hosts import Host, HostRule, parse_rule
from holdfast.errors import UsageError
from holdfast.sandbox.policy.amounts import read_size

MAX_LIMITS: Final = 64
MAX_WAIT_S: Final = 3600.0  # at a rate at which a piece takes longer, the host counts as unreachable
_CONNECTIONS: Final = re.compile(r"([0-9]{1,6})conn/s")
_REMEDY: Final = "write 500M, 10M/s or 20conn/s, for one host as api.example.com=500M"


class LimitReached(OSError):
    """No more traffic is allowed; the text names the limit."""


@dataclass(frozen=True, slots=True)
class NetLimit:
    """At most `amount`, per second or in total; for the hosts of `rule`, or for the run."""

    text: str
    rule: HostRule | None
    kind: Literal["bytes", "rate", "connections"]
    amount: int


def parse_limit(text: str) -> NetLimit:
    """Parse a value of `--net-limit`.

    Raises:
        UsageError: it is invalid.
    """
    host, sign, amount = text.rpartition("=")
    rule = parse_rule(host, denies=True) if sign else None  # without a port it applies to every port
    connections = _CONNECTIONS.fullmatch(amount)
    try:
        if connections:
            kind: Literal["bytes", "rate", "connections"] = "connections"
            number = int(connections[1])
        else:
            kind = "rate" if amount.endswith("/s") else "bytes"
            number = read_size("net-limit", amount.removesuffix("/s"))
    except UsageError:
        number = 0
    if number <= 0:
        raise UsageError(f"--net-limit {text!r:.200} is no limit", remedy=_REMEDY)
    return NetLimit(text, rule, kind, number)


def parse_limits(texts: Iterable[str]) -> tuple[NetLimit, ...]:
    """Parse the limits of a command. Raises UsageError."""
    found = tuple(map(parse_limit, texts))
    if len(found) > MAX_LIMITS:
        raise UsageError(f"there are more than {MAX_LIMITS} limits on the network")
    return found


class _Meter:
    """One limit and how much of it is used. Unused rate is kept for at most a second."""

    def __init__(self, limit: NetLimit) -> None:
        self.limit = limit
        self._used = 0
        self._left, self._at = float(limit.amount), 0.0

    def check(self) -> None:
        """Raises LimitReached if nothing is left."""
        if self.limit.kind == "bytes" and self._used >= self.limit.amount:
            raise self._reached()

    def take(self, amount: int, now: float) -> float:
        """Use this amount; return how many seconds to wait first. Raises LimitReached."""
        if self.limit.kind == "bytes":
            if self._used + amount > self.limit.amount:
                self._used = self.limit.amount  # so that sending in smaller pieces does not help
                raise self._reached()
            self._used += amount
            return 0.0
        rate = float(self.limit.amount)
        self._left = min(rate, self._left + (now - self._at) * rate) if self._at else rate
        self._at = now
        self._left -= amount
        wait = max(0.0, -self._left / rate)
        if wait > MAX_WAIT_S:
            raise self._reached()
        return wait

    def _reached(self) -> LimitReached:
        return LimitReached(1, f"limit reached: --net-limit {self.limit.text}")


class Allowance:
    """The limits of one command, and what is left of them; time is monotonic, in seconds."""

    def __init__(self, limits: Iterable[NetLimit] = ()) -> None:
        self._meters = [_Meter(limit) for limit in limits]

    def bounds(self, host: Host, port: int) -> bool:
        """Whether any limit applies to traffic with this host and port."""
        return next(self._about(host, port), None) is not None

    def connect(self, host: Host, port: int, now: float) -> float:
        """Count a new connection; return how long it must wait. Raises LimitReached."""
        found = list(self._about(host, port))
        for meter in found:
            meter.check()
        return max((meter.take(1, now) for meter in found if meter.limit.kind == "connections"), default=0.0)

    def take(self, host: Host, port: int, amount: int, now: float) -> float:
        """Count bytes to transfer; return how long they must wait. Raises LimitReached."""
        found = [meter for meter in self._about(host, port) if meter.limit.kind != "connections"]
        return max((meter.take(amount, now) for meter in found), default=0.0)

    def _about(self, host: Host, port: int) -> Iterator[_Meter]:
        for meter in self._meters:
            if meter.limit.rule is None or meter.limit.rule.covers(host, port):
                yield meter
