"""Every request of a connection names its host, and none is hidden in what looks like the body of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.requests import MAX_HEAD, BadRequest, RequestReader
from tests.support.rows import every_row

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"


def reader(port: int = 80) -> RequestReader:
    return RequestReader("a.example", port)


def request(*headers: str, line: str = "GET / HTTP/1.1", host: str | None = "a.example") -> bytes:
    named = () if host is None else (f"Host: {host}",)
    return "\r\n".join((line, *named, *headers, "", "")).encode("latin-1")


FINE = [
    GET,
    GET + GET,
    request(host="A.Example."),
    request(host="a.example:80"),
    request(line="OPTIONS * HTTP/1.1"),
    request(line="GET http://a.example/x HTTP/1.1"),
    request(line="GET HTTP://a.example:80 HTTP/1.1"),
    request(line="GET / HTTP/1.0"),
    request("Content-Length: 5", line="POST / HTTP/1.1") + b"hello" + GET,
    request("Content-Length: 0", line="POST / HTTP/1.1") + GET,
    request("Transfer-Encoding: chunked", line="POST / HTTP/1.1") + b"5\r\nhello\r\n0\r\n\r\n" + GET,
    request("Transfer-Encoding: Chunked", line="PUT / HTTP/1.1")
    + b"A;x=1\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
    request("Content-Length: 37", line="POST / HTTP/1.1") + b"GET / HTTP/1.1\r\nHost: other.example\r\n",
]


@every_row("sent", FINE)
def test_requests_for_the_host_are_passed_on_as_they_are(sent: bytes) -> None:
    assert reader().feed(sent) == sent
    whole, passed = reader(), b""
    for at in range(len(sent)):
        passed += whole.feed(sent[at : at + 1])
    assert passed == sent


ODD = [
    request(host="other.example"),
    request(host=None),
    request("Host: a.example"),
    request(host="a.example:81"),
    request(host="a.example@other.example"),
    request(host="a.example, other.example"),
    request(host=""),
    request(host="[::1]"),
    request(line="GET http://other.example/ HTTP/1.1"),
    request(line="GET https://a.example/ HTTP/1.1"),
    request(line="GET http://a.example@other.example/ HTTP/1.1"),
    request(line="GET //other.example HTTP/2.0"),
    request(line="CONNECT other.example:443 HTTP/1.1"),
    request(line="CONNECT a.example:443 HTTP/1.1"),
    request(line="GET a.example HTTP/1.1"),
    b"GET /\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n" + GET,
    b"GET / HTTP/1.1\nHost: a.example\n\n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a.example\r\n folded: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a.example\r\nX: a\nHost: other.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a.example\0\r\n\r\n",
    b"GET /\0 HTTP/1.1\r\nHost: a.example\r\n\r\n",
    request("Content-Length: 5", "Content-Length: 6"),
    request("Content-Length: +5"),
    request("Content-Length: 5, 5"),
    request("Transfer-Encoding: chunked", "Content-Length: 5"),
    request("Transfer-Encoding: gzip, chunked"),
    request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    request("Transfer-Encoding: chunked", line="POST / HTTP/1.0"),
    request("Transfer-Encoding: chunked") + b"5x\r\nhello\r\n",
    request("Transfer-Encoding: chunked") + b"3\r\nhello\r\n0\r\n\r\n",
    request("Transfer-Encoding: chunked") + b"0\r\nno header\r\n\r\n",
    request(*["X: y"] * 300),
    b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_HEAD,
]


@every_row("sent", ODD)
def test_what_could_mean_another_host_is_refused(sent: bytes) -> None:
    with pytest.raises(BadRequest):
        reader().feed(sent)
    for before in (GET, request("Content-Length: 3", line="POST / HTTP/1.1") + b"abc"):
        later = reader()
        assert later.feed(before) == before
        with pytest.raises(BadRequest):
            later.feed(sent)


def test_an_agreed_upgrade_ends_http() -> None:
    asked = request("Upgrade: websocket", "Connection: Upgrade")
    upgraded = reader()
    assert upgraded.feed(asked + b"early") == asked
    assert upgraded.waits
    assert upgraded.hear(b"HTTP/1.1 1") == b""
    assert upgraded.hear(b"01 Switching Protocols\r\n") == b"early"
    assert upgraded.opaque
    assert upgraded.feed(request(host="other.example")) == request(host="other.example")


def test_a_refused_upgrade_does_not() -> None:
    refused = reader()
    refused.feed(request("Upgrade: websocket", "Connection: Upgrade"))
    assert refused.feed(request(host="other.example")) == b""
    with pytest.raises(BadRequest):
        refused.hear(b"HTTP/1.1 200 OK\r\n")
    late = reader()
    late.feed(GET)
    with pytest.raises(BadRequest):
        late.feed(request("Upgrade: websocket"))


def test_http_2_is_not_offered_to_the_server() -> None:
    asked = request("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk", "X: y")
    passed = reader().feed(asked)
    assert passed == request("X: y")


@given(st.binary(max_size=200), st.integers(0, 40))
def test_no_bytes_break_it_and_what_passes_came(noise: bytes, at: int) -> None:
    for data in (noise, GET[:at] + noise + GET[at:], GET + noise):
        followed = reader()
        try:
            passed = followed.feed(data)
        except BadRequest:
            continue
        assert data.startswith(passed) or b"pgrade" in data
