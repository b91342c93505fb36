"""Whom to tell what, and when again: the tasks that wait for a person. Pure module.

A reminder is owed from the event that made its task wait until somebody acknowledges it or moves it on. What
could not be delivered is tried again soon; what was delivered is repeated after longer and longer pauses.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.board.rules import assign

MOST: Final = 1000  # reminders that are owed at once; before that, those that were delivered are forgotten
AGAIN_MS: Final = 10_000  # after a delivery that failed, doubling
MAX_AGAIN_MS: Final = 10 * 60_000
REPEAT_MS: Final = 15 * 60_000  # after one that did not, doubling
MAX_REPEAT_MS: Final = 24 * 3_600_000


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """One task. `since_ms` tells its waits apart."""

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
    """Events were read up to `seq`; these tasks wait since these times."""
    new = {
        task: Owed(since_ms=since)
        for task, since in waiting.items()
        if task not in book.owed or book.owed[task].since_ms != since
    }
    return msgspec.structs.replace(
        book, read={**book.read, board: seq}, owed=_make_room({**book.owed, **new}, most=MOST)
    )


def has_room(book: ReminderBook) -> bool:
    """Whether more events may be read: what nobody has been told yet is never forgotten."""
    return sum(not one.delivered for one in book.owed.values()) < MOST


def find_due(book: ReminderBook, now_ms: int) -> list[str]:
    """The tasks to remind of now; also those due later than their pause lasts: the clock went back."""
    return [
        task
        for task, one in book.owed.items()
        if one.due_ms <= now_ms or one.due_ms > assign.find_future(now_ms) + _last_pause_ms(one)
    ]


def is_still_owed(owed: Owed, since_ms: int, acknowledged_ms: int | None) -> bool:
    """Whether a reminder is owed any longer of a task that waits since then."""
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
    """How long the pause is that it is in; of one that was never tried, none."""
    if one.failed:
        return min(AGAIN_MS << min(one.failed - 1, 20), MAX_AGAIN_MS)
    return min(REPEAT_MS << min(one.delivered - 1, 20), MAX_REPEAT_MS) if one.delivered else 0


def _make_room(owed: dict[str, Owed], *, most: int) -> dict[str, Owed]:
    """Without the oldest of those that were delivered, as far as there are too many."""
    surplus = len(owed) - most
    told = sorted((one.since_ms, task) for task, one in owed.items() if one.delivered)
    gone = {task for _, task in told[: max(0, surplus)]}
    return {task: one for task, one in owed.items() if task not in gone}
