"""The registry's messages: their bytes, what is refused, and what a failure means."""

import base64
import json

import msgspec
import pytest

from holdfast.wire import registry
from holdfast.wire.registry import (
    ConnectAnswer,
    PublicKey,
    RegisterAnswer,
    RegisterRequest,
    may_pass,
    read_failure,
    url_of,
)
from tests.support.rows import every_row

KEY = PublicKey.of(bytes(32), bytes(1184))
SPELLED = {
    "suite": "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256",
    "x25519_public_key": base64.b64encode(bytes(32)).decode(),
    "mlkem768_public_key": base64.b64encode(bytes(1184)).decode(),
}


def test_a_registration_has_the_bytes_of_the_reference() -> None:
    body = msgspec.json.encode(RegisterRequest(registry.PROFILE, KEY))
    assert len(body) == 1792
    wanted = {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": SPELLED}
    assert body == json.dumps(wanted, separators=(",", ":")).encode()


def test_a_key_is_read_again() -> None:
    assert msgspec.json.decode(json.dumps(SPELLED), type=PublicKey) == KEY


@every_row(
    "change",
    [
        {"suite": "Noise_IK_25519_AESGCM_SHA256"},
        {"suite": None},
        {"x25519_public_key": base64.b64encode(bytes(31)).decode()},
        {"x25519_public_key": "A" * 43},
        {"x25519_public_key": "*" * 44},
        {"mlkem768_public_key": base64.b64encode(bytes(1185)).decode()},
        {"comment": "mine"},
    ],
    ids=str,
)
def test_a_key_that_is_not_exactly_one_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(SPELLED | change), type=PublicKey)


@every_row("missing", list(SPELLED))
def test_a_key_lacks_nothing(missing: str) -> None:
    partly = {name: value for name, value in SPELLED.items() if name != missing}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(partly), type=PublicKey)


def test_more_members_of_an_answer_are_ignored_and_another_profile_is_not() -> None:
    answer = {
        "environment_id": "e",
        "url": "ws://x",
        "security_profile": "noise_hybrid_ik_v1",
        "executor_registration_id": "r",
        "more": 1,
    }
    assert msgspec.json.decode(json.dumps(answer), type=RegisterAnswer).url == "ws://x"
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(answer | {"security_profile": "plain"}), type=RegisterAnswer)


def test_what_may_hold_a_secret_shows_only_its_name() -> None:
    bundle = ConnectAnswer("env", "ws://x?sig=SECRET", registry.PROFILE, "reg", KEY, "SECRET")
    assert repr(bundle) == "<ConnectAnswer>"


@every_row(
    ("base", "wanted"),
    [
        ("http://h:1", "http://h:1/cloud/environment/e/connect"),
        (" http://h/api// ", "http://h/api/cloud/environment/e/connect"),
    ],
)
def test_an_address_is_put_together_without_being_interpreted(base: str, wanted: str) -> None:
    assert url_of(base, " e ", "connect") == wanted


@every_row(
    ("body", "code", "message"),
    [
        (b'{"error":{"code":"c","message":"m"}}', "c", "m"),
        (b'{"detail":{"code":"c","message":"m"}}', "c", "m"),
        (b'{"error":{"code":"c"}}', "c", '{"error":{"code":"c"}}'),
        (b'{"error":"text"}', None, '{"error":"text"}'),
        (b" words \n", None, "words"),
        (b"\xff", None, "\ufffd"),
        (b"", None, "the registry gives no reason"),
        (b"x" * 5000, None, "x" * 4096),
        (b'{"error":{"code":"' + b"c" * 65 + b'","message":"m"}}', "c" * 64, "m"),
    ],
    ids=range(9),
)
def test_a_refusal_is_read_whatever_its_body(body: bytes, code: str | None, message: str) -> None:
    assert read_failure(418, body) == (418, code, message)


@every_row(
    ("status", "code", "wanted"),
    [
        (500, None, True),
        (502, None, True),
        (503, None, True),
        (408, None, True),
        (429, None, True),
        (409, "environment_offline", True),
        (409, "registration_conflict", False),
        (409, None, False),
        (400, "environment_offline", False),
        (401, None, False),
        (403, None, False),
        (404, None, False),
        (302, None, False),
    ],
)
def test_what_may_pass_is_asked_again(status: int, code: str | None, wanted: bool) -> None:
    assert may_pass(status, code) is wanted
