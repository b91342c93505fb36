"""HTTP on the executor's side, against a server that says exactly what the test wants."""

import asyncio
import contextlib
import functools
import gzip
import logging
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import msgspec
import pytest

from holdfast.errors import InvalidRequest, OperationFailed, UsageError
from holdfast.server import http
from holdfast.server.http import HttpRequests, Pump
from holdfast.server.httpcookies import AffinityCookies
from holdfast.server.httprules import MAX_BUFFERED_BYTES
from holdfast.wire.http import BodyDelta, HttpHeader, HttpHeaderResult, HttpRequestParams
from tests.support.httpd import httpd, reply
from tests.support.patience import patient
from tests.support.tcp import tcp_server

DELTA_ERROR = "error decoding response body"


class Client:
    """The requests of one connection and the deltas they sent."""

    def __init__(self, environ: Mapping[str, str], cookies: AffinityCookies) -> None:
        self.deltas: list[BodyDelta] = []
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()  # cleared: the client reads nothing
        self.open.set()
        self.requests = HttpRequests(self._notify, environ, cookies)

    async def _notify(self, delta: BodyDelta) -> None:
        self.deltas.append(delta)
        self.arrived.set()
        await self.open.wait()

    async def get(self, url: str, **more: object) -> tuple[int, bytes]:
        response, pump = await self.requests.request(params(url, **more))
        assert pump is None
        return response.status, response.body_base64

    async def stream(self, url: str, **more: object) -> Pump:
        response, pump = await self.requests.request(params(url, stream_response=True, **more))
        assert (response.status, response.body_base64) == (200, b"")
        assert pump is not None
        return pump


def params(url: str, **more: object) -> HttpRequestParams:
    fields: dict[str, object] = {"method": "GET", "url": url, "request_id": "r"} | more
    return HttpRequestParams(**fields)  # type: ignore[arg-type]  # a test gives any of its fields


@contextlib.asynccontextmanager
async def connected(
    environ: Mapping[str, str] | None = None, cookies: AffinityCookies | None = None
) -> AsyncIterator[Client]:
    client = Client(environ or {}, cookies or AffinityCookies())
    try:
        async with asyncio.timeout(patient(30)):
            yield client
    finally:
        await client.requests.aclose()


def redirect(status: int, location: str) -> bytes:
    return reply(status, b"moved", ("Location", location), ("Set-Cookie", "tracked=1"))


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")


class Slow:
    """Sends the first part of a chunked body, then the second when told to; sees the other side hang up."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
        )
        going = asyncio.create_task(self.go_on.wait())
        ended = asyncio.create_task(reader.read())
        try:
            await asyncio.wait({going, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                self.hung_up.set()
                return
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        finally:
            going.cancel()
            ended.cancel()


async def test_only_what_was_asked_for_is_sent() -> None:
    async with httpd() as server, connected() as client:
        assert await client.get(server.url("/a?b=1#secret")) == (200, b"ok")
        [seen] = server.received
        assert (seen.method, seen.target, seen.body) == ("GET", "/a?b=1", b"")
        assert sorted(seen.headers) == [("accept", "*/*"), ("host", f"127.0.0.1:{server.port}")]


async def test_headers_keep_their_order_and_repeats_both_ways() -> None:
    answer = reply(404, b"no", ("X-A", "1"), ("Set-Cookie", "c"), ("x-a", "2"), ("X-Bin", "\xff"))
    given = [HttpHeader("X-One", "1"), HttpHeader("Two", "2"), HttpHeader("X-One", "3")]
    given += [HttpHeader("Key", "Bearer ", "TOKEN"), HttpHeader("Accept-Encoding", "gzip")]
    async with httpd({"/": answer}) as server, connected({"TOKEN": "t"}) as client:
        response, _ = await client.requests.request(params(server.url(), headers=given))
        assert (response.status, response.body_base64) == (404, b"no")
        assert response.headers[:3] == [
            HttpHeaderResult("x-a", "1"),
            HttpHeaderResult("set-cookie", "c"),
            HttpHeaderResult("x-a", "2"),
        ]
        assert [header.name for header in response.headers[3:]] == ["content-length"]
        sent = [
            header for header in server.received[0].headers if header[0].lower() not in ("host", "accept")
        ]
        assert sent == [
            ("X-One", "1"),
            ("Two", "2"),
            ("X-One", "3"),
            ("Key", "Bearer t"),
            ("Accept-Encoding", "gzip"),
        ]


async def test_method_and_body_arrive_as_given() -> None:
    async with httpd() as server, connected() as client:
        await client.get(server.url(), method="pOst", body_base64=b"hello")
        assert (server.received[0].method, server.received[0].body) == ("pOst", b"hello")


async def test_credentials_in_the_url_become_a_header() -> None:
    async with httpd() as server, connected() as client:
        await client.get(f"http://u:p@127.0.0.1:{server.port}/")
        assert server.received[0].values("authorization") == ["Basic dTpw"]


async def test_a_compressed_body_stays_compressed() -> None:
    packed = gzip.compress(b"hello")
    async with (
        httpd({"/": reply(200, packed, ("Content-Encoding", "gzip"))}) as server,
        connected() as client,
    ):
        assert await client.get(server.url()) == (200, packed)


async def test_cookies_of_the_infrastructure_are_sent_again_over_https_to_its_hosts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What goes to the wire and what comes from it: nobody here can be those hosts."""
    given = [(b"Set-Cookie", b"__cflb=lb; Path=/; Secure"), (b"set-cookie", b"session=secret; Path=/")]
    seen: list[tuple[str, bytes]] = []

    async def send(
        _: HttpRequests, method: str, url: httpx2.URL, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> httpx2.Response:
        seen.append(
            (f"{url.scheme} {url.host}", {name.lower(): value for name, value in headers}.get(b"cookie", b""))
        )
        moved = [(b"Location", b"https://api.openai.com/there")] if url.path == "/moved" else []
        status = 302 if moved else 200
        return httpx2.Response(status, headers=[*given, *moved], stream=httpx2.ByteStream(b""))

    monkeypatch.setattr(HttpRequests, "_send", send)
    jar = AffinityCookies()
    urls = [
        "https://chatgpt.com/a",
        "https://api.openai.com/a",
        "http://chatgpt.com/a",
        "https://chatgpt.com/moved",
    ]
    for url in urls:  # another connection each: what is kept is the process's
        async with connected(cookies=jar) as client:
            await client.get(url, redirect_policy="follow")
    async with connected(cookies=jar) as client:
        await client.get(urls[0], headers=[HttpHeader("Cookie", "own=1")])
    assert seen == [
        ("https chatgpt.com", b""),
        ("https api.openai.com", b""),
        ("http chatgpt.com", b""),
        ("https chatgpt.com", b"__cflb=lb"),
        ("https api.openai.com", b""),
        ("https chatgpt.com", b"own=1"),
    ]


async def test_connections_are_reused_and_cookies_are_not_replayed() -> None:
    async with httpd({"/": reply(200, b"", ("Set-Cookie", "a=b"))}) as server, connected() as client:
        for _ in range(3):
            await client.get(server.url())
        assert server.connections == 1
        assert [seen.values("cookie") for seen in server.received] == [[], [], []]


@pytest.mark.parametrize(("status", "method", "body"), [(302, "GET", b""), (307, "POST", b"hi")])
async def test_a_redirect_is_followed(status: int, method: str, body: bytes) -> None:
    async with httpd({"/": redirect(status, "done?x#y")}) as server, connected() as client:
        given = [HttpHeader("Authorization", "mine"), HttpHeader("Content-Type", "text/plain")]
        assert await client.get(server.url(), method="POST", body_base64=b"hi", headers=given) == (200, b"ok")
        last = server.received[-1]
        assert (last.method, last.target, last.body) == (method, "/done?x", body)
        assert last.values("authorization") == ["mine"]
        assert last.values("content-type") == (["text/plain"] if body else [])
        assert last.values("cookie") == []


async def test_another_origin_sees_no_secret() -> None:
    async with httpd() as other, httpd({"/": redirect(307, other.url("/x"))}) as server:
        async with connected({"TOKEN": "t"}) as client:
            given = [
                HttpHeader("Authorization", "mine"),
                HttpHeader("X-Key", "", "TOKEN"),
                HttpHeader("X", "1"),
            ]
            assert await client.get(server.url(), headers=given) == (200, b"ok")
            url = f"http://u:p@127.0.0.1:{server.port}/"
            assert await client.get(url) == (200, b"ok")
        for seen in other.received:
            assert (seen.values("authorization"), seen.values("x-key")) == ([], [])
            assert seen.values("host") == [f"127.0.0.1:{other.port}"]
        assert other.received[0].values("x") == ["1"]


@pytest.mark.parametrize("location", ["/done", "http://[/", "ftp://host/"])
async def test_a_redirect_is_returned_when_asked_to_stop(location: str) -> None:
    async with httpd({"/": redirect(302, location)}) as server, connected() as client:
        assert await client.get(server.url(), redirect_policy="stop") == (302, b"moved")
        assert len(server.received) == 1


@pytest.mark.parametrize("answer", [redirect(302, "http://[/"), reply(302, b"moved"), redirect(304, "/x")])
async def test_what_cannot_be_followed_is_the_response(answer: bytes) -> None:
    async with httpd({"/": answer}) as server, connected() as client:
        status, _ = await client.get(server.url())
        assert status in (302, 304)


async def test_the_rest_of_a_redirect_is_not_waited_for() -> None:
    hung_up = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /done\r\nContent-Length: 100\r\n\r\npart")
        await reader.read()
        hung_up.set()

    async with httpd({"/": endless}) as server, connected() as client:
        assert await client.get(server.url()) == (200, b"ok")
        await hung_up.wait()


async def test_redirects_end_after_ten() -> None:
    async with httpd({"/": redirect(302, "/")}) as server, connected() as client:
        with pytest.raises(OperationFailed, match="too many redirects"):
            await client.get(server.url())
        assert len(server.received) == 11


async def test_a_redirect_out_of_http_is_refused() -> None:
    async with httpd({"/": redirect(302, "file:///etc/passwd")}) as server, connected() as client:
        with pytest.raises(OperationFailed):
            await client.get(server.url())


async def test_the_proxy_of_the_environment_is_used() -> None:
    async with httpd() as proxy:
        environ = {"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy.port}", "NO_PROXY": "127.0.0.0/8"}
        async with httpd() as server, connected(environ) as client:
            await client.get("http://bücher.invalid/a?b#c")
            await client.get(server.url("/direct"))
            [seen] = proxy.received
            assert (seen.target, seen.values("host")) == (
                "http://xn--bcher-kva.invalid/a?b",
                ["xn--bcher-kva.invalid"],
            )
            assert seen.values("proxy-authorization") == ["Basic dTpw"]
            assert [direct.target for direct in server.received] == ["/direct"]


async def test_a_proxy_that_refuses_is_a_failure() -> None:
    async with httpd() as proxy:
        proxy.otherwise = reply(407)
        async with connected({"https_proxy": f"127.0.0.1:{proxy.port}"}) as client:
            with pytest.raises(OperationFailed):
                await client.get("https://host.invalid/")
            assert proxy.received[0].method == "CONNECT"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://127.0.0.1:1", "http://[/"])
async def test_a_proxy_we_cannot_use_is_not_bypassed(proxy: str) -> None:
    async with httpd() as server, connected({"ALL_PROXY": proxy}) as client:
        with pytest.raises(OperationFailed):
            await client.get(server.url())
        assert server.received == []


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/s3cret", "http://no.such.host.invalid/s3cret", f"http://{'a' * 70}.invalid/s3cret"],
)
async def test_a_failed_connect_says_so_and_not_where(url: str) -> None:
    async with connected() as client:
        with pytest.raises(OperationFailed) as caught:
            await client.get(url)
    assert str(caught.value) == "http/request failed: connect failed"


async def test_a_tls_handshake_that_never_ends_is_given_up() -> None:
    hung_up = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()
        hung_up.set()

    async with tcp_server(silence) as port, connected() as client:
        with pytest.raises(OperationFailed, match="timed out"):
            await client.get(f"https://127.0.0.1:{port}/", timeout_ms=100)
        await hung_up.wait()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    tool = shutil.which("openssl")
    if tool is None:
        pytest.skip("openssl makes the certificate")
    made = tmp_path / "cert.pem"
    argv = [
        tool,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    argv += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(made), "-out", str(tmp_path / "only-cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    made.write_bytes(made.read_bytes() + (tmp_path / "only-cert.pem").read_bytes())
    return made


async def test_unreadable_roots_are_a_failure_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_load", functools.cache(http._load.__wrapped__))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    async with httpd() as server, connected() as client:
        with pytest.raises(OperationFailed):
            await client.get(server.url())


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_trusted_certificate_will_do(
    certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        roots = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(http, "_load", functools.cache(lambda _: roots))
    async with httpd(certificate=certificate) as server, connected() as client:
        url = server.url().replace("http:", "https:")
        if trusted:
            assert await client.get(url) == (200, b"ok")
            return
        with pytest.raises(OperationFailed, match="certificate is not trusted"):
            await client.get(url)


@pytest.mark.parametrize("other", [None, "missing"])
async def test_the_authority_of_codex_is_trusted_before_any_other(
    certificate: Path, other: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_load", functools.cache(http._load.__wrapped__))
    if other is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.parent / other))
    async with (
        httpd(certificate=certificate) as server,
        connected({"CODEX_CA_CERTIFICATE": str(certificate.parent / "only-cert.pem")}) as client,
    ):
        assert await client.get(server.url().replace("http:", "https:")) == (200, b"ok")


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "G ET"},
        {"url": "nope"},
        {"url": "ftp://127.0.0.1/"},
        {"url": "http://☃.example/"},
        {"headers": [HttpHeader("a b", "1")]},
        {"headers": [HttpHeader("a", "1\n2")]},
        {"headers": [HttpHeader("a", "", "HOLDFAST_UNSET")]},
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_sent(wrong: dict[str, object]) -> None:
    async with httpd() as server, connected() as client:
        asked = msgspec.structs.replace(params(server.url(), stream_response=True), **wrong)
        for _ in range(2):  # the second time shows that the id is free again
            with pytest.raises(UsageError, match=r"http/request (method|url|only|header)"):
                await client.requests.request(asked)
        assert server.received == []


async def test_a_request_http_cannot_carry_fails() -> None:
    async with httpd() as server, connected() as client:
        with pytest.raises(OperationFailed):
            await client.get(server.url(), headers=[HttpHeader("Host", "a"), HttpHeader("Host", "b")])


async def test_a_body_that_breaks_off_fails() -> None:
    async with httpd({"/": break_off}) as server, connected() as client:
        with pytest.raises(OperationFailed, match="failed to read http/request response body"):
            await client.get(server.url())


@pytest.mark.parametrize("stream_response", [False, True])
@pytest.mark.parametrize("timeout_ms", [0, 50])
async def test_a_timeout_covers_the_wait_for_headers(timeout_ms: int, stream_response: bool) -> None:
    async with httpd({"/": hang}) as server, connected() as client:
        for _ in range(2):
            with pytest.raises(OperationFailed, match="http/request failed: timed out"):
                await client.requests.request(
                    params(server.url(), timeout_ms=timeout_ms, stream_response=stream_response)
                )


async def test_a_timeout_covers_the_body() -> None:
    async with httpd({"/": Slow()}) as server, connected() as client:
        with pytest.raises(OperationFailed, match="failed to read http/request response body: timed out"):
            await client.get(server.url(), timeout_ms=500)


async def test_a_body_too_large_for_one_message_is_refused() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(MAX_BUFFERED_BYTES // 1_000_000 + 1):
            writer.write(bytes(1_000_000))
            await writer.drain()

    async with httpd({"/": flood}) as server, connected() as client:
        with pytest.raises(OperationFailed) as caught:
            await client.get(server.url())
        assert str(MAX_BUFFERED_BYTES) in str(caught.value)


async def test_a_stream_arrives_while_it_is_made() -> None:
    slow = Slow()
    async with httpd({"/": slow}) as server, connected() as client:
        pump = await client.stream(server.url())
        assert client.deltas == []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump())
            await client.arrived.wait()
            assert client.deltas == [BodyDelta("r", 1, b"one", done=False, error=None)]
            slow.go_on.set()
        assert client.deltas[1:] == [
            BodyDelta("r", 2, b"two", done=False, error=None),
            BodyDelta("r", 3, b"", done=True, error=None),
        ]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_empty_stream_is_just_the_final_delta(method: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" if method == "HEAD" else reply()
    async with httpd({"/": answer}) as server, connected() as client:
        await (await client.stream(server.url(), method=method))()
        assert client.deltas == [BodyDelta("r", 1, b"", done=True, error=None)]


@pytest.mark.parametrize(("path", "timeout_ms"), [("/broken", None), ("/slow", 500)])
async def test_a_stream_that_fails_says_so_at_its_end(path: str, timeout_ms: int | None) -> None:
    async with httpd({"/broken": break_off, "/slow": Slow()}) as server, connected() as client:
        await (await client.stream(server.url(path), timeout_ms=timeout_ms))()
        last = client.deltas[-1]
        assert last == BodyDelta("r", len(client.deltas), b"", done=True, error=DELTA_ERROR)


async def test_an_id_is_taken_until_its_final_delta() -> None:
    slow = Slow()
    async with httpd({"/": slow}) as server, connected() as client:
        pump = await client.stream(server.url())
        with pytest.raises(UsageError) as caught:
            await client.stream(server.url("/other"))
        assert str(caught.value) == "http/request streamResponse requestId `r` is already active"
        assert await client.get(server.url("/other")) == (200, b"ok")  # only streams take the id
        slow.go_on.set()
        await pump()
        await (await client.stream(server.url("/other")))()


async def test_a_cancelled_pump_hangs_up_and_frees_the_id() -> None:
    slow = Slow()
    async with httpd({"/": slow}) as server, connected() as client:
        task = asyncio.ensure_future((await client.stream(server.url()))())
        await client.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await slow.hung_up.wait()
        await (await client.stream(server.url("/other")))()


async def test_a_pump_cancelled_while_the_client_reads_nothing_hangs_up() -> None:
    slow = Slow()
    async with httpd({"/": slow}) as server, connected() as client:
        client.open.clear()
        task = asyncio.ensure_future((await client.stream(server.url()))())
        await client.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await slow.hung_up.wait()


async def test_a_cancelled_request_frees_the_id() -> None:
    reached = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()

    async with httpd({"/": silence}) as server, connected() as client:
        task = asyncio.ensure_future(client.stream(server.url()))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await (await client.stream(server.url("/other")))()


async def test_closing_hangs_up_on_a_stream_whose_pump_never_ran() -> None:
    slow = Slow()
    async with httpd({"/": slow}) as server:
        async with connected() as client:
            await client.stream(server.url())
        async with asyncio.timeout(patient(20)):
            await slow.hung_up.wait()


async def test_a_client_that_reads_nothing_stops_the_download() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(64):
            writer.write(bytes(1_000_000))
            await writer.drain()
            sent += 1

    async with httpd({"/": flood}) as server, connected() as client:
        client.open.clear()
        task = asyncio.ensure_future((await client.stream(server.url()))())
        await client.arrived.wait()
        before = -1
        while before != sent:  # until the sockets are full
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 64
        assert len(client.deltas) == 1
        client.open.set()
        await task
        assert sum(len(delta.delta_base64) for delta in client.deltas) == 64_000_000


async def test_there_is_a_bound_on_open_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_STREAMS", 1)
    async with httpd() as server, connected() as client:
        await client.stream(server.url())
        with pytest.raises(InvalidRequest):
            await client.stream(server.url(), request_id="second")


async def test_logs_hold_no_url_header_or_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answer = reply(200, b"s3cret-body", ("X-Reply", "s3cret-reply"))
    async with httpd({"/?s3cret-query": answer}) as server, connected() as client:
        given = [HttpHeader("X-Key", "s3cret-header")]
        assert await client.get(server.url("/?s3cret-query"), headers=given) == (200, b"s3cret-body")
    assert "s3cret" not in caplog.text


def test_the_library_is_not_loaded_before_the_first_request() -> None:
    script = "import sys, holdfast.server.http; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
