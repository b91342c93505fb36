"""Hosts have one way to be written, and the rule that decides is the one that was meant."""

import pytest

from holdfast.egress.hosts import (
    DEFAULT_PORTS,
    BadHost,
    Host,
    HostRules,
    Reason,
    decide,
    may_be_private,
    parse_host,
    parse_rule,
    parse_rules,
    parse_target,
)
from holdfast.errors import UsageError
from tests.support.rows import every_row


@every_row(
    ("text", "name"),
    [
        ("example.com", "example.com"),
        ("API.Example.COM.", "api.example.com"),
        ("a_b.example", "a_b.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("Bücher。example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:2800:220:1::]", "2606:2800:220:1::"),
        ("2606:2800:0220:0001:0:0:0:0", "2606:2800:220:1::"),
        ("::FFFF:93.184.216.34", "93.184.216.34"),
        ("1password.com", "1password.com"),
        ("4.example", "4.example"),
        (f"{'a.' * 126}a", f"{'a.' * 126}a"),
    ],
)
def test_a_host_is_written_in_one_way(text: str, name: str) -> None:
    assert parse_host(text).name == name


@every_row(
    "text",
    [
        "",
        ".",
        "a..b",
        "a.b..",
        ".a",
        "evil.com\0.example.com",
        "a b",
        " a",
        "a\n",
        "a\t.b",
        "a/b",
        "a@b",
        "a%2eb",
        "a\\b",
        "a*b",
        "*",
        "-a.b",
        "a-.b",
        "a" * 64,
        f"{'a.' * 127}a",
        "a" * 2000,
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.0x",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "\u2460.1.1.1",
        "℀.example",
        "a\u200b\ud800",
        "[::1",
        "::1]",
        "[fe80::1%eth0]",
        "fe80::1%1",
        "[127.0.0.1]",
        "a:b",
        "[::1]x",
    ],
)
def test_what_could_be_taken_for_something_else_is_no_host(text: str) -> None:
    with pytest.raises(BadHost) as caught:
        parse_host(text)
    assert not text or len(text) < 3 or text not in str(caught.value)


@every_row(
    ("text", "default", "host", "port"),
    [
        ("a.b:443", None, "a.b", 443),
        ("a.b", 80, "a.b", 80),
        ("[::1]:8080", None, "::1", 8080),
        ("::1", 443, "::1", 443),
        ("1.2.3.4:1", None, "1.2.3.4", 1),
    ],
)
def test_a_target_is_a_host_and_a_port(text: str, default: int | None, host: str, port: int) -> None:
    found, at = parse_target(text, default)
    assert (found.name, at) == (host, port)


@every_row(
    "text",
    [
        "a",
        "a:",
        "a:0",
        "a:65536",
        "a:+1",
        "a:\uff11",
        "a:80:80",
        "[::1]80",
        "[::1]:",
        ":80",
        "a:80\0",
        "a:8 0",
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(BadHost):
        parse_target(text)


@every_row(
    ("rule", "host", "port", "covered"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com", "a.example.com", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("EXAMPLE.com.", "example.COM", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "a.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "aexample.com", 443, False),
        ("**.example.com", "example.com", 443, True),
        ("**.example.com", "a.b.example.com", 443, True),
        ("**.example.com", "example.com.evil", 443, False),
        ("*", "anything.example", 443, True),
        ("*", "93.184.216.34", 443, True),
        ("*", "anything.example", 22, False),
        ("*:22", "anything.example", 22, True),
        ("db.internal:5432", "db.internal", 5432, True),
        ("db.internal:5432", "db.internal", 443, False),
        ("*.example.com:8443", "a.example.com", 8443, True),
        ("93.184.216.34", "93.184.216.34", 443, True),
        ("[2606:2800::1]:443", "2606:2800:0::1", 443, True),
        ("[2606:2800::1]:443", "2606:2800:0::1", 80, False),
        ("93.184.216.34", "::ffff:93.184.216.34", 443, True),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
    ],
)
def test_a_rule_covers_the_hosts_that_it_names(rule: str, host: str, port: int, covered: bool) -> None:
    assert decide(parse_rules([rule]), parse_host(host), port).allowed == covered


@every_row(
    ("allow", "deny", "host", "reason", "rule"),
    [
        ([], [], "a.example", Reason.NOT_ALLOWED, None),
        (["*"], ["a.example"], "a.example", Reason.DENIED, "a.example"),
        (["a.b.example"], ["**.example"], "a.b.example", Reason.DENIED, "**.example"),
        (["*"], ["*.example"], "example", Reason.ALLOWED, "*"),
        (["*", "**.example", "a.example"], [], "a.example", Reason.ALLOWED, "a.example"),
        (["*", "*.example"], [], "a.b.example", Reason.ALLOWED, "*.example"),
        (["*"], [], "127.0.0.1", Reason.NOT_ALLOWED_LOCAL, None),
        (["*"], [], "localhost", Reason.NOT_ALLOWED_LOCAL, None),
        (["**.localhost"], [], "app.localhost", Reason.NOT_ALLOWED_LOCAL, None),
        (["**.localhost", "localhost"], [], "localhost", Reason.ALLOWED, "localhost"),
        (["127.0.0.1"], [], "127.0.0.1", Reason.ALLOWED, "127.0.0.1"),
        (["127.0.0.1"], [], "::ffff:127.0.0.1", Reason.ALLOWED, "127.0.0.1"),
        (["127.0.0.1"], [], "127.0.0.2", Reason.NOT_ALLOWED_LOCAL, None),
        (["*"], ["127.0.0.1"], "::ffff:127.0.0.1", Reason.DENIED, "127.0.0.1"),
        ([], [], "10.0.0.1", Reason.NOT_ALLOWED_LOCAL, None),
        ([], [], "93.184.216.34", Reason.NOT_ALLOWED, None),
    ],
)
def test_the_narrowest_rule_decides_and_a_denial_beats_all(
    allow: list[str], deny: list[str], host: str, reason: Reason, rule: str | None
) -> None:
    made = decide(parse_rules(allow, deny), parse_host(host), 443)
    assert (made.reason, str(made.rule) if made.rule else None) == (reason, rule)


def test_a_denial_without_a_port_is_about_every_port() -> None:
    rules = parse_rules(["a.example:22", "b.example"], ["a.example", "b.example:443"])
    assert decide(rules, Host("a.example"), 22).reason is Reason.DENIED
    assert decide(rules, Host("b.example"), 443).reason is Reason.DENIED
    assert decide(rules, Host("b.example"), 80).reason is Reason.ALLOWED


def test_private_addresses_need_a_rule_all_the_same() -> None:
    rules = parse_rules(["10.0.0.1", "db.example"], private=True)
    assert decide(rules, parse_host("10.0.0.1"), 443).allowed
    assert decide(rules, parse_host("10.0.0.2"), 443).reason is Reason.NOT_ALLOWED


@every_row(
    ("allow", "private", "host", "may"),
    [
        (["db.example"], False, "db.example", False),
        (["db.example"], True, "db.example", True),
        (["localhost"], False, "localhost", True),
        (["10.0.0.1"], False, "10.0.0.1", True),
        (["93.184.216.34"], False, "93.184.216.34", False),
    ],
)
def test_a_name_may_turn_out_private_only_where_that_was_granted(
    allow: list[str], private: bool, host: str, may: bool
) -> None:
    rules = parse_rules(allow, private=private)
    asked = parse_host(host)
    assert may_be_private(rules, asked, decide(rules, asked, 443)) == may


@every_row(
    "text",
    [
        "",
        "*.",
        "**.",
        "***.a",
        "*.*.a",
        "a.*",
        "a*.b",
        "*a.b",
        "*.127.0.0.1",
        "*.[::1]",
        "a:99999",
        "ftp://a",
        "a/b",
    ],
)
def test_what_is_no_rule_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert caught.value.remedy


def test_every_host_cannot_be_denied() -> None:
    with pytest.raises(UsageError, match="not denied"):
        parse_rule("*", denies=True)


def test_a_rule_of_the_wire_is_about_every_port() -> None:
    assert parse_rule("a.example", default_ports=None).ports is None
    assert parse_rule("a.example").ports == DEFAULT_PORTS


@every_row("text", ["a.example", "*.a.example", "**.a.example:22", "*", "[::1]:443", "[::1]", "1.2.3.4:1"])
def test_a_rule_is_shown_as_it_is_written(text: str) -> None:
    assert str(parse_rule(text)) == text


def test_many_rules_are_one_look_each() -> None:
    rules = parse_rules([f"n{number}.example" for number in range(1000)])
    assert len(rules._by_name) == 1000
    assert decide(rules, Host("n999.example"), 443).allowed
    assert rules == HostRules(rules.allow)


@every_row("letter", ["\u00df", "\u1e9e", "\u03c2", "\u200c", "\u200d"], ids=ascii)
def test_a_name_that_programs_write_in_two_ways_is_no_rule(letter: str) -> None:
    """Browsers ask for xn--strae-oqa.example, and Python for strasse.example, which is somebody else's."""
    name = f"stra{letter}e.example"
    for text in (name, f"*.{name}", f"{name}:443"):
        for denies in (False, True):
            with pytest.raises(UsageError, match="xn--"):
                parse_rule(text, denies=denies)
