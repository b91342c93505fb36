"""When the store's clock has jumped, by a second clock that nobody sets. Pure module.

The store dates everything by a wall clock, which people, time servers, virtual machines and a laptop's lid
move. Whoever looks for leases that ran out has a steady clock beside it. Between two looks both go on by
as much; if they do not, no time that the store remembers says how long ago something was.
"""

from typing import Final, NamedTuple

TOLERANCE_MS: Final = 2_000  # two clocks are never read at the same moment, and a wall clock is slewed


class ClockReading(NamedTuple):
    """The store's clock and a steady one, read together."""

    wall_ms: int
    steady_ms: int

    @property
    def offset_ms(self) -> int:
        return self.wall_ms - self.steady_ms


def find_jump(offset_ms: int | None, reading: ClockReading, *, lease_ms: int) -> int:
    """By how much the wall clock has jumped since its offset was `offset_ms`; nothing without one.

    Below zero it went back. The offset is that of the last jump, not of the last look, so that many small
    steps are one large one. Half of what a short lease has to spare is a jump, too.
    """
    if offset_ms is None:
        return 0
    moved = reading.offset_ms - offset_ms
    return moved if abs(moved) > min(TOLERANCE_MS, lease_ms // 4) else 0


def find_future(now_ms: int) -> int:
    """What is dated later than this was dated before the clock went back."""
    return now_ms + TOLERANCE_MS
