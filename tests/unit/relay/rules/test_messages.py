"""What the registry is asked and refuses."""

import json

import msgspec
import pytest

from holdfast.errors import RemoteProtocolError
from holdfast.relay.rules import messages
from holdfast.relay.rules.messages import Asked, decode, digest_of_key, later, parse_path
from holdfast.wire.registry import ConnectRequest, PublicKey, RegisterRequest, ValidateRequest
from tests.support.rows import every_row

KEY = PublicKey.of(b"x" * 32, b"m" * 1184)
BODY = msgspec.to_builtins(KEY)


@every_row(
    ("path", "wanted"),
    [
        ("/cloud/environment/box/register", Asked("register", "box")),
        ("/cloud/environment/a.b_c~d-1/connect", Asked("connect", "a.b_c~d-1")),
        ("/cloud/environment/box/validate", Asked("validate", "box")),
        ("/cloud/environment/box/direct/register", None),
        ("/cloud/environment/box/remove", None),
        ("/cloud/environment/a%20b/register", None),
        ("/cloud/environment/a/b/register", None),
        ("/cloud/environment//register", None),
        ("/cloud/environment/" + "x" * 129 + "/register", None),
        ("/cloud/environment/register", None),
        ("/", None),
    ],
)
def test_a_path_names_an_operation_or_nothing(path: str, wanted: Asked | None) -> None:
    assert parse_path(path) == wanted


def test_the_body_that_the_reference_sends_is_read() -> None:
    body = json.dumps({"security_profile": "noise_hybrid_ik_v1", "executor_public_key": BODY}).encode()
    assert decode(body, RegisterRequest).executor_public_key == KEY
    more = json.dumps({"harness_public_key": BODY, "new": 1}).encode()
    assert decode(more, ConnectRequest).harness_public_key == KEY


@every_row(
    "body",
    [
        b"", b"{}", b"[]", b"\xff", b"[" * 100_000,
        json.dumps({"harness_public_key": {**BODY, "more": 1}}).encode(),
        json.dumps({"harness_public_key": {**BODY, "suite": "other"}}).encode(),
        json.dumps({"harness_public_key": {**BODY, "x25519_public_key": "AAAA"}}).encode(),
        json.dumps({"harness_public_key": {**BODY, "mlkem768_public_key": "!"}}).encode(),
    ],
    ids=lambda body: repr(body[:60]),
)  # fmt: skip
def test_any_other_body_is_refused_and_not_repeated(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(body, ConnectRequest)
    assert str(caught.value) == messages.BAD_REQUEST.message


def test_a_message_does_not_show_what_is_in_it() -> None:
    body = {
        "executor_registration_id": "r",
        "harness_public_key": BODY,
        "harness_key_authorization": "s3cret",
    }
    assert "s3cret" not in repr(decode(json.dumps(body).encode(), ValidateRequest))


def test_each_key_has_a_digest_of_its_own() -> None:
    others = [PublicKey.of(b"y" * 32, b"m" * 1184), PublicKey.of(b"x" * 32, b"n" * 1184)]
    assert len({digest_of_key(key) for key in [KEY, *others]}) == 3
    assert digest_of_key(KEY) == digest_of_key(PublicKey.of(b"x" * 32, b"m" * 1184))


def test_a_refusal_is_the_envelope_of_the_reference() -> None:
    said = json.loads(messages.IS_OFFLINE.encode())["error"]
    assert (messages.IS_OFFLINE.status, said["code"]) == (409, "environment_offline")


def test_an_executor_is_told_to_come_back_in_the_only_words_that_it_heeds() -> None:
    for refusal in (messages.STORE_DOWN, messages.TOO_OFTEN):
        told = later(refusal, "register")
        assert (told.status, told.code) == (502, "authentication_service_unavailable")
        assert later(refusal, "connect") is refusal
    assert later(messages.FORBIDDEN, "register") is messages.FORBIDDEN
