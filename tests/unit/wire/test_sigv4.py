"""Signatures of AWS, Version 4: its published examples, and what of a request nobody can change."""

import pytest

from holdfast.errors import PeerRefused
from holdfast.wire import sigv4
from holdfast.wire.sigv4 import MAX_REPLAYS, MAX_SKEW_S, AwsKeys, HttpRequest, Replays, Scope, sign, verify
from tests.support.rows import every_row

# From AWS's public documentation and its test suite for implementers.
EXAMPLE = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
THEN = 1440938160.0  # 20150830T123600Z
HERE = Scope("us-east-1", "service")
HOST = ("host", "example.amazonaws.com")
FORM = ("content-type", "application/x-www-form-urlencoded")

KEYS = AwsKeys("AKID", "secret", "session")
REQUEST = HttpRequest("POST", "/a/b%20c?x=1&y=%2F", (("content-type", "text/plain"), HOST), b"body")


@every_row(
    ("request", "signature"),
    [
        (
            HttpRequest("GET", "/", (HOST,)),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            HttpRequest("GET", "/?Param2=value2&Param1=value1", (HOST,)),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            HttpRequest("GET", "/", (HOST, ("my-header1", " value1"), ("my-header2", ' "a   b   c"'))),
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        (
            HttpRequest("GET", "/", (HOST, *(("my-header1", f"value{n}") for n in (2, 2, 1)))),
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        ),
        (
            HttpRequest("GET", "/ሴ", (HOST,)),
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
        (
            HttpRequest("GET", "/example space/", (HOST,)),
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        ),
        (
            HttpRequest("GET", "//example//", (HOST,)),
            "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        ),
        (
            HttpRequest("GET", "/example/..", (HOST,)),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            HttpRequest("POST", "/", (HOST, FORM), b"Param1=value1"),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
    ids=str,
)
def test_published_examples_are_signed_as_published(request: HttpRequest, signature: str) -> None:
    assert sign(request, EXAMPLE, HERE, THEN)["authorization"].endswith(f"Signature={signature}")


def test_the_example_of_the_documentation_is_signed_as_there() -> None:
    headers = (
        ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("host", "iam.amazonaws.com"),
    )
    request = HttpRequest("GET", "/?Action=ListUsers&Version=2010-05-08", headers)
    assert sign(request, EXAMPLE, Scope("us-east-1", "iam"), THEN) == {
        "x-amz-date": "20150830T123600Z",
        "authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    }


def signed(request: HttpRequest = REQUEST, keys: AwsKeys = KEYS, now: float = THEN) -> HttpRequest:
    return request._replace(headers=(*request.headers, *sign(request, keys, HERE, now).items()))


def check(request: HttpRequest, *, now: float = THEN, scope: Scope = HERE) -> sigv4.Signed:
    return verify(request, {KEYS.key_id: KEYS}.get, scope, now)


def test_who_signed_is_known_whatever_was_added_on_the_way() -> None:
    added = signed()._replace(headers=(*signed().headers, ("accept", "*/*"), ("via", "a proxy")))
    assert check(added).key_id == "AKID"
    assert check(added) == check(signed())


def changed(name: str, value: str) -> HttpRequest:
    headers = signed().headers
    return signed()._replace(headers=tuple((one, value if one == name else old) for one, old in headers))


@every_row(
    "forged",
    [
        signed()._replace(method="GET"),
        signed()._replace(target="/a/b%20c?x=1&y=%2E"),
        signed()._replace(target="/a/b%20d?x=1&y=%2F"),
        signed()._replace(body=b"other"),
        changed("host", "elsewhere"),
        changed("content-type", "text/html"),
        changed("x-amz-date", "20150830T123601Z"),
        changed("x-amz-security-token", "another"),
        signed(keys=KEYS._replace(secret="another")),
        signed(keys=KEYS._replace(key_id="ANOTHER")),
        signed(keys=KEYS._replace(session_token=None)),
        signed()._replace(headers=(*signed().headers, ("host", "elsewhere"))),
        signed()._replace(headers=(*signed().headers, ("x-amz-target", "unsigned"))),
        signed()._replace(headers=(*signed().headers, signed().headers[-1])),  # two say who signed
        signed()._replace(headers=tuple(one for one in signed().headers if one[0] != "authorization")),
        changed("authorization", dict(signed().headers)["authorization"].replace("host;", "")),
        changed("authorization", dict(signed().headers)["authorization"].replace("AWS4", "AWS3")),
        changed("authorization", "Bearer token"),
        changed("x-amz-date", "20150830T993600Z"),
    ],
    ids=lambda one: str(one)[:80],
)
def test_what_is_changed_or_signed_by_somebody_else_is_refused(forged: HttpRequest) -> None:
    with pytest.raises(PeerRefused) as refused:
        check(forged)
    assert "secret" not in str(refused.value)


def test_a_signature_is_good_for_minutes_in_one_place() -> None:
    check(signed(), now=THEN + MAX_SKEW_S)
    check(signed(), now=THEN - MAX_SKEW_S)
    for now in (THEN + MAX_SKEW_S + 1, THEN - MAX_SKEW_S - 1):
        with pytest.raises(PeerRefused, match="another time"):
            check(signed(), now=now)
    for scope in (Scope("eu-west-1", "service"), Scope("us-east-1", "s3")):
        with pytest.raises(PeerRefused, match="region or service"):
            check(signed(), scope=scope)


def test_what_has_come_is_remembered_for_as_long_as_it_would_be_good() -> None:
    replays = Replays()
    replays.note("a", 0.0)
    replays.note("b", 1.0)
    with pytest.raises(PeerRefused, match="before"):
        replays.note("a", 2 * MAX_SKEW_S - 1)
    replays.note("a", 2 * MAX_SKEW_S)  # nobody takes it any more by its date


def test_only_so_much_is_remembered_and_then_nobody_is_let_in() -> None:
    replays = Replays()
    for number in range(MAX_REPLAYS):
        replays.note(str(number), 0.0)
    with pytest.raises(PeerRefused, match="too many"):
        replays.note("one more", 1.0)
    replays.note("one more", 2 * MAX_SKEW_S)


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(KEYS)
    assert "secret" not in f"{(KEYS,)}"
