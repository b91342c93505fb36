"""Who owns which session, and until when."""

import pytest

from holdfast.errors import InvalidRequest, SessionAttached
from holdfast.server.executor import DETACHED_S, Sessions

T0 = 1000.0


@pytest.fixture
def sessions() -> Sessions[str, object]:
    """One session `s`, of value "value", attached to "first"."""
    made: Sessions[str, object] = Sessions()
    made.add("s", "value", "first")
    return made


def test_a_new_session_is_attached(sessions: Sessions[str, object]) -> None:
    with pytest.raises(SessionAttached, match=r"^session s is already attached to another connection$"):
        sessions.resume("s", "second", T0)
    assert (len(sessions), list(sessions), sessions.next_expiry()) == (1, ["value"], None)


def test_a_detached_session_is_resumed_by_another_connection(sessions: Sessions[str, object]) -> None:
    assert sessions.detach("s", "first", T0)
    assert sessions.next_expiry() == T0 + DETACHED_S
    assert sessions.resume("s", "second", T0 + DETACHED_S - 0.001) == "value"
    assert sessions.next_expiry() is None
    assert sessions.expire(T0 + 10 * DETACHED_S) == []


def test_of_two_resumes_one_wins(sessions: Sessions[str, object]) -> None:
    sessions.detach("s", "first", T0)
    sessions.resume("s", "second", T0)
    with pytest.raises(SessionAttached):
        sessions.resume("s", "third", T0)


def test_a_refused_resume_changes_nothing(sessions: Sessions[str, object]) -> None:
    with pytest.raises(SessionAttached):
        sessions.resume("s", "second", T0)
    assert not sessions.detach("s", "second", T0)
    assert sessions.detach("s", "first", T0)


@pytest.mark.parametrize("session_id", ["", "other", "S"])
def test_an_unknown_session_is_refused_by_name(sessions: Sessions[str, object], session_id: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^unknown session id {session_id}$"):
        sessions.resume(session_id, "second", T0)


@pytest.mark.parametrize("late", [0.0, 0.001, 100.0])
def test_a_session_past_its_time_is_gone_even_before_it_is_forgotten(
    sessions: Sessions[str, object], late: float
) -> None:
    sessions.detach("s", "first", T0)
    with pytest.raises(InvalidRequest, match=r"^unknown session id s$"):
        sessions.resume("s", "second", T0 + DETACHED_S + late)
    assert sessions.expire(T0 + DETACHED_S + late) == ["value"]


def test_an_expired_session_is_handed_out_once(sessions: Sessions[str, object]) -> None:
    sessions.detach("s", "first", T0)
    assert sessions.expire(T0 + DETACHED_S - 0.001) == []
    assert sessions.expire(T0 + DETACHED_S) == ["value"]
    assert sessions.expire(T0 + DETACHED_S) == []
    assert len(sessions) == 0


def test_the_clock_restarts_at_every_detach(sessions: Sessions[str, object]) -> None:
    sessions.detach("s", "first", T0)
    sessions.resume("s", "second", T0 + 29.0)
    sessions.detach("s", "second", T0 + 40.0)
    assert sessions.next_expiry() == T0 + 70.0
    assert sessions.resume("s", "third", T0 + 69.0) == "value"


def test_a_second_report_of_the_same_loss_does_not_move_the_clock(sessions: Sessions[str, object]) -> None:
    assert sessions.detach("s", "first", T0)
    assert not sessions.detach("s", "first", T0 + 10.0)
    assert sessions.next_expiry() == T0 + DETACHED_S


def test_the_former_owner_cannot_detach(sessions: Sessions[str, object]) -> None:
    sessions.detach("s", "first", T0)
    sessions.resume("s", "second", T0)
    assert not sessions.detach("s", "first", T0)
    assert not sessions.detach("unknown", "first", T0)
    assert sessions.next_expiry() is None


def test_an_owner_is_known_by_identity_not_by_equality(sessions: Sessions[str, object]) -> None:
    owner, twin = [1], [1]
    sessions.add("t", "other", owner)
    assert not sessions.detach("t", twin, T0)
    assert sessions.detach("t", owner, T0)


def test_sessions_expire_one_by_one_in_their_own_time() -> None:
    sessions: Sessions[int, str] = Sessions(detached_s=5.0)
    for number in range(3):
        sessions.add(str(number), number, "c")
    sessions.detach("2", "c", 10.0)
    sessions.detach("0", "c", 12.0)
    assert sessions.next_expiry() == 15.0
    assert sessions.expire(15.0) == [2]
    assert sessions.next_expiry() == 17.0
    assert sessions.expire(20.0) == [0]
    assert list(sessions) == [1]


@pytest.mark.parametrize("detached", [False, True])
def test_a_removed_session_is_forgotten_whoever_has_it(
    sessions: Sessions[str, object], detached: bool
) -> None:
    if detached:
        sessions.detach("s", "first", T0)
    assert sessions.remove("s") == "value"
    assert sessions.remove("s") is None
    assert sessions.expire(T0 + 10 * DETACHED_S) == []


def test_an_id_that_repeats_is_a_mistake_of_ours(sessions: Sessions[str, object]) -> None:
    with pytest.raises(AssertionError):
        sessions.add("s", "usurper", "second")
    assert list(sessions) == ["value"]


def test_sessions_may_be_removed_while_iterating(sessions: Sessions[str, object]) -> None:
    sessions.add("t", "t", "first")
    for value in sessions:
        sessions.remove("s" if value == "value" else value)
    assert len(sessions) == 0


def test_a_detached_session_lives_thirty_seconds() -> None:
    assert DETACHED_S == 30.0


def test_a_session_can_be_kept_longer_than_others() -> None:
    sessions: Sessions[str, object] = Sessions()
    for name in ("kept", "plain", "held"):
        sessions.add(name, name, "owner")
    sessions.detach("kept", "owner", T0, keep_s=1000 * DETACHED_S)
    sessions.detach("plain", "owner", T0 + 1)
    assert sessions.list_detached() == ["plain", "kept"]
    assert sessions.expire(T0 + 2 * DETACHED_S) == ["plain"]
    assert sessions.resume("kept", "other", T0 + 999 * DETACHED_S) == "kept"
    assert sessions.list_detached() == []
