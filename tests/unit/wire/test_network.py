"""The shapes of questions, answers and records about the network, as the reference's client knows them."""

import json

import msgspec
import pytest

from holdfast.wire import rpc
from holdfast.wire.network import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    NetworkProxy,
    PolicyAnswer,
    PolicyDecision,
    PolicyQuestion,
    PolicyReply,
    PolicyRequest,
    is_plain,
)
from tests.support.rows import every_row


def test_a_question_has_the_shape_that_the_reference_sends() -> None:
    asked = PolicyRequest("p1", PolicyQuestion("https_connect", "example.net", 443))
    assert json.loads(rpc.request(1, "network/policyRequest", asked)) == {
        "id": 1,
        "method": "network/policyRequest",
        "params": {
            "processId": "p1",
            "request": {"protocol": "https_connect", "host": "example.net", "port": 443},
        },
    }


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        (AllowDecision(), {"type": "allow"}),
        (DenyDecision("no"), {"type": "deny", "reason": "no"}),
        (AskDecision("later"), {"type": "ask", "reason": "later"}),
    ],
)
def test_an_answer_has_a_type_and_a_reason_unless_it_allows(
    answer: PolicyAnswer, shape: dict[str, str]
) -> None:
    reply = PolicyReply(answer)
    assert json.loads(rpc.response(1, reply))["result"] == {"decision": shape}
    assert msgspec.convert({"decision": shape | {"more": 1}}, PolicyReply) == reply


@every_row(
    "shape", [{}, {"type": "deny"}, {"type": "perhaps", "reason": "x"}, {"type": "ask", "reason": None}]
)
def test_what_is_no_answer_does_not_decode(shape: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"decision": shape}, PolicyReply)


def test_a_record_leaves_out_what_is_not_known() -> None:
    record = PolicyDecision(
        "p1", "2026-11-15T20:59:50.929Z", "domain", "deny", "decider", "nope", "socks5_tcp", "a.example", 443
    )
    shape = {
        "processId": "p1",
        "timestamp": "2026-11-15T20:59:50.929Z",
        "scope": "domain",
        "decision": "deny",
        "source": "decider",
        "reason": "nope",
        "protocol": "socks5_tcp",
        "host": "a.example",
        "port": 443,
        "policyOverride": False,
    }
    assert json.loads(rpc.notification("network/policyDecision", record))["params"] == shape
    assert msgspec.convert(shape, PolicyDecision) == record


def test_what_the_client_keeps_for_itself_is_taken_and_not_looked_at() -> None:
    settings = {
        "enabled": True,
        "enableSocks5": False,
        "enableSocks5Udp": True,
        "allowUpstreamProxy": True,
        "dangerouslyAllowAllUnixSockets": False,
        "mode": "limited",
        "domains": {"a.example": "allow", "b.example": "none"},
        "unixSockets": None,
        "allowLocalBinding": True,
    }
    audit: dict[str, object] = {"conversationId": "c", "slug": None, "newer": {}}
    made = msgspec.convert({"proxy": settings, "auditMetadata": audit}, NetworkProxy)
    assert (made.proxy.enable_socks5, made.proxy.mode) == (False, "limited")
    assert made.policy_decision_timeout_ms is None


@every_row(
    ("text", "plain"),
    [("", True), ("a b", True), ("ä" * 5, True), ("ä" * 6, False), ("a\n", False), ("a\x1b[31m", False)],
)
def test_a_text_of_the_peer_is_short_and_harmless_or_not(text: str, plain: bool) -> None:
    assert is_plain(text, 10) == plain
