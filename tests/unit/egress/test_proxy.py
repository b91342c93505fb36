"""HTTP through the proxy: what is forwarded, what a server outside gets to see, what is refused."""

import asyncio
import json

import pytest

from holdfast.egress import proxy
from holdfast.egress.exchange import MAX_HEAD
from holdfast.egress.upstream import Proxies, Upstreams
from holdfast.egress.verdicts import GRANTED, Attempt, Verdict
from tests.support.egress import Names, Proxied, listening
from tests.support.rows import every_row
from tests.support.tcp import tcp_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nKeep-Alive: 5\r\n\r\nhi"


def get(url: str, *headers: str, method: str = "GET", body: str = "") -> bytes:
    host = url.partition("://")[2].partition("/")[0]
    head = "\r\n".join((f"{method} {url} HTTP/1.1", f"Host: {host}", *headers))
    return f"{head}\r\n\r\n{body}".encode()


def last(url: str, *headers: str, method: str = "GET", body: str = "") -> bytes:
    return get(url, *headers, "Connection: close", method=method, body=body)


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def run(stage: Proxied, *said: bytes, end: bool = False) -> bytes:
    """For the rows of a table, which are one test."""
    return asyncio.run(stage.say(*said, end=end))


# --- what gets through


async def test_a_request_reaches_its_host_and_the_answer_comes_back() -> None:
    async with listening(OK, head=True) as (port, heard):
        stage = Proxied(proxy.serve, allow=[f"a.example:{port}"])
        answer = await stage.say(last(f"http://A.example.:{port}/x?y=1", "X-One: 1", "Accept: */*"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhi")
    assert answer.lower().count(b"set-cookie: ") == 2
    assert b"keep-alive" not in answer.lower()
    assert heard == [
        f"GET /x?y=1 HTTP/1.1\r\nHost: a.example:{port}\r\n"
        "X-One: 1\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode()
    ]
    [(attempt, verdict)] = stage.told
    assert (attempt.protocol.value, attempt.method, verdict.reason) == ("http", "GET", "allow")


async def test_what_is_between_two_servers_is_not_passed_on() -> None:
    async with listening(OK, head=True) as (port, heard):
        stage = Proxied(proxy.serve, allow=["*:" + str(port)])
        await stage.say(
            last(
                f"http://a.example:{port}/",
                "Connection: X-Secret",
                "X-Secret: 1",
                "Proxy-Authorization: Basic eDp5",
                "Proxy-Connection: keep-alive",
                "TE: trailers",
                "Upgrade: websocket",
                "X-Kept: 1",
            )
        )
    assert heard == [
        f"GET / HTTP/1.1\r\nHost: a.example:{port}\r\nX-Kept: 1\r\nConnection: close\r\n\r\n".encode()
    ]


async def test_a_body_passes_in_both_framings_and_without_trailers() -> None:
    heard: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await (reader.readuntil(b"0\r\n\r\n") if b"chunked" in head else reader.readexactly(5))
        heard.append(head + body)
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n"
        )

    async with tcp_server(echo) as port:
        stage = Proxied(proxy.serve, allow=[f"*:{port}"])
        url = f"http://a.example:{port}/"
        plain = await stage.say(last(url, "Content-Length: 5", method="POST", body="hello"))
        chunked = "5\r\nhello\r\n0\r\nX-Trailer: evil\r\n\r\n"
        await stage.say(
            last(url, "Transfer-Encoding: chunked", "Trailer: X-Trailer", method="POST", body=chunked)
        )
    assert heard[0].endswith(b"\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    assert heard[1].endswith(b"5\r\nhello\r\n0\r\n\r\n")
    assert b"railer" not in heard[1]
    assert b"railer" not in plain


async def test_requests_behind_each_other_are_judged_one_by_one() -> None:
    async with listening(OK, head=True) as (port, heard):
        stage = Proxied(proxy.serve, allow=[f"a.example:{port}"])
        said = get(f"http://a.example:{port}/1") + get(f"http://a.example:{port}/2")
        answer = await stage.say(said + last(f"http://b.example:{port}/3"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b"HTTP/1.1 403 ") == 1
    assert [line.split()[1] for line in heard] == [b"/1", b"/2"]
    assert stage.reasons == ["allow", "allow", "not_allowed"]


async def test_an_answer_without_a_length_and_one_to_head_are_framed() -> None:
    async with listening(b"HTTP/1.1 200 OK\r\n\r\nall of it", head=True) as (port, _):
        stage = Proxied(proxy.serve, allow=[f"*:{port}"])
        answer = await stage.say(last(f"http://a.example:{port}/"))
        old = await stage.say(f"GET http://a.example:{port}/ HTTP/1.0\r\n\r\n".encode())
    assert answer.endswith(b"9\r\nall of it\r\n0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nall of it")
    async with listening(OK.removesuffix(b"hi"), head=True) as (port, _):
        stage = Proxied(proxy.serve, allow=[f"*:{port}"])
        head = await stage.say(last(f"http://a.example:{port}/", method="HEAD"))
    assert b"Content-Length: 2\r\n" in head
    assert head.endswith(b"\r\n\r\n")


async def test_a_tunnel_is_joined_with_what_was_sent_before_it_stood() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"server first;" + await reader.read(100))

    async with tcp_server(echo) as port:
        stage = Proxied(proxy.serve, allow=[f"a.example:{port}"])
        said = f"CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\nearly".encode()
        answer = await stage.say(said)
    assert answer == b"HTTP/1.1 200 OK\r\n\r\nserver first;early"
    assert [(attempt.protocol.value, attempt.method) for attempt, _ in stage.told] == [
        ("https_connect", "CONNECT")
    ]


async def test_an_upstream_proxy_gets_the_whole_url_and_its_own_password() -> None:
    async with listening(OK, head=True) as (port, heard):
        above = Upstreams(Proxies.from_environ({"ALL_PROXY": f"http://u:p@127.0.0.1:{port}"}))
        stage = Proxied(proxy.serve, allow=["a.example"], names=Names([]), upstream=above)
        await stage.say(last("http://a.example/x", "Proxy-Authorization: Basic eDp5"))
    assert heard == [
        b"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n"
        b"Proxy-Authorization: Basic dTpw\r\n\r\n"
    ]


# --- what does not


async def test_a_refusal_says_why_to_programs_and_people() -> None:
    stage = Proxied(proxy.serve, allow=["a.example"])
    answer = await stage.say(
        get("http://b.example/", "Content-Length: 100000", method="POST", body="x" * 100)
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"X-Proxy-Error: blocked-by-allowlist" in head
    assert b"Content-Type: application/json" in head
    assert json.loads(body)["reason"] == "not_allowed"
    answer = await stage.say(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain")
    assert stage.names.asked == []
    answer = await stage.say(last("http://b.example/", method="HEAD"))
    assert answer.endswith(b"\r\n\r\n")


@every_row(
    "said",
    [
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET //a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http:/a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example#@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example:80:80/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example:x/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
        "GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n",
        "GET http://a%2eexample/ HTTP/1.1\r\nHost: a%2eexample\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: \r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: +1\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n X-Folded: 1\r\nX: \0\r\n\r\n",
        "GET http://a.example/ b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT http://a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:443/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:0 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_two_servers_could_read_in_two_ways_is_refused(said: str) -> None:
    stage = Proxied(proxy.serve, allow=["*"])
    assert 400 <= status(run(stage, said.encode("latin-1"), end=True)) <= 501
    assert stage.names.asked == []
    assert stage.told == []


async def test_a_head_has_a_size() -> None:
    stage = Proxied(proxy.serve, allow=["*"])
    answer = await stage.say(get("http://a.example/", "X: " + "x" * (2 * MAX_HEAD)))
    assert status(answer) == 431
    assert stage.told == []


async def test_a_request_hidden_in_a_body_is_a_body() -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n") + await reader.read(1000))
        writer.write(OK)

    async with tcp_server(listen) as port:
        stage = Proxied(proxy.serve, allow=[f"a.example:{port}"])
        hidden = f"GET http://b.example:{port}/ HTTP/1.1\r\nHost: b.example:{port}\r\n\r\n"
        url, length = f"http://a.example:{port}/", f"Content-Length: {len(hidden)}"
        await stage.say(last(url, length, method="POST", body=hidden))
    [whole] = heard
    assert whole.endswith(f"Content-Length: {len(hidden)}\r\nConnection: close\r\n\r\n{hidden}".encode())
    assert stage.reasons == ["allow"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_said_to_be_none(answer: bytes) -> None:
    async with listening(answer, head=True) as (port, _):
        stage = Proxied(proxy.serve, allow=[f"*:{port}"])
        assert status(await stage.say(last(f"http://a.example:{port}/"))) == 502


async def test_an_answer_that_breaks_off_is_not_made_whole() -> None:
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", head=True) as (port, _):
        stage = Proxied(proxy.serve, allow=[f"*:{port}"])
        answer = await stage.say(get(f"http://a.example:{port}/"))
    assert answer.endswith(b"\r\n\r\nhalf")


async def test_a_host_that_cannot_be_reached_is_told_from_one_that_may_not_be() -> None:
    stage = Proxied(proxy.serve, allow=["*:1"])
    assert status(await stage.say(last("http://a.example:1/"))) == 502
    assert status(await stage.say(b"CONNECT a.example:1 HTTP/1.1\r\nHost: a.example:1\r\n\r\n")) == 502
    assert stage.reasons == ["allow", "allow"]


async def test_who_decides_is_asked_for_each_request() -> None:
    asked: list[Attempt] = []

    async def ask(attempt: Attempt) -> Verdict:
        asked.append(attempt)
        return GRANTED

    async with listening(OK, head=True) as (port, _):
        stage = Proxied(proxy.serve, ask=ask)
        answer = await stage.say(get(f"http://a.example:{port}/"), last(f"http://a.example:{port}/"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [attempt.host.name for attempt in asked] == ["a.example"] * 2


@every_row("name", [b"X-HTTP-Method-Override", b"x_http_method", b"X-METHOD-Override"], ids=str)
async def test_a_header_that_names_another_method_is_more_than_reading(name: bytes) -> None:
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", head=True) as (port, heard):
        proxied = Proxied(proxy.serve, allow=[f"a.example:{port}"], limited=True)
        for value, status in ((b"DELETE", b"403"), (b" delete ", b"403"), (b"GET", b"200")):
            ask = b"GET http://a.example:%d/ HTTP/1.1\r\nHost: a.example:%d\r\nConnection: close\r\n" % (
                port,
                port,
            )
            answer = await proxied.say(ask + name + b": " + value + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert len(heard) == 1
    assert proxied.reasons == ["allow", "method_not_allowed", "allow", "method_not_allowed", "allow"]
