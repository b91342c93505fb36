"""What may be sent, what is refused, and what follows a redirect."""

import pytest

from holdfast.errors import UsageError
from holdfast.server import httprules
from holdfast.server.httprules import Header, Hop
from holdfast.wire.http import HttpHeader, HttpHeaderResult
from holdfast.wire.rpc import MAX_MESSAGE_BYTES
from tests.support.rows import every_row


@pytest.mark.parametrize("name", ["GET", "get", "Foo-bar!"])
def test_any_token_is_a_method_and_keeps_its_case(name: str) -> None:
    assert httprules.method(name) == name


@pytest.mark.parametrize("name", ["", "G ET", "GET\r\nX: y", "GÉT"])
def test_what_is_no_token_is_no_method(name: str) -> None:
    with pytest.raises(UsageError):
        httprules.method(name)


@every_row(
    ("given", "url", "authorization"),
    [
        ("http://host/a?b#secret", "http://host/a?b", None),
        ("HTTPS://host:8443", "HTTPS://host:8443", None),
        (" http://host/a\tb\n", "http://host/ab", None),
        ("http://bücher.example/", "http://bücher.example/", None),
        ("http://[::1]:8080/", "http://[::1]:8080/", None),
        ("http://u:p%40@host/", "http://host/", b"Basic dTpwQA=="),
        ("http://u@host/", "http://host/", b"Basic dTo="),
        ("http://:@host/", "http://host/", None),
    ],
)
def test_a_url_loses_its_fragment_and_its_credentials(
    given: str, url: str, authorization: bytes | None
) -> None:
    target = httprules.target(given)
    assert (target.url, target.authorization) == (url, authorization)


@every_row(
    "url",
    [
        "",
        "nope",
        "/a",
        "http://",
        "http:///a",
        "ftp://host/",
        "http://host:99999/",
        "http://[::1/",
        "http://a b/",
    ],
)
def test_a_url_that_cannot_be_fetched_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        httprules.target(url)
    assert not url or url not in str(caught.value)


def test_credentials_are_not_shown() -> None:
    assert "dTpw" not in repr(httprules.target("http://u:p@host/"))


def test_headers_keep_order_repeats_and_spelling() -> None:
    given = [HttpHeader("X-One", "1"), HttpHeader("b", " 2\t"), HttpHeader("x-one", "é")]
    assert httprules.headers(given, {}, body_bytes=0) == (
        Header(b"X-One", b"1"),
        Header(b"b", b"2"),
        Header(b"x-one", b"\xc3\xa9"),
    )


@every_row(
    ("name", "value"), [("a b", "1"), ("", "1"), ("é", "1"), ("a", "1\r\nb: 2"), ("a", "\x7f"), ("a", "\0")]
)
def test_a_header_that_would_break_the_request_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        httprules.headers([HttpHeader(name, value)], {}, body_bytes=0)
    assert "b: 2" not in str(caught.value)


@pytest.mark.parametrize("length", ["5", "x", ""])
def test_a_length_that_is_not_the_bodys_is_refused(length: str) -> None:
    with pytest.raises(UsageError):
        httprules.headers([HttpHeader("Content-Length", length)], {}, body_bytes=2)


def test_a_variable_is_appended_to_the_value() -> None:
    given = [HttpHeader("Authorization", "Bearer ", "TOKEN")]
    assert httprules.headers(given, {"TOKEN": "t"}, body_bytes=0) == (
        Header(b"Authorization", b"Bearer t", secret=True),
    )


@every_row(
    ("variable", "text"),
    [
        ("UNSET", "http/request header H requires executor environment variable UNSET"),
        ("EMPTY", "http/request header H requires a non-empty executor environment variable EMPTY"),
        ("OpenAI_API_key", "http/request header H cannot use executor environment variable OpenAI_API_key"),
        ("BROKEN", "http/request header value is invalid for H: failed to parse header value"),
        ("NOT_UTF8", "http/request header value is invalid for H: failed to parse header value"),
    ],
)
def test_a_variable_that_may_not_be_used_is_named(variable: str, text: str) -> None:
    environ = {"EMPTY": "", "OpenAI_API_key": "k", "BROKEN": "a\nb", "NOT_UTF8": "\udcff"}
    with pytest.raises(UsageError) as caught:
        httprules.headers([HttpHeader("H", "", variable)], environ, body_bytes=0)
    assert str(caught.value) == text


@every_row("variable", sorted(httprules.PROTECTED_VARIABLES))
def test_a_protected_variable_is_refused_even_if_unset(variable: str) -> None:
    with pytest.raises(UsageError, match="cannot use"):
        httprules.headers([HttpHeader("H", "", variable.lower())], {}, body_bytes=0)


def test_only_accept_and_host_are_added_to_a_plain_request() -> None:
    sent = httprules.to_send("GET", (), host=b"h:1", authorization=None, body_bytes=0)
    assert sent == [(b"accept", b"*/*"), (b"host", b"h:1")]


def test_what_the_client_set_is_not_set_again() -> None:
    names = (b"Host", b"ACCEPT", b"Authorization", b"Content-Length")
    chosen = tuple(Header(name, b"2") for name in names)
    sent = httprules.to_send("POST", chosen, host=b"h", authorization=b"Basic c", body_bytes=2)
    assert sent == [(name, value) for name, value, _ in chosen]


@pytest.mark.parametrize(
    ("method", "body_bytes", "length"), [("GET", 0, None), ("GET", 3, b"3"), ("POST", 0, b"0")]
)
def test_a_body_is_announced(method: str, body_bytes: int, length: bytes | None) -> None:
    sent = httprules.to_send(method, (), host=b"h", authorization=b"Basic c", body_bytes=body_bytes)
    assert dict(sent).get(b"content-length") == length
    assert (b"authorization", b"Basic c") in sent


def test_a_chunked_body_has_no_length() -> None:
    chosen = (Header(b"Transfer-Encoding", b"chunked"),)
    sent = httprules.to_send("POST", chosen, host=b"h", authorization=None, body_bytes=3)
    assert b"content-length" not in dict(sent)


@every_row(
    ("status", "method", "followed_by"),
    [
        *((status, method, method) for status in (307, 308) for method in ("GET", "HEAD", "POST", "PUT")),
        *((status, "POST", "GET") for status in (301, 302, 303)),
        *((status, "PUT", "PUT") for status in (301, 302)),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "GET", "GET"),
    ],
)
def test_a_redirect_changes_the_method_as_browsers_do(status: int, method: str, followed_by: str) -> None:
    hop = httprules.hop(status, method, (), same_origin=True)
    assert hop == Hop(followed_by, (), keep_body=method == followed_by)


def test_a_request_that_becomes_a_get_forgets_its_body() -> None:
    chosen = (Header(b"Content-Type", b"t"), Header(b"content-length", b"2"), Header(b"X", b"1"))
    assert httprules.hop(303, "POST", chosen, same_origin=True).headers == (Header(b"X", b"1"),)
    assert httprules.hop(307, "POST", chosen, same_origin=True).headers == chosen


def test_another_origin_gets_no_credentials() -> None:
    plain = (Header(b"X", b"1"),)
    credentials = tuple(
        Header(name, b"s") for name in (b"Authorization", b"Cookie", b"Proxy-Authorization", b"Host")
    )
    from_environment = (Header(b"X-Api-Key", b"s", secret=True),)
    chosen = plain + credentials + from_environment
    assert httprules.hop(307, "GET", chosen, same_origin=False).headers == plain
    assert httprules.hop(307, "GET", chosen, same_origin=True).headers == chosen


def test_received_headers_are_lower_case_and_text() -> None:
    raw = [(b"X-A", b"1"), (b"Set-Cookie", b"c"), (b"x-a", b"a\tb"), (b"X-Bin", b"\xff"), (b"E", b"")]
    assert httprules.read_headers(raw) == [
        HttpHeaderResult("x-a", "1"),
        HttpHeaderResult("set-cookie", "c"),
        HttpHeaderResult("x-a", "a\tb"),
        HttpHeaderResult("e", ""),
    ]


def test_a_large_chunk_is_cut_into_deltas() -> None:
    chunk = bytes(range(256)) * 4096 + b"rest"
    parts = list(httprules.pieces(chunk))
    assert [len(part) for part in parts] == [httprules.MAX_DELTA_BYTES, 4]
    assert b"".join(parts) == chunk


def test_the_largest_buffered_body_fits_one_message() -> None:
    assert 48_000_000 < httprules.MAX_BUFFERED_BYTES * 4 / 3 + 512 * 1024 < MAX_MESSAGE_BYTES
