"""Addresses that speak for themselves."""

from urllib.parse import urlsplit

from holdfast.relay.rules.signedurl import Claim, Rejected, decode_key, sign, verify
from tests.support.rows import every_row

KEY, OTHER = b"k" * 32, b"o" * 32
EXECUTOR = Claim("box", "environment", "t", "reg_1", 2_000)
HARNESS = Claim("box", "harness", "t", "reg_1", 2_000, "bundle")


def read(address: str, key: bytes = KEY, now: float = 1_000.0) -> Claim | Rejected:
    parts = urlsplit(address)
    return verify(parts.path, parts.query, key, now)


@every_row("claim", [EXECUTOR, HARNESS, HARNESS._replace(environment="a.b~c-_", tenant="x.y")], ids=repr)
def test_what_was_signed_is_read_again(claim: Claim) -> None:
    assert read(sign(claim, KEY)) == claim


def test_it_is_good_until_it_expires_and_for_nobody_elses_key() -> None:
    assert read(sign(EXECUTOR, KEY), now=1_999.9) == EXECUTOR
    assert read(sign(EXECUTOR, KEY), now=2_000.0) == Rejected("expired")
    assert read(sign(EXECUTOR, OTHER)) == Rejected("invalid_signature")


def test_a_bundle_that_the_store_has_yet_to_judge_is_read_by_a_clock_that_is_ahead() -> None:
    assert read(sign(HARNESS, KEY), now=2_299.9) == HARNESS
    assert read(sign(HARNESS, KEY), now=2_300.0) == Rejected("expired")


def changed(old: str, new: str) -> str:
    address = sign(HARNESS, KEY)
    assert old in address
    return address.replace(old, new)


@every_row(
    ("address", "code"),
    [
        ("/elsewhere?v=1", "unknown_route"),
        ("/ws/environment/a/b?v=1", "unknown_route"),
        ("/ws/environment/?v=1", "unknown_route"),
        ("/ws/environment/box", "missing_version"),
        ("/ws/environment/box?v", "malformed_query"),
        (changed("v=1&", ""), "missing_version"),
        (changed("v=1", "v=2"), "missing_version"),
        (changed("role=harness&", ""), "missing_role"),
        (changed("role=harness", "role=boss"), "invalid_role"),
        (sign(HARNESS, KEY).partition("&sig=")[0], "missing_signature"),
        (sign(HARNESS, KEY).partition("&sig=")[0] + "&sig=", "missing_signature"),
        (changed("exp=2000&", ""), "missing_expiry"),
        (changed("exp=2000", "exp=2000.5"), "invalid_expiry"),
        (changed("exp=2000", "exp=٢٠٠٠"), "invalid_expiry"),
        (changed("&sig=", "&more=1&sig="), "extra_query_param"),
        (changed("role=harness", "role=environment"), "extra_query_param"),
        (changed("id=bundle&", ""), "malformed_query"),
        (changed("v=1", "v=1&v=1"), "malformed_query"),
        (changed("exp=2000", "exp=3000"), "invalid_signature"),
        (changed("reg=reg_1", "reg=reg_2"), "invalid_signature"),
        (changed("tenant=t", "tenant=u"), "invalid_signature"),
        (changed("/box?", "/bax?"), "invalid_signature"),
        (changed("&sig=", "&sig=A"), "invalid_signature"),
        (changed("&sig=", "&sig=%C3%BC"), "invalid_signature"),
        ("/ws/environment/box?" + "&".join(f"a{n}=1" for n in range(20)), "malformed_query"),
    ],
)
def test_anything_else_is_rejected_with_its_code(address: str, code: str) -> None:
    assert read(address) == Rejected(code)


def test_the_key_is_kept_in_hex() -> None:
    assert decode_key(KEY.hex()) == KEY
