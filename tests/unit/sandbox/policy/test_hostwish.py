"""A rule that is plainly one is understood by whoever reads rules."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.hosts import check_addresses, parse_rule
from holdfast.sandbox.policy.hostwish import HostWish, are_plain, is_plain
from tests.support.rows import every_row


@every_row("rule", ["api.example.com", "*.example.org:443", "**.a-b.c1:1", "localhost", "x:65535"], ids=str)
def test_what_people_write_is_plain(rule: str) -> None:
    assert is_plain(rule)
    parse_rule(rule)
    parse_rule(rule, denies=True)


@every_row(
    "rule",
    [
        "",
        "*",
        "a..b",
        "a b",
        "-a",
        "a-",
        "1.2.3.4",
        "a.0x7f",
        "a:0",
        "a:65536",
        "a:",
        "a:1:2",
        "[::1]",
        "é.de",
        "²a.de",
        f"{'a' * 64}.de",
        f"{'a.' * 127}de",
    ],
    ids=repr,
)
def test_what_needs_a_look_is_not(rule: str) -> None:
    assert not is_plain(rule)


@given(st.text("ab.-*:019Xx_", max_size=20) | st.text(max_size=12))
def test_whatever_is_plain_is_a_rule(rule: str) -> None:
    if is_plain(rule):
        parse_rule(rule)
        parse_rule(rule, denies=True)


@every_row("where", ["127.0.0.1", "255.255.255.255", "9.10.99.100"], ids=str)
def test_an_address_in_four_numbers_is_plain(where: str) -> None:
    assert are_plain(HostWish(("a.test",), (), addresses=(("a.test", where),)))
    check_addresses((("a.test", where),))


@every_row("where", ["", "1.2.3", "1.2.3.256", "01.2.3.4", "1.2.3.4.5", "::1", "x"], ids=repr)
def test_what_may_be_no_address_needs_a_look(where: str) -> None:
    assert not are_plain(HostWish(("a.test",), (), addresses=(("a.test", where),)))


def test_one_rule_that_needs_a_look_is_enough() -> None:
    assert are_plain(HostWish(("a.test",), ("b.test",)))
    assert not are_plain(HostWish(("a.test", "1.2.3.4"), ()))
    assert not are_plain(HostWish(("a.test",), ("*",)))
