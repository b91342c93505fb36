"""Answers to the pings of a peer that does not read them. Pure module.

A peer that sends pings and reads nothing would make us keep an unlimited number of answers. One answer counts
for all pings before it (RFC 6455, 5.5.3), so while the peer is behind only the last is kept.
"""


class Pongs:
    """The pending answer of one connection. Its transport pauses the writer above `high` unsent bytes."""

    __slots__ = ("_high", "_kept")

    def __init__(self, high: int) -> None:
        self._high = high
        self._kept = b""

    def pass_on(self, pong: bytes, unsent: int) -> bytes:
        """Return what to write now, given the number of unsent bytes: this answer, or nothing."""
        if unsent <= self._high:
            return pong
        self._kept = pong
        return b""

    def resume(self) -> bytes:
        """Return the pending answer, or nothing, because the writer may continue."""
        kept, self._kept = self._kept, b""
        return kept
