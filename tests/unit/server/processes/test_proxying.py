"""From the client's settings to a proxy, and from its answers to verdicts."""

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from holdfast.egress.hosts import parse_host
from holdfast.egress.upstream import REPEATS, Proxies, Upstreams
from holdfast.egress.verdicts import GRANTED, UNDECIDED, Attempt, Outcome, Protocol, Source, Verdict, judge
from holdfast.errors import UsageError
from holdfast.server.processes.proxying import (
    HTTP_PORT,
    SOCKS_PORT,
    ProcessProxy,
    check,
    make_proxy,
    policy_of,
    read_answer,
    tell_decision,
)
from holdfast.wire.network import CredentialProvider, NetworkProxy, ProxySettings
from tests.support.rows import every_row

SETTINGS = ProxySettings(True, True, False, True, False, False, "full")


def asked(timeout_ms: int | None = None, **more: Any) -> NetworkProxy:
    return NetworkProxy(structs.replace(SETTINGS, **more), policy_decision_timeout_ms=timeout_ms)


async def nobody(*_asked: object) -> None:
    return None


def made(settings: NetworkProxy, *taken: int, upstream: Upstreams | None = None) -> ProcessProxy:
    return make_proxy(
        "p", settings, taken=taken, upstream=upstream or Upstreams(), ask=nobody, offer=lambda _message: None
    )


def test_a_proxy_has_two_ports_inside_that_nothing_else_has() -> None:
    proxy = made(asked())
    assert proxy.ports == (SOCKS_PORT, HTTP_PORT)
    assert proxy.variables["HTTP_PROXY"] == f"http://127.0.0.1:{HTTP_PORT}"
    assert proxy.variables["ALL_PROXY"] == f"socks5h://127.0.0.1:{SOCKS_PORT}"
    assert made(asked(), HTTP_PORT, SOCKS_PORT).ports == (SOCKS_PORT + 1, HTTP_PORT + 1)
    assert made(asked(enable_socks5=False)).ports == (HTTP_PORT,)


def test_an_upstream_proxy_is_declared_where_it_is_used() -> None:
    above = Upstreams(Proxies.from_environ({"HTTPS_PROXY": "http://p"}))
    assert made(asked(), upstream=above).weakened == (REPEATS,)
    assert made(asked(allow_upstream_proxy=False), upstream=above).weakened == ()
    assert made(asked(), upstream=Upstreams(Proxies.from_environ({}))).weakened == ()


@every_row(
    "settings",
    [
        asked(enabled=False),
        asked(dangerously_allow_all_unix_sockets=True),
        asked(credential_providers={"x": CredentialProvider()}),
        asked(0),
    ],
)
def test_what_cannot_be_meant_or_had_is_refused(settings: NetworkProxy) -> None:
    with pytest.raises(UsageError):
        check("p", settings)


@pytest.mark.parametrize("name", ["", "x" * 257, "ä" * 129])
def test_who_is_asked_needs_a_name_to_be_asked_about(name: str) -> None:
    check(name, asked())
    with pytest.raises(UsageError, match="256"):
        check(name, asked(1))


@every_row("pattern", ["", "a b", "http://a", "*.", "a..b", "*.*.x"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="invalid network proxy config"):
        policy_of(structs.replace(SETTINGS, domains={pattern: "allow"}))


def test_the_settings_become_rules_for_every_port() -> None:
    policy = policy_of(
        structs.replace(
            SETTINGS,
            domains={"a.example": "allow", "*.a.example": "deny", "c.example": "none", "*": "allow"},
            review_domains=["r.example"],
            mode="limited",
            allow_local_binding=True,
        )
    )
    reasons = {
        name: judge(policy, parse_host(name), 4711).reason
        for name in ("a.example", "b.a.example", "c.example", "r.example", "127.0.0.1")
    }
    assert reasons == {
        "a.example": "allow",
        "b.a.example": "denied",
        "c.example": "allow",
        "r.example": "not_allowed",
        "127.0.0.1": "allow",
    }
    assert policy.limited
    with pytest.raises(UsageError, match="not denied"):
        policy_of(structs.replace(SETTINGS, domains={"*": "deny"}))


@every_row(
    ("answer", "verdict"),
    [
        ({"decision": {"type": "allow"}}, GRANTED),
        ({"decision": {"type": "deny", "reason": "no"}}, Verdict(Outcome.DENY, Source.DECIDER, "no")),
        ({"decision": {"type": "ask", "reason": "later"}}, Verdict(Outcome.ASK, Source.DECIDER, "later")),
        (
            {"decision": {"type": "deny", "reason": ""}},
            Verdict(Outcome.DENY, Source.DECIDER, "policy_denied"),
        ),
        ({"decision": {"type": "deny", "reason": "x" * 1025}}, UNDECIDED),
        ({"decision": {"type": "ask", "reason": "a\nb"}}, UNDECIDED),
        ({"decision": {"type": "deny"}}, UNDECIDED),
        ({"decision": {"type": "perhaps", "reason": "x"}}, UNDECIDED),
        ({"decision": "allow"}, UNDECIDED),
        ({}, UNDECIDED),
        (None, UNDECIDED),
        ("allow", UNDECIDED),
    ],
)
def test_anything_but_an_answer_is_no(answer: object, verdict: Verdict) -> None:
    assert read_answer(answer) == verdict


def test_a_record_says_who_decided_what_and_when() -> None:
    attempt = Attempt(Protocol.HTTP, parse_host("A.example"), 80, "127.0.0.1:5", "GET")
    now = datetime(2026, 11, 15, 20, 59, 50, 929_999, UTC)
    assert json.loads(tell_decision("p1", attempt, GRANTED, now)) == {
        "method": "network/policyDecision",
        "params": {
            "processId": "p1",
            "timestamp": "2026-11-15T20:59:50.929Z",
            "scope": "domain",
            "decision": "allow",
            "source": "decider",
            "reason": "not_allowed",
            "protocol": "http",
            "host": "a.example",
            "port": 80,
            "method": "GET",
            "client": "127.0.0.1:5",
            "policyOverride": True,
        },
    }
    long = dataclasses.replace(attempt, method="X" * 33)
    assert "method" not in json.loads(tell_decision("p1", long, GRANTED, now))["params"]
