"""Who is let in, and that nothing leaks on the way."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping

import pytest

from holdfast.errors import PeerRefused, StartupError
from holdfast.server.edges.auth import CapabilityToken, SignedToken, load
from tests.support.rows import every_row

KEY = b"k" * 32
NOW = 1_800_000_000.0
HS256 = {"alg": "HS256", "typ": "JWT"}


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(
    claims: object, *, key: bytes = KEY, head: Mapping[str, object] = HS256, digest: str = "sha256"
) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = encode(json.dumps(head).encode()) + "." + encode(payload)
    return "Bearer " + signed + "." + encode(hmac.digest(key, signed.encode(), digest))


@every_row("header", ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret", "Bearer s3cret "], ids=repr)
@every_row(
    "token",
    [
        CapabilityToken.from_text("s3cret"),
        CapabilityToken.from_sha256(hashlib.sha256(b"s3cret").hexdigest().upper()),
    ],
    ids=["text", "sha256"],
)
def test_the_capability_opens_the_door(token: CapabilityToken, header: str) -> None:
    token.check(header, NOW)


@every_row(
    ("header", "text"),
    [
        (None, "missing websocket bearer token"),
        ("", "invalid authorization header"),
        ("s3cret", "invalid authorization header"),
        ("Bearer", "invalid authorization header"),
        ("Bearer ", "invalid authorization header"),
        ("Bearer\ts3cret", "invalid authorization header"),
        ("Basic s3cret", "invalid authorization header"),
        ("Bearer é", "invalid authorization header"),
        ("Bearer s3cre", "invalid websocket bearer token"),
        ("Bearer S3cret", "invalid websocket bearer token"),
    ],
)
def test_anything_else_is_refused(header: str | None, text: str) -> None:
    with pytest.raises(PeerRefused) as caught:
        CapabilityToken.from_text("s3cret").check(header, NOW)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW + 60},
        {"exp": int(NOW - 29)},
        {"exp": NOW + 60, "nbf": NOW + 29.5},
        {"exp": NOW + 60, "nbf": None, "iat": NOW + 600, "iss": "any", "aud": ["any"]},
    ],
)
def test_a_signed_token_is_good_for_its_time_and_the_skew(claims: dict[str, object]) -> None:
    SignedToken(KEY).check(jwt(claims), NOW)


@every_row(
    ("claims", "text"),
    [
        ({"exp": NOW - 31}, "expired websocket jwt"),
        ({"exp": NOW - 31, "nbf": NOW + 31}, "expired websocket jwt"),
        ({"exp": NOW + 60, "nbf": NOW + 31}, "websocket jwt is not valid yet"),
        *(
            (claims, "invalid websocket jwt")
            for claims in (
                {},
                {"exp": None},
                {"exp": str(int(NOW + 60))},
                {"exp": True},
                {"exp": 2**63},
                {"exp": NOW + 60, "nbf": "soon"},
                {"exp": NOW + 60, "nbf": -(2**63)},
                {"exp": NOW + 60, "iss": 5},
                {"exp": NOW + 60, "aud": ["a", 5]},
                [1],
                b"not json",
                b"\xff",
                b'{"exp":1e999}',
                b'{"exp":NaN}',
                b'{"exp":1,"exp":9999999999}',
            )
        ),
    ],
)
def test_a_token_outside_its_time_or_without_one_is_refused(claims: object, text: str) -> None:
    with pytest.raises(PeerRefused) as caught:
        SignedToken(KEY).check(jwt(claims), NOW)
    assert str(caught.value) == text


def test_a_token_nested_too_deep_to_read_is_refused() -> None:
    with pytest.raises(PeerRefused):
        SignedToken(KEY).check(jwt(b"[" * 100_000), NOW)


GOOD = jwt({"exp": NOW + 60})


@every_row(
    "header",
    [
        jwt({"exp": NOW + 60}, key=b"z" * 32),
        jwt({"exp": NOW + 60}, head={"alg": "none"}),
        jwt({"exp": NOW + 60}, head={"alg": "hs256"}),
        jwt({"exp": NOW + 60}, head={"alg": "HS512"}, digest="sha512"),
        jwt({"exp": NOW + 60}, head={}),
        GOOD.rpartition(".")[0],
        GOOD.rpartition(".")[0] + ".",
        GOOD + "=",
        GOOD + ".x",
        GOOD[:-4] + "!!!!",
        GOOD[:-1],
        "Bearer abc",
        "Bearer ..",
    ],
)
def test_a_token_we_did_not_sign_is_refused(header: str) -> None:
    with pytest.raises(PeerRefused) as caught:
        SignedToken(KEY).check(header, NOW)
    assert str(caught.value) == "invalid websocket jwt"


@every_row(
    ("claims", "text"),
    [
        ({"iss": "me", "aud": "you"}, None),
        ({"iss": "me", "aud": ["x", "you"]}, None),
        ({"aud": "you"}, "websocket jwt issuer mismatch"),
        ({"iss": "x", "aud": "x"}, "websocket jwt issuer mismatch"),
        ({"iss": "me"}, "websocket jwt audience mismatch"),
        ({"iss": "me", "aud": []}, "websocket jwt audience mismatch"),
        ({"iss": "me", "aud": "yo"}, "websocket jwt audience mismatch"),
        ({"iss": "me", "aud": "youth"}, "websocket jwt audience mismatch"),
    ],
)
def test_issuer_and_audience_must_match_when_asked_for(claims: dict[str, object], text: str | None) -> None:
    token = SignedToken(KEY, issuer="me", audience="you")
    header = jwt({"exp": NOW + 60} | claims)
    if text is None:
        token.check(header, NOW)
        return
    with pytest.raises(PeerRefused) as caught:
        token.check(header, NOW)
    assert str(caught.value) == text


def test_secrets_are_not_shown() -> None:
    shown = repr(CapabilityToken.from_text("s3cret")) + repr(SignedToken(KEY))
    assert "s3cret" not in shown
    assert "kkkk" not in shown


def test_no_flags_mean_no_authentication() -> None:
    assert load(None) is None


def test_what_the_flags_describe_is_loaded() -> None:
    by_text = load("capability-token", token_file_text=" s3cret\n")
    by_digest = load("capability-token", token_sha256=f" {hashlib.sha256(b's3cret').hexdigest()} ")
    signed = load("signed-bearer-token", secret_bytes=KEY + b"\n", issuer="i", audience="a", skew_s=0)
    assert by_text is not None
    assert by_digest is not None
    assert signed is not None
    by_text.check("Bearer s3cret", NOW)
    by_digest.check("Bearer s3cret", NOW)
    signed.check(jwt({"exp": NOW, "iss": "i", "aud": "a"}), NOW)
    with pytest.raises(PeerRefused):
        signed.check(jwt({"exp": NOW - 1, "iss": "i", "aud": "a"}), NOW)


@every_row(
    ("mode", "flags", "named"),
    [
        (None, {"token_file_text": "t"}, "--ws-auth"),
        (None, {"skew_s": 5}, "--ws-max-clock-skew-seconds"),
        ("capability-token", {}, "--ws-token-file"),
        ("capability-token", {"token_file_text": " \n"}, "--ws-token-file"),
        ("capability-token", {"token_sha256": "abc"}, "--ws-token-sha256"),
        ("capability-token", {"token_sha256": "g" * 64}, "--ws-token-sha256"),
        ("capability-token", {"token_sha256": "a" * 64, "token_file_text": "t"}, "mutually exclusive"),
        ("capability-token", {"token_file_text": "t", "issuer": "x"}, "--ws-issuer"),
        ("signed-bearer-token", {}, "--ws-shared-secret-file"),
        ("signed-bearer-token", {"secret_bytes": b"k" * 31 + b"\n"}, "--ws-shared-secret-file"),
        ("signed-bearer-token", {"secret_bytes": KEY, "token_sha256": "a" * 64}, "--ws-token-sha256"),
        ("signed-bearer-token", {"secret_bytes": KEY, "skew_s": -1}, "--ws-max-clock-skew-seconds"),
        ("other", {}, "--ws-auth"),
    ],
)
def test_flags_that_do_not_fit_together_are_named(
    mode: str | None, flags: dict[str, object], named: str
) -> None:
    with pytest.raises(StartupError, match=named):
        load(mode, **flags)  # type: ignore[arg-type]  # the table holds values of several types
