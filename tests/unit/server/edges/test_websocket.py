"""When to ping, and when a silent peer is gone."""

from holdfast.server.edges.websocket import PING_S, PONG_S, Keepalive

T0 = 100.0


def test_the_first_ping_comes_one_interval_after_the_start() -> None:
    assert Keepalive(T0).next_tick == T0 + PING_S == T0 + 30.0


def test_pings_keep_their_interval() -> None:
    keepalive = Keepalive(T0)
    for round_ in range(1, 6):
        assert keepalive.next_tick == T0 + round_ * PING_S
        assert not keepalive.tick(keepalive.next_tick)
        keepalive.pong()


def test_missed_ticks_are_skipped() -> None:
    keepalive = Keepalive(T0)
    keepalive.tick(T0 + 3.5 * PING_S)
    assert keepalive.next_tick == T0 + 4 * PING_S


def test_an_early_tick_does_not_move_the_next_one() -> None:
    keepalive = Keepalive(T0)
    keepalive.tick(T0 + 1.0)
    assert keepalive.next_tick == T0 + PING_S


def test_a_silent_peer_is_gone_a_minute_after_the_first_unanswered_ping() -> None:
    keepalive = Keepalive(T0)
    first = keepalive.next_tick
    assert not keepalive.tick(first)
    assert not keepalive.tick(first + PONG_S - 0.001)
    assert keepalive.tick(first + PONG_S)


def test_further_pings_do_not_extend_the_deadline() -> None:
    keepalive = Keepalive(T0)
    answers = [keepalive.tick(keepalive.next_tick) for _ in range(3)]
    assert answers == [False, False, True]


def test_a_pong_starts_it_all_over() -> None:
    keepalive = Keepalive(T0)
    keepalive.tick(keepalive.next_tick)
    keepalive.tick(keepalive.next_tick)
    keepalive.pong()
    assert [keepalive.tick(keepalive.next_tick) for _ in range(3)] == [False, False, True]


def test_a_peer_that_answers_is_never_gone_however_late_the_clock() -> None:
    keepalive = Keepalive(T0)
    assert not keepalive.tick(T0 + 1000 * PONG_S)
    keepalive.pong()
    assert not keepalive.tick(T0 + 2000 * PONG_S)
