"""How often somebody may ask."""

from holdfast.relay.rules.ratelimit import Rate, RateLimit


def test_a_burst_is_let_through_and_then_as_many_as_the_rate_says() -> None:
    limit = RateLimit(Rate(per_s=2.0, burst=3))
    assert [limit.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [limit.take("a", 0.5), limit.take("a", 0.5)] == [True, False]
    assert [limit.take("a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_nobody_pays_for_another() -> None:
    limit = RateLimit(Rate(per_s=1.0, burst=1))
    assert limit.take("a", 0.0)
    assert limit.take("b", 0.0)
    assert not limit.has("a", 0.0)
    assert limit.has("c", 0.0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    limit = RateLimit(Rate(per_s=1.0, burst=1))
    assert limit.take("a", 10.0)
    assert not limit.take("a", 5.0)


def test_the_number_of_those_who_are_remembered_is_bounded_and_the_oldest_are_forgotten() -> None:
    limit = RateLimit(Rate(per_s=0.001, burst=1), most=8)
    for number in range(100):
        assert limit.take(str(number), float(number) / 1000)
    assert len(limit) <= 8
    assert not limit.has("99", 0.1)
    assert limit.has("0", 0.1)


def test_who_has_not_asked_for_long_is_forgotten_first() -> None:
    limit = RateLimit(Rate(per_s=1.0, burst=1), most=4)
    for name in "abcd":
        limit.take(name, 0.0)
    limit.take("e", 100.0)
    assert len(limit) == 1
