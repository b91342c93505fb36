"""When to ping, and when a silent peer is gone. Pure module."""

from typing import Final

PING_S: Final = 30.0  # as often as the reference
PONG_S: Final = 60.0  # measured from the first unanswered ping; later pings do not extend it


class Keepalive:
    """Call `tick` at `next_tick`; send a ping unless it says that the peer is gone."""

    def __init__(self, now: float) -> None:
        self.next_tick = now + PING_S
        self._unanswered_since: float | None = None

    def tick(self, now: float) -> bool:
        """True: the peer has not answered for too long."""
        while self.next_tick <= now:
            self.next_tick += PING_S  # missed ticks are skipped, not made up for
        if self._unanswered_since is None:
            self._unanswered_since = now
        return now - self._unanswered_since >= PONG_S

    def pong(self) -> None:
        """The peer lives."""
        self._unanswered_since = None
