"""Answers to the pings of a peer that does not read them. Pure module.

A peer that sends pings and takes nothing would make us keep an answer to each of them, without end. One
answer stands for all pings before it (RFC 6455, 5.5.3), so while the peer is behind only the last is kept.
"""


class Pongs:
    """Those of one connection; told by its transport when the peer is behind."""

    __slots__ = ("_behind", "_kept")

    def __init__(self) -> None:
        self._behind = False
        self._kept = b""

    def pass_on(self, pong: bytes) -> bytes:
        """What to write now: this answer, or nothing."""
        if not self._behind:
            return pong
        self._kept = pong
        return b""

    def pause(self) -> None:
        """The peer does not take what was written."""
        self._behind = True

    def resume(self) -> bytes:
        """It does again: the answer that is owed, or nothing."""
        self._behind = False
        kept, self._kept = self._kept, b""
        return kept
