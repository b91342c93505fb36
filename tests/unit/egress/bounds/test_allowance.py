"""How much may pass: nobody gets more by more names, connections or smaller pieces."""

import contextlib

import pytest

from holdfast.egress.bounds.allowance import MAX_LIMITS, Allowance, LimitReached, parse_limit, parse_limits
from holdfast.egress.hosts import Host
from holdfast.errors import UsageError

API, OTHER, DEEP = Host("api.test"), Host("other.test"), Host("x.wild.test")


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("500M", "bytes", 500 << 20),
        ("10k/s", "rate", 10 << 10),
        ("20conn/s", "connections", 20),
        ("api.test=1G", "bytes", 1 << 30),
        ("*.wild.test:443=5M/s", "rate", 5 << 20),
    ],
)
def test_a_limit_is_an_amount_or_a_rate_of_all_or_of_some_hosts(text: str, kind: str, amount: int) -> None:
    found = parse_limit(text)
    assert (found.kind, found.amount, found.rule is not None) == (kind, amount, "=" in text)


@pytest.mark.parametrize(
    "text",
    ["", "fast", "0", "-5M", "10M/h", "conn/s", "0conn/s", "=5M", "a b=5M", "5M=api.test", "1.5.1M", "*=5M"],
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limit(text)


def test_too_many_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="more than"):
        parse_limits(["5M"] * (MAX_LIMITS + 1))


def test_bytes_of_a_run_are_counted_over_all_hosts_ports_and_directions() -> None:
    allowance = Allowance(parse_limits(["100"]))
    assert allowance.take(API, 443, 60, 1.0) == allowance.take(OTHER, 80, 40, 1.0) == 0
    with pytest.raises(LimitReached, match="limit reached: --net-limit 100"):
        allowance.take(DEEP, 443, 1, 1.0)
    with pytest.raises(LimitReached):
        allowance.connect(API, 443, 1.0)


def test_a_piece_that_is_too_large_leaves_nothing_for_smaller_ones() -> None:
    allowance = Allowance(parse_limits(["100"]))
    with pytest.raises(LimitReached):
        allowance.take(API, 443, 101, 1.0)
    with pytest.raises(LimitReached):
        allowance.take(API, 443, 1, 1.0)


def test_hosts_of_a_pattern_share_its_limit_and_others_have_none() -> None:
    allowance = Allowance(parse_limits(["**.wild.test=100"]))
    assert (allowance.bounds(DEEP, 443), allowance.bounds(API, 443)) == (True, False)
    allowance.take(DEEP, 443, 100, 1.0)
    assert allowance.take(API, 443, 10**9, 1.0) == 0
    with pytest.raises(LimitReached):
        allowance.take(Host("y.wild.test"), 8443, 1, 1.0)


def test_what_is_too_fast_waits_for_all_that_went_before() -> None:
    allowance = Allowance(parse_limits(["100/s"]))
    assert allowance.take(API, 443, 100, 10.0) == 0
    assert allowance.take(OTHER, 443, 50, 10.0) == pytest.approx(0.5)
    assert allowance.take(API, 443, 50, 10.0) == pytest.approx(1.0)
    assert allowance.take(API, 443, 50, 12.0) == 0
    assert allowance.take(API, 443, 200, 100.0) == pytest.approx(
        1.0
    )  # no more than a second's worth is saved
    with pytest.raises(LimitReached):
        allowance.take(API, 443, 10**9, 200.0)


def test_connections_wait_for_their_turn() -> None:
    allowance = Allowance(parse_limits(["2conn/s", "api.test=1conn/s"]))
    assert [allowance.connect(OTHER, 443, 5.0) for _ in range(3)] == [0, 0, 0.5]
    assert allowance.connect(API, 443, 5.0) == pytest.approx(1.0)
    assert allowance.take(API, 443, 10**9, 5.0) == 0


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_however_it_is_cut_no_more_than_the_limit_passes(pieces: int) -> None:
    allowance, passed = Allowance(parse_limits(["1000"])), 0
    with contextlib.suppress(LimitReached):
        while passed <= 2000:
            allowance.take(API, 443, pieces, 1.0)
            passed += pieces
    assert passed <= 1000
