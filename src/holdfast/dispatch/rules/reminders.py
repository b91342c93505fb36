"""Which reminders are due, and when again: for tasks that wait for a person. Pure module.

A reminder is owed from the event that made its task wait until a person acknowledges it or moves it on. A
failed delivery is tried again soon; a successful one is repeated after longer and longer pauses.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.board.rules import assign

MOST: Final = 1000  # reminders owed at once; above that, the oldest delivered ones are forgotten
AGAIN_MS: Final = 10_000  # after a delivery that failed, doubling
MAX_AGAIN_MS: Final = 10 * 60_000
REPEAT_MS: Final = 15 * 60_000  # after a successful delivery, doubling
MAX_REPEAT_MS: Final = 24 * 3_600_000


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """The reminder of one task. `since_ms` distinguishes its waits."""

    since_ms: int
    due_ms: int = 0
    delivered: int = 0
    failed: int = 0  # since it was last delivered


class ReminderBook(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered: how far the events of each board were read, and what is owed."""

    read: dict[str, int] = {}
    owed: dict[str, Owed] = {}
    schema: int = 1


def note(book: ReminderBook, board: str, seq: int, waiting: Mapping[str, int]) -> ReminderBook:
    """Record that events were read up to `seq`, and that these tasks wait since these times."""
    new = {
        task: Owed(since_ms=since)
        for task, since in waiting.items()
        if task not in book.owed or book.owed[task].since_ms != since
    }
    return msgspec.structs.replace(
        book, read={**book.read, board: seq}, owed=_make_room({**book.owed, **new}, most=MOST)
    )


def has_room(book: ReminderBook) -> bool:
    """Whether more events may be read: a reminder that was never delivered must not be forgotten."""
    return sum(not one.delivered for one in book.owed.values()) < MOST


def find_due(book: ReminderBook, now_ms: int) -> list[str]:
    """The tasks to remind of now.

    A reminder that is due further ahead than its pause lasts is included, too: the clock went back.
    """
    return [
        task
        for task, one in book.owed.items()
        if one.due_ms <= now_ms or one.due_ms > assign.find_future(now_ms) + _last_pause_ms(one)
    ]


def is_still_owed(owed: Owed, since_ms: int, acknowledged_ms: int | None) -> bool:
    """Whether a reminder is still owed for a task that waits since `since_ms`."""
    return acknowledged_ms is None and since_ms == owed.since_ms


def forget(book: ReminderBook, task: str) -> ReminderBook:
    return msgspec.structs.replace(book, owed={name: one for name, one in book.owed.items() if name != task})


def record_try(book: ReminderBook, task: str, *, delivered: bool, now_ms: int) -> ReminderBook:
    one = book.owed[task]
    if delivered:
        after = msgspec.structs.replace(one, delivered=one.delivered + 1, failed=0)
    else:
        after = msgspec.structs.replace(one, failed=one.failed + 1)
    after = msgspec.structs.replace(after, due_ms=now_ms + _last_pause_ms(after))
    return msgspec.structs.replace(book, owed={**book.owed, task: after})


def _last_pause_ms(one: Owed) -> int:
    """The length of the current pause; 0 if delivery was never tried."""
    if one.failed:
        return min(AGAIN_MS << min(one.failed - 1, 20), MAX_AGAIN_MS)
    return min(REPEAT_MS << min(one.delivered - 1, 20), MAX_REPEAT_MS) if one.delivered else 0


def _make_room(owed: dict[str, Owed], *, most: int) -> dict[str, Owed]:
    """Drop the oldest delivered reminders while there are more than `most`."""
    surplus = len(owed) - most
    told = sorted((one.since_ms, task) for task, one in owed.items() if one.delivered)
    gone = {task for _, task in told[: max(0, surplus)]}
    return {task: one for task, one in owed.items() if task not in gone}
