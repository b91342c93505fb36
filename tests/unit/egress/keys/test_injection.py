"""Which requests get a key, where, and which are refused."""

import base64

import pytest

from holdfast.egress.keys.injection import BadUse, Headers, check_host, check_target, inject
from holdfast.egress.keys.placeholders import Key
from tests.support.rows import every_row

API = Key("API_KEY", "sk-the-real-key-1", "sk-placeholder-01", frozenset({("api.test", 443)}))
OTHER = Key("OTHER_KEY", "other-real-key-22", "other-placeholder", frozenset({("other.test", 443)}))
KEYS = (API, OTHER)


def put(*headers: tuple[bytes, bytes], host: str = "api.test", port: int = 443) -> Headers:
    return inject(list(headers), KEYS, host, port)


def test_a_placeholder_becomes_the_key_in_the_value_of_a_header() -> None:
    assert put((b"Authorization", b"Bearer sk-placeholder-01"), (b"X-Api-Key", b"sk-placeholder-01")) == [
        (b"Authorization", b"Bearer sk-the-real-key-1"),
        (b"X-Api-Key", b"sk-the-real-key-1"),
        (b"Accept-Encoding", b"identity"),
    ]


def test_it_is_found_in_the_password_of_a_user() -> None:
    [(_, value), _] = put((b"Authorization", b"Basic " + base64.b64encode(b"me:sk-placeholder-01")))
    assert base64.b64decode(value.split()[1]) == b"me:sk-the-real-key-1"
    odd = (b"Authorization", b"Basic not/base64!")
    assert put(odd)[0] == odd


def test_an_answer_is_asked_for_as_it_is_and_whole() -> None:
    asked = put(
        (b"Accept-Encoding", b"gzip"),
        (b"RANGE", b"bytes=0-9"),
        (b"If-Range", b"x"),
        (b"Request-Range", b"bytes=0-9"),
        (b"A-IM", b"gzip"),
        (b"Accept", b"*/*"),
    )
    assert asked == [(b"Accept", b"*/*"), (b"Accept-Encoding", b"identity")]


@every_row(
    ("name", "value", "why"),
    [
        (b"X-Other", b"other-placeholder", r"\$OTHER_KEY, which is not for this host"),
        (b"X-Sk-Placeholder-01".replace(b"Sk-P", b"sk-p"), b"1", r"\$API_KEY in the name of a header"),
        (b"Upgrade", b"websocket", "another protocol"),
        (b"Authorization", b"Basic " + base64.b64encode(b"me:other-placeholder"), "not for this host"),
    ],
    ids=str,
)
def test_a_key_where_it_does_not_belong_is_refused(name: bytes, value: bytes, why: str) -> None:
    with pytest.raises(BadUse, match=why):
        put((name, value))


def test_the_same_host_at_another_port_is_another_one() -> None:
    with pytest.raises(BadUse, match="not for this host"):
        put((b"Authorization", b"sk-placeholder-01"), port=8443)


@every_row(
    ("method", "target"),
    [
        (b"GET", b"/?key=sk-placeholder-01"),
        (b"GET", b"/sk%2Dplaceholder-01"),
        (b"GET", b"https://evil.test/"),
        (b"GET", b"evil.test"),
        (b"GET", b"*"),
        (b"CONNECT", b"/"),
        (b"CONNECT", b"api.test:443"),
    ],
    ids=str,
)
def test_a_target_is_a_path_without_a_key(method: bytes, target: bytes) -> None:
    check_target(b"GET", b"/fine?a=b", KEYS)
    check_target(b"OPTIONS", b"*", KEYS)
    with pytest.raises(BadUse):
        check_target(method, target, KEYS)


@every_row(
    "names",
    [(), (b"evil.test",), (b"api.test", b"api.test"), (b"api.test:80",), (b"api.test.evil",)],
    ids=str,
)
def test_a_request_names_its_host(names: tuple[bytes, ...]) -> None:
    for fine in (b"api.test", b"API.test.", b"api.test:443"):
        check_host([(b"Host", fine)], "api.test", 443)
    with pytest.raises(BadUse):
        check_host([(b"Host", name) for name in names], "api.test", 443)
