"""What is said to an attempt, in which order, and in whose words."""

import pytest

from holdfast.egress.hosts import parse_host, parse_rule, parse_rules
from holdfast.egress.verdicts import (
    GRANTED,
    NOT_ALLOWED,
    NOT_PUBLIC,
    Attempt,
    Outcome,
    Protocol,
    ProxyPolicy,
    Source,
    Verdict,
    describe,
    explain,
    guard_mode,
    guard_port,
    is_explicit,
    judge,
    may_be_asked,
    name_error,
)
from tests.support.rows import every_row

POLICY = ProxyPolicy(
    parse_rules(["**.a.example", "127.0.0.1"], ["bad.a.example"]), review=(parse_rule("look.a.example"),)
)


@every_row(
    ("host", "outcome", "reason", "asked"),
    [
        ("a.example", Outcome.ALLOW, "allow", False),
        ("bad.a.example", Outcome.DENY, "denied", False),
        ("look.a.example", Outcome.DENY, "not_allowed", True),
        ("b.example", Outcome.DENY, "not_allowed", True),
        ("10.0.0.1", Outcome.DENY, "not_allowed_local", False),
        ("127.0.0.1", Outcome.ALLOW, "allow", False),
        ("localhost", Outcome.DENY, "not_allowed_local", False),
    ],
)
def test_only_what_no_rule_decides_is_asked_about(
    host: str, outcome: Outcome, reason: str, asked: bool
) -> None:
    verdict = judge(POLICY, parse_host(host), 443)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.source is Source.BASELINE
    assert may_be_asked(verdict) == asked
    assert not may_be_asked(GRANTED)


@every_row(
    ("protocol", "method", "port", "early", "late"),
    [
        (Protocol.HTTP, "GET", 80, None, None),
        (Protocol.HTTP, "OPTIONS", 8080, None, None),
        (Protocol.HTTP, "POST", 80, None, "method_not_allowed"),
        (Protocol.HTTP, "get", 80, None, "method_not_allowed"),
        (Protocol.HTTPS_CONNECT, "CONNECT", 443, None, "mitm_required"),
        (Protocol.SOCKS5_TCP, None, 443, None, "mitm_required"),
        (Protocol.SOCKS5_TCP, None, 80, "method_not_allowed", "mitm_required"),
    ],
)
def test_limited_mode_lets_reading_through_and_nothing_else(
    protocol: Protocol, method: str | None, port: int, early: str | None, late: str | None
) -> None:
    attempt = Attempt(protocol, parse_host("a.example"), port, "127.0.0.1:1", method)
    limited = ProxyPolicy(POLICY.rules, limited=True)
    found = [guard(limited, attempt) for guard in (guard_port, guard_mode)]
    assert [verdict and verdict.reason for verdict in found] == [early, late]
    assert [guard(POLICY, attempt) for guard in (guard_port, guard_mode)] == [None, None]
    assert not any(verdict.about_host for verdict in found if verdict)


def test_an_address_that_is_not_public_has_a_rule_of_its_own_or_not() -> None:
    assert is_explicit(POLICY, parse_host("127.0.0.1"), 80)
    assert not is_explicit(POLICY, parse_host("a.example"), 80)
    assert not is_explicit(POLICY, parse_host("10.0.0.1"), 80)


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (NOT_ALLOWED, "blocked-by-allowlist"),
        (NOT_PUBLIC, "blocked-by-allowlist"),
        (Verdict(Outcome.DENY, Source.BASELINE, "denied"), "blocked-by-denylist"),
        (Verdict(Outcome.DENY, Source.MODE, "method_not_allowed"), "blocked-by-method-policy"),
        (Verdict(Outcome.DENY, Source.MODE, "mitm_required"), "blocked-by-mitm-required"),
        (Verdict(Outcome.ASK, Source.DECIDER, "later"), "blocked-by-policy"),
    ],
)
def test_a_program_can_tell_the_refusals_apart(verdict: Verdict, error: str) -> None:
    attempt = Attempt(Protocol.HTTP, parse_host("B.example"), 80, "127.0.0.1:1", "GET")
    assert name_error(verdict) == error
    assert describe(attempt, verdict) == {
        "status": "blocked",
        "host": "b.example",
        "reason": verdict.reason,
        "decision": verdict.outcome.value,
        "source": verdict.source.value,
        "protocol": "http",
        "port": 80,
        "message": explain(verdict),
    }
