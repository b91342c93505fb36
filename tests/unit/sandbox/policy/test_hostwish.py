"""A rule that is plainly one is understood by whoever reads rules."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.hosts import parse_rule
from holdfast.sandbox.policy.hostwish import is_plain
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
