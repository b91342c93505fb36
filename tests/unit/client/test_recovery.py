"""When to dial again, and when to give up."""

import pytest

from holdfast.client.recovery import (
    FIRST_DELAY_S,
    MAX_DELAY_S,
    SETTLED_S,
    WINDOW_S,
    Dial,
    GiveUp,
    LinkState,
    Recovery,
    WakeAt,
    delays,
    worth_retrying,
)
from holdfast.errors import (
    ConnectionLost,
    InvalidRequest,
    ProtocolMismatch,
    SessionAttached,
    TokenRefused,
    Unreachable,
)
from tests.support.rows import every_row

NOW = 100.0  # long after the first link was made


def connected(*, resumable: bool = True) -> Recovery:
    return Recovery(resumable=resumable, now=0.0, random=lambda: 0.0)


def dialling() -> Recovery:
    recovery = connected()
    assert recovery.link_lost(1, NOW, "reset") == Dial(2, NOW + WINDOW_S)
    return recovery


def test_a_loss_is_answered_by_dialling_at_once() -> None:
    recovery = dialling()
    assert recovery.state is LinkState.RECOVERING
    assert recovery.generation == 2


def test_a_second_report_of_the_same_loss_changes_nothing() -> None:
    recovery = dialling()
    assert recovery.link_lost(1, NOW, "reset") is None
    assert recovery.resumed(NOW + 1) is None
    assert recovery.state is LinkState.CONNECTED


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_a_report_about_another_link_changes_nothing(generation: int) -> None:
    recovery = dialling()
    recovery.resumed(NOW + 1)
    assert recovery.link_lost(generation, NOW + 5, "late") is None
    assert recovery.state is LinkState.CONNECTED


def test_without_a_way_to_resume_a_loss_is_the_end() -> None:
    recovery = connected(resumable=False)
    assert recovery.link_lost(1, NOW, "the server ended") == GiveUp("the server ended")
    assert recovery.state is LinkState.FAILED


def test_a_failed_attempt_is_repeated_after_a_delay() -> None:
    recovery = dialling()
    assert recovery.dial_failed(NOW + 1, retry=True, reason="refused") == WakeAt(NOW + 1 + FIRST_DELAY_S)
    assert recovery.state is LinkState.RECOVERING
    assert recovery.tick(NOW + 2) == Dial(3, NOW + WINDOW_S)


def test_what_no_attempt_can_mend_is_given_up_at_once() -> None:
    recovery = dialling()
    assert recovery.dial_failed(NOW, retry=False, reason="unknown session") == GiveUp("unknown session")
    assert recovery.state is LinkState.FAILED


def test_no_attempt_begins_after_the_window() -> None:
    recovery = dialling()
    action = recovery.dial_failed(NOW + WINDOW_S - FIRST_DELAY_S, retry=True, reason="refused")
    assert isinstance(action, GiveUp)
    assert recovery.state is LinkState.FAILED


def test_a_late_wake_up_gives_up() -> None:
    recovery = dialling()
    recovery.dial_failed(NOW, retry=True, reason="refused")
    assert isinstance(recovery.tick(NOW + WINDOW_S), GiveUp)


def test_attempts_end_within_the_window_when_nobody_answers() -> None:
    recovery, now, attempts = dialling(), NOW, 1
    while isinstance(action := recovery.dial_failed(now, retry=True, reason="refused"), WakeAt):
        assert now < action.when < NOW + WINDOW_S
        now = action.when
        recovery.tick(now)
        attempts += 1
    assert isinstance(action, GiveUp)
    assert attempts > WINDOW_S / MAX_DELAY_S
    assert now > NOW + WINDOW_S - 2 * MAX_DELAY_S


def test_the_window_begins_anew_with_every_loss() -> None:
    recovery = dialling()
    recovery.resumed(NOW + 20)
    assert recovery.link_lost(2, NOW + 30, "reset") == Dial(3, NOW + 30 + WINDOW_S)


def test_a_link_that_dies_young_is_not_dialled_again_at_once() -> None:
    recovery = dialling()
    recovery.resumed(NOW + 1)
    soon = NOW + 1 + SETTLED_S / 2
    assert recovery.link_lost(2, soon, "reset") == WakeAt(soon + FIRST_DELAY_S)
    assert recovery.state is LinkState.RECOVERING


def test_a_link_that_died_while_it_was_being_made_ready_does_not_count() -> None:
    recovery = dialling()
    assert recovery.link_lost(2, NOW, "reset") is None
    assert recovery.resumed(NOW) == WakeAt(NOW + FIRST_DELAY_S)
    assert recovery.state is LinkState.RECOVERING


def test_the_next_attempt_is_not_blamed_for_the_death_of_the_last() -> None:
    recovery = dialling()
    recovery.link_lost(2, NOW, "reset")
    recovery.dial_failed(NOW, retry=True, reason="reset")
    recovery.tick(NOW + 1)
    assert recovery.resumed(NOW + 2) is None
    assert recovery.state is LinkState.CONNECTED


def test_a_link_that_ends_after_its_attempt_failed_does_not_count_either() -> None:
    recovery = dialling()
    recovery.dial_failed(NOW, retry=True, reason="refused")
    assert recovery.link_lost(2, NOW, "dropped by us") is None
    recovery.tick(NOW + 1)
    assert recovery.resumed(NOW + 2) is None


@pytest.mark.parametrize("busy", [False, True])
def test_a_tick_without_a_wake_up_due_does_nothing(busy: bool) -> None:
    recovery = dialling() if busy else connected()
    assert recovery.tick(NOW) is None


def test_after_the_user_is_done_nothing_happens_any_more() -> None:
    recovery = dialling()
    recovery.give_up()
    assert recovery.state is LinkState.FAILED
    assert recovery.resumed(NOW) is None
    assert recovery.dial_failed(NOW, retry=True, reason="x") is None
    assert recovery.link_lost(2, NOW, "x") is None
    assert recovery.tick(NOW) is None


def test_an_attempt_nobody_asked_for_cannot_end() -> None:
    with pytest.raises(AssertionError):
        connected().resumed(NOW)
    with pytest.raises(AssertionError):
        connected().dial_failed(NOW, retry=True, reason="")


def test_delays_double_up_to_a_limit() -> None:
    pace = delays(lambda: 0.0)
    assert [next(pace) for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_chance_shortens_a_delay_by_up_to_half() -> None:
    assert next(delays(lambda: 0.5)) == pytest.approx(0.75 * FIRST_DELAY_S)
    assert next(delays(lambda: 0.999999)) > FIRST_DELAY_S / 2


@every_row(
    ("error", "retry"),
    [
        (ConnectionLost("x"), True),
        (Unreachable("x"), True),
        (SessionAttached("x"), True),
        (TimeoutError(), True),
        (InvalidRequest("unknown session id"), False),
        (ProtocolMismatch("x"), False),
        (TokenRefused("x"), False),
    ],
)
def test_only_what_may_pass_by_itself_is_retried(error: Exception, retry: bool) -> None:
    assert worth_retrying(error) is retry
