"""When the registry is asked and the relay dialled again."""

import itertools

from holdfast.rendezvous.attempts import (
    AfterRefusal,
    FirstContact,
    HostRedial,
    Redial,
    after_host,
    after_relay,
    connect_delay,
    registering,
)
from tests.support.rows import every_row


def never() -> float:
    return 0.0


def nearly() -> float:
    return 0.999999


def test_an_executor_waits_longer_each_time_up_to_half_a_minute() -> None:
    redial = Redial(never)
    assert [redial.after(0) for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]
    redial = Redial(nearly)
    assert [round(redial.after(0), 2) for _ in range(7)] == [0.5, 1, 2, 4, 8, 15, 15]


def test_only_a_connection_that_lasted_two_minutes_begins_anew() -> None:
    redial = Redial(never)
    assert [redial.after(lasted) for lasted in (0, 119.9, 119.9, 120, 0, 500)] == [1, 2, 4, 1, 2, 1]


def test_an_executor_of_a_host_begins_anew_after_every_connection() -> None:
    redial = HostRedial(never)
    assert [redial.after(lasted) for lasted in (0, 0, 0, 0, 0, 0, 0.1, 0, 7, 8)] == [
        *(0.5, 1, 2, 4, 5, 5),
        *(0.5, 1, 0.5, 0.5),
    ]


@every_row(
    ("status", "of_relay", "of_host"),
    [
        (302, AfterRefusal.REDIAL, AfterRefusal.REDIAL),
        (401, AfterRefusal.REGISTER, AfterRefusal.GIVE_UP),
        (403, AfterRefusal.REGISTER, AfterRefusal.GIVE_UP),
        (408, AfterRefusal.REGISTER, AfterRefusal.REDIAL),
        (409, AfterRefusal.REGISTER, AfterRefusal.REGISTER),
        (410, AfterRefusal.REGISTER, AfterRefusal.GIVE_UP),
        (429, AfterRefusal.REGISTER, AfterRefusal.REDIAL),
        (503, AfterRefusal.REDIAL, AfterRefusal.REDIAL),
    ],
)
def test_a_refused_upgrade_means_what_it_means_to_the_reference(
    status: int, of_relay: AfterRefusal, of_host: AfterRefusal
) -> None:
    assert (after_relay(status), after_host(status)) == (of_relay, of_host)


def test_a_registration_is_tried_again_every_eight_seconds_in_the_end() -> None:
    assert list(itertools.islice(registering(never), 6)) == [1, 2, 4, 8, 8, 8]
    assert [round(one, 2) for one in itertools.islice(registering(nearly), 5)] == [0.5, 1, 2, 4, 4]


@every_row(("attempt", "least", "most"), [(0, 0.5, 0.75), (1, 1, 1.5), (3, 4, 6), (4, 5, 7.5), (40, 5, 7.5)])
def test_a_client_waits_longer_each_time_up_to_five_seconds_and_a_half_of_it(
    attempt: int, least: float, most: float
) -> None:
    assert connect_delay(attempt, never) == least
    assert round(connect_delay(attempt, nearly), 3) == most


def test_a_first_connection_is_asked_for_five_times_at_most() -> None:
    contact = FirstContact(100.0, never)
    assert [contact.retry_in(100.0) for _ in range(6)] == [0.5, 1, 2, 4, None, None]


def test_a_first_connection_takes_no_longer_than_its_budget() -> None:
    contact = FirstContact(100.0, never)
    assert contact.allowance(100.0) == 6
    assert contact.allowance(110.0) == 4
    assert contact.retry_in(113.6) is None
    assert contact.allowance(120.0) == 0
