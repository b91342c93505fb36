"""Answers to the pings of a peer that does not read them. Pure module.

A peer that sends pings and takes nothing would make us keep an answer to each of them, without end. One
answer stands for all pings before it (RFC 6455, 5.5.3), so while the peer is behind only the last is kept.
"""


class Pongs:
    """Those of one connection, whose transport pauses its writer when more than `high` bytes are unsent."""

    __slots__ = ("_high", "_kept")

    def __init__(self, high: int) -> None:
        self._high = high
        self._kept = b""

    def pass_on(self, pong: bytes, unsent: int) -> bytes:
        """What to write now, behind so many unsent bytes: this answer, or nothing."""
        if unsent <= self._high:
            return pong
        self._kept = pong
        return b""

    def resume(self) -> bytes:
        """The writer may go on: the answer that is owed, or nothing."""
        kept, self._kept = self._kept, b""
        return kept
