"""Reminders are owed until somebody acts, and never crowd each other out before they were given."""

import msgspec
import pytest

from holdfast.dispatch.rules import reminders
from holdfast.dispatch.rules.reminders import (
    MOST,
    Owed,
    ReminderBook,
    find_due,
    forget,
    has_room,
    is_still_owed,
    note,
    record_try,
)


def test_what_begins_to_wait_is_due_at_once_and_the_events_are_read_once() -> None:
    book = note(ReminderBook(), "b", 7, {"t": 5})
    assert (book.read, find_due(book, now_ms=5)) == ({"b": 7}, ["t"])
    assert note(book, "b", 7, {"t": 5}) == book


def test_the_same_wait_keeps_its_pauses_and_another_one_begins_anew() -> None:
    book = record_try(note(ReminderBook(), "b", 1, {"t": 5}), "t", delivered=True, now_ms=10)
    assert note(book, "b", 2, {"t": 5}).owed == book.owed
    assert note(book, "b", 2, {"t": 6}).owed == {"t": Owed(since_ms=6)}


def pauses(delivered: bool, times: int) -> list[int]:
    book, found = note(ReminderBook(), "b", 1, {"t": 5}), []
    for _ in range(times):
        book = record_try(book, "t", delivered=delivered, now_ms=0)
        found.append(book.owed["t"].due_ms)
    return found


@pytest.mark.parametrize(
    ("delivered", "first_ms", "last_ms"),
    [
        (True, reminders.REPEAT_MS, reminders.MAX_REPEAT_MS),
        (False, reminders.AGAIN_MS, reminders.MAX_AGAIN_MS),
    ],
)
def test_pauses_grow_up_to_a_bound(delivered: bool, first_ms: int, last_ms: int) -> None:
    found = pauses(delivered, 40)
    assert found[:2] == [first_ms, 2 * first_ms]
    assert (found, found[-1]) == (sorted(found), last_ms)


def test_a_delivery_forgets_the_failures_before_it() -> None:
    book = note(ReminderBook(), "b", 1, {"t": 5})
    for delivered in (False, False, True):
        book = record_try(book, "t", delivered=delivered, now_ms=0)
    assert book.owed["t"] == Owed(since_ms=5, due_ms=reminders.REPEAT_MS, delivered=1)
    assert find_due(book, now_ms=reminders.REPEAT_MS - 1) == []


@pytest.mark.parametrize(
    ("now", "owed"),
    [
        ((5, None), True),
        ((5, 9), False),
        ((6, None), False),
    ],
)
def test_a_reminder_is_owed_until_it_is_acknowledged_or_begins_to_wait_anew(
    now: tuple[int, int | None], owed: bool
) -> None:
    assert is_still_owed(Owed(since_ms=5), *now) is owed


def test_nothing_is_forgotten_that_was_not_delivered() -> None:
    book = note(ReminderBook(), "b", 1, {f"old{number}": number for number in range(MOST)})
    assert not has_room(book)
    book = record_try(book, "old3", delivered=True, now_ms=0)
    assert has_room(book)
    book = note(book, "b", 2, {"new": MOST})
    assert len(book.owed) == MOST
    assert "old3" not in book.owed
    assert "new" in book.owed


def test_what_is_not_owed_any_more_is_forgotten() -> None:
    book = note(ReminderBook(), "b", 1, {"t": 5, "u": 6})
    assert forget(book, "t") == msgspec.structs.replace(book, owed={"u": Owed(since_ms=6)})


@pytest.mark.parametrize("delivered", [True, False])
def test_a_clock_that_went_back_delays_no_reminder(delivered: bool) -> None:
    now = 10 * 3_600_000
    book = record_try(note(ReminderBook(), "b", 1, {"t": 5}), "t", delivered=delivered, now_ms=now)
    due = book.owed["t"].due_ms
    assert find_due(book, due - 1) == []
    assert find_due(book, due) == ["t"]
    assert find_due(book, now - 3_600_000) == ["t"]
