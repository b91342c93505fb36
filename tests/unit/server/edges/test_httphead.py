"""Which HTTP request gets which answer."""

import itertools
from collections.abc import Mapping

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol

from holdfast.errors import PeerRefused, RemoteProtocolError
from holdfast.server.edges.httphead import (
    METRICS,
    HeadAnswer,
    RequestHead,
    accept,
    answer,
    parse_head,
    refuse,
    show_metrics,
)
from tests.support.rows import every_row

NO_HEADERS: dict[str, str] = {}
UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def ask(
    method: str,
    path: str,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    token: str | None = None,
    page: bytes | None = None,
) -> HeadAnswer | None:
    """The answer of a server that wants this token and has this metrics page."""

    head = RequestHead(method, path, tuple(headers.items()))
    reply = answer(head, metrics=page is not None)
    if reply is None and token is not None and head.get("authorization") != token:
        return refuse(head, PeerRefused("invalid websocket bearer token"))
    if reply is None and page is not None and head.path == METRICS:
        return show_metrics(head, page)
    return reply


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", RequestHead("GET", "/", ())),
        (b"HEAD /readyz?x=1&y HTTP/1.0\r\n\r\n", RequestHead("HEAD", "/readyz", (), "HTTP/1.0", "x=1&y")),
        (
            b"GET / HTTP/1.1\r\nHost: a:1\r\nX-A:\r\nX-B:  b: \t\r\nx-b: c\r\n\r\n",
            RequestHead("GET", "/", (("host", "a:1"), ("x-a", ""), ("x-b", "b:"), ("x-b", "c"))),
        ),
        (b"GET /\xe9 HTTP/1.1\r\nA: \xe9\r\n\r\n", RequestHead("GET", "/é", (("a", "é"),))),
    ],
)
def test_a_request_head_is_parsed(data: bytes, head: RequestHead) -> None:
    assert parse_head(data) == head


@every_row(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1 x\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / SPDY/1.1\r\n\r\n",
        b"G3T / HTTP/1.1\r\n\r\n",
        b" / HTTP/1.1\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nnonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nOrigin : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded: x\r\n\r\n",
    ],
)
def test_what_is_not_a_request_head_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_head(data)


def test_the_first_of_repeated_headers_counts() -> None:
    head = RequestHead("GET", "/", (("a", "1"), ("a", "2")))
    assert (head.get("a"), head.get("b")) == ("1", None)


@every_row(
    ("connection", "wanted"),
    [
        (None, False),
        ("", False),
        ("close", False),
        ("upgraded", False),
        ("upgrade", True),
        ("Upgrade", True),
        ("keep-alive, UPGRADE", True),
    ],
)
def test_the_connection_header_asks_for_the_upgrade(connection: str | None, wanted: bool) -> None:
    headers = () if connection is None else (("connection", connection),)
    assert RequestHead("GET", "/", headers).wants_upgrade() is wanted


@every_row(
    ("method", "path", "origin"),
    [
        *itertools.product(
            ["GET", "HEAD", "POST"],
            ["/", "/readyz", "/healthz", "/metrics", "/x"],
            ["http://localhost", "null", ""],
        )
    ],
)
def test_any_origin_is_refused_before_anything_else(method: str, path: str, origin: str) -> None:
    assert ask(method, path, UPGRADE | {"origin": origin}, token="t", page=b"x") == HeadAnswer(403)


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_probes_are_answered_without_a_token(path: str) -> None:
    assert ask("GET", path, token="t") == HeadAnswer(200)
    assert ask("HEAD", path, token="t") == HeadAnswer(200, head_only=True)
    assert ask("POST", path, token="t") == HeadAnswer(405, allow="GET,HEAD")
    assert ask("GET", path, UPGRADE, token="t") == HeadAnswer(200)


@every_row("method", ["GET", "HEAD", "POST", "DELETE"])
@every_row("path", ["/x", "/readyz/", "//", "/metrics", "/Readyz"])
def test_other_paths_do_not_exist(method: str, path: str) -> None:
    assert ask(method, path, UPGRADE) == HeadAnswer(404)


def test_an_upgrade_on_the_root_goes_on() -> None:
    assert ask("GET", "/", UPGRADE) is None


def test_the_root_without_an_upgrade_is_a_bad_request() -> None:
    assert ask("GET", "/", token="t") == HeadAnswer(400, b"Connection header did not include 'upgrade'")


@pytest.mark.parametrize("method", ["HEAD", "POST", "OPTIONS"])
def test_the_root_is_for_get_only(method: str) -> None:
    expected = HeadAnswer(405, b"Request method must be `GET`", allow="GET", head_only=method == "HEAD")
    assert ask(method, "/", UPGRADE, token="t") == expected


def test_an_upgrade_needs_the_token() -> None:
    refusal = HeadAnswer(401, b"invalid websocket bearer token")
    assert ask("GET", "/", UPGRADE, token="t") == refusal
    assert ask("GET", "/", UPGRADE | {"authorization": "u"}, token="t") == refusal
    assert ask("GET", "/", UPGRADE | {"authorization": "t"}, token="t") is None


def test_metrics_need_the_token_too() -> None:
    assert ask("GET", "/metrics", token="t", page=b"m 1\n") == HeadAnswer(
        401, b"invalid websocket bearer token"
    )
    shown = ask("GET", "/metrics", {"authorization": "t"}, token="t", page=b"m 1\n")
    assert shown == HeadAnswer(200, b"m 1\n", METRICS_TYPE)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("GET", HeadAnswer(200, b"", METRICS_TYPE)),
        ("HEAD", HeadAnswer(200, b"", METRICS_TYPE, head_only=True)),
        ("POST", HeadAnswer(405, allow="GET,HEAD")),
    ],
)
def test_metrics_may_only_be_read(method: str, expected: HeadAnswer) -> None:
    assert ask(method, "/metrics", page=b"") == expected


@pytest.mark.parametrize(
    ("reply", "data"),
    [
        (HeadAnswer(200), b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
        (
            HeadAnswer(401, b"no"),
            b"HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n"
            b"content-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n\r\nno",
        ),
        (
            HeadAnswer(405, allow="GET"),
            b"HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\n"
            b"allow: GET\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            HeadAnswer(200, b"m 1\n", METRICS_TYPE, head_only=True),
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
            b"content-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: 4\r\n\r\n",
        ),
    ],
)
def test_an_answer_is_written_whole(reply: HeadAnswer, data: bytes) -> None:
    assert reply.encode() == data


@every_row("status", [200, 400, 401, 403, 404, 405, 500])
def test_every_status_has_its_reason(status: int) -> None:
    assert HeadAnswer(status).encode().startswith(b"HTTP/1.1 %d " % status)


KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="  # with its proof: RFC 6455, 1.3
PROOF = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
OPENING = ["Host: x", "Connection: Upgrade", "Upgrade: websocket", KEY, "Sec-WebSocket-Version: 13"]


def head_of(lines: list[str], version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join([f"GET / {version}", *lines, "", ""]).encode()


def test_a_plain_handshake_is_answered_with_the_proof() -> None:
    said = accept(parse_head(head_of(OPENING)))
    assert said is not None
    assert said.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nSec-WebSocket-Accept: " + PROOF + b"\r\n" in said


@every_row(
    "lines",
    [
        OPENING,
        [*OPENING, "Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: a, b"],
        *([line for line in OPENING if line != left_out] for left_out in OPENING[2:]),
        [*OPENING, KEY],
        [*OPENING, "Sec-WebSocket-Version: 13"],
        [*OPENING, "Upgrade: h2c"],
        [*OPENING[:2], "Upgrade: WebSocket", *OPENING[3:]],
        [*OPENING[:2], "Upgrade: websocket, h2c", *OPENING[3:]],
        [*OPENING[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==", OPENING[4]],
        [*OPENING[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ", OPENING[4]],
        [*OPENING[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==!", OPENING[4]],
        [*OPENING[:3], "Sec-WebSocket-Key: \u00e9", OPENING[4]],
        [*OPENING[:4], "Sec-WebSocket-Version: 8"],
    ],
)
def test_what_is_answered_without_the_library_is_what_the_library_accepts(lines: list[str]) -> None:
    frames = ServerProtocol()
    frames.receive_data(head_of(lines))
    requests = frames.events_received()
    accepted = (
        bool(requests) and isinstance(requests[0], Request) and frames.accept(requests[0]).status_code == 101
    )
    assert (accept(parse_head(head_of(lines))) is not None) == accepted


def test_another_version_of_http_is_left_to_the_library() -> None:
    assert accept(parse_head(head_of(OPENING, "HTTP/1.0"))) is None
