"""An executor that dials its host, and a host that is dialled: what others may try, and links that break."""

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.client.environment import Environment
from holdfast.client.recovery import LinkState
from holdfast.direct import admission
from holdfast.direct import host as direct_host_module
from holdfast.direct.admission import ExecutorKey
from holdfast.direct.host import DirectHost
from holdfast.errors import StartupError, Unreachable, UsageError
from holdfast.rendezvous import attempts
from holdfast.wire.sigv4 import HttpRequest
from tests.integration.test_relay_command import make_certificate
from tests.support.cut import way_to
from tests.support.hosts import KEY, REGION, direct_host, serving_host, sign
from tests.support.patience import patient
from tests.support.rows import every_row

LIMIT_S = patient(20.0)
BODY = b'{"transport":"direct_jsonrpc_v1"}'
REGISTER = "/cloud/environment/box/direct/register"


async def ask(url: str, raw: bytes) -> bytes:
    """All that is answered to these bytes; of a WebSocket its head."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            return head if b" 101 " in head else head + await reader.read()
    finally:
        writer.transport.abort()


def registration(url: str, *, ahead_s: float = 0.0) -> bytes:
    """A signed request, as an executor sends it."""
    request = HttpRequest("POST", REGISTER, (("host", urlsplit(url).netloc),), BODY)
    return encode(request, sign(request, ahead_s=ahead_s))


def encode(request: HttpRequest, more: dict[str, str]) -> bytes:
    headers = {**dict(request.headers), **more, "content-length": str(len(request.body))}
    lines = [
        f"{request.method} {request.target} HTTP/1.1",
        *(f"{a}: {b}" for a, b in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + request.body


async def upgrade(url: str, *, ahead_s: float) -> bytes:
    """A signed upgrade of a registration of its own."""
    answer = await ask(url, registration(url, ahead_s=ahead_s))
    place = urlsplit(answer.partition(b'"url":"')[2].partition(b'"')[0].decode())
    more = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    request = HttpRequest("GET", place.path, (("host", place.netloc),))
    return encode(request, {**more, **sign(request)})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors dial again at once."""
    monkeypatch.setattr(attempts, "_CONNECT_S", (0.01, 0.02, 0.05))


async def test_a_session_goes_on_over_whichever_connection_its_executor_opens_next() -> None:
    async with (
        direct_host() as host,
        way_to(host.url) as way,
        serving_host(way.url.replace("ws", "http")),
        asyncio.timeout(LIMIT_S),
    ):
        environment = await host.get("box")
        script = "echo a; read b; echo $b; exit 5"
        process = await environment.start(["/bin/sh", "-c", script], stdin=True)
        await anext(aiter(process))
        way.cut()
        await process.write(b"again\n")
        ended = await process.wait()
        assert (ended.code, ended.stdout) == (5, b"a\nagain\n")
        assert await host.get("box") is environment
        assert host.connected == ("box",)


@every_row(
    ("key", "ahead_s"),
    [
        (KEY._replace(secret="another"), 0),
        (KEY._replace(key_id="ANOTHER"), 0),
        (KEY._replace(session_token="another"), 0),
        (KEY._replace(session_token=None), 0),
        (KEY, 400),
        (KEY, -400),
    ],
    ids=str,
)
async def test_an_executor_that_signs_wrongly_ends_and_nobody_says_why_to_it(
    key: ExecutorKey, ahead_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with direct_host() as host, serving_host(host.url, key=key, ahead_s=ahead_s) as life:
        with pytest.raises(StartupError, match="the host does not allow this"):
            await asyncio.wait_for(asyncio.shield(life), LIMIT_S)
        assert host.connected == ()
    assert KEY.secret not in caplog.text
    assert "an executor was refused" in caplog.text


async def test_a_key_registers_its_own_environments_only() -> None:
    async with direct_host() as host, serving_host(host.url, "laptop") as life:
        with pytest.raises(StartupError):
            await asyncio.wait_for(asyncio.shield(life), LIMIT_S)


async def test_what_was_signed_is_taken_once() -> None:
    """Whoever has read a request cannot make it again."""
    async with direct_host() as host:
        seen = registration(host.url)
        assert b" 200 " in await ask(host.url, seen)
        assert b" 429 " in await ask(host.url, seen)
        dialled = await upgrade(host.url, ahead_s=1)
        assert b" 101 " in await ask(host.url, dialled)
        assert b" 429 " in await ask(host.url, dialled)


@every_row(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"nonsense\r\n\r\n", 400),
        (b"POST " + REGISTER.encode() + b" HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 403),
        (b"POST " + REGISTER.encode() + b" HTTP/1.1\r\ncontent-length: 99999\r\n\r\n", 400),
        (b"POST " + REGISTER.encode() + b" HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST " + REGISTER.encode() + b" HTTP/1.1\r\norigin: http://x\r\ncontent-length: 0\r\n\r\n", 404),
        (b"GET /direct/environment/box/" + b"0" * 32 + b" HTTP/1.1\r\n\r\n", 400),
        (b"X" * 20_000, 400),
    ],
    ids=lambda one: str(one)[:60],
)
async def test_what_is_no_signed_request_is_refused(raw: bytes, status: int) -> None:
    async with direct_host() as host:
        assert f" {status} ".encode() in (await ask(host.url, raw)).partition(b"\r\n")[0]


async def test_a_host_that_is_started_again_has_its_executors_register_again() -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(LIMIT_S):
        host = await stack.enter_async_context(direct_host())
        port = urlsplit(host.url).port or 0
        async with serving_host(host.url) as life:
            await host.get("box")
            await stack.aclose()
            async with direct_host(port=port) as second:
                environment = await second.get("box", timeout_s=LIMIT_S)
                assert (await environment.run(["/bin/echo", "hi"])).stdout == b"hi\n"
                assert not life.done()


async def until_failed(environment: Environment) -> None:
    while environment.state is not LinkState.FAILED:
        await asyncio.sleep(0.01)


async def test_the_newer_of_two_executors_serves_and_the_older_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with direct_host() as host, serving_host(host.url) as older, asyncio.timeout(LIMIT_S):
        first = await host.get("box")
        async with serving_host(host.url):
            await until_failed(first)  # its session is not the newer one's
            second = await host.get("box")
            assert (await second.run(["/bin/echo", "hi"])).stdout == b"hi\n"
            while admission.SUPERSEDED.reason not in [getattr(one, "reason", "") for one in caplog.records]:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(direct_host_module, "HELD_S", 0.0)
        await until_failed(second)
        third = await host.get("box")
        assert (await third.run(["/bin/echo", "hi"])).stdout == b"hi\n"
        assert not older.done()


async def test_a_host_waits_for_an_executor_only_so_long_and_needs_tls_elsewhere() -> None:
    async with direct_host() as host:
        with pytest.raises(Unreachable, match="did not answer"):
            await host.get("box", timeout_s=0.01)
    with pytest.raises(UsageError, match="TLS"):
        async with DirectHost.listen([KEY], region=REGION, address="0.0.0.0"):  # noqa: S104 - that is the point
            pass


async def test_who_says_nothing_before_tls_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_host_module, "ASK_S", 0.2)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(make_certificate(tmp_path))
    async with DirectHost.listen([KEY], region=REGION, tls=tls) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(host.url).port)
        try:
            async with asyncio.timeout(LIMIT_S):
                assert await reader.read() == b""
        finally:
            writer.transport.abort()
