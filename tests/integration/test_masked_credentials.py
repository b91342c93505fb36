"""`credentialMasking`: the proxy of a process puts keys into requests, and the process has placeholders."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.egress import proxy, socks
from holdfast.egress.dial import Dialer
from holdfast.egress.gate import Gate
from holdfast.egress.hosts import HostRules, parse_rule
from holdfast.egress.keys.inspector import Inspector
from holdfast.egress.keys.placeholders import Key, KeyUse
from holdfast.egress.verdicts import ProxyPolicy
from tests.support.managed import LIMITED, SETTINGS
from tests.support.peer import ready, serving
from tests.support.webhosts import WebHosts, web_hosts

REAL: Final = "sk-proj-zQ8vT3kLmN5pR7wXyB2c"
STANDS: Final = "sk-proj-placeholder000000001"
OURS: Final = "ours_q7Rt5Yw2Kp9Lm4Nc"
GITHUB: Final = "ghp_0123456789abcdefABCDEF0123456789abcd"


@asynccontextmanager
async def gated(hosts: WebHosts) -> AsyncIterator[tuple[int, int, bytes]]:
    """The ports of an HTTP and a SOCKS5 proxy with a key for a host, and whom its command trusts."""
    targets = frozenset({("tls.test", hosts.ports["tls"])})
    use = KeyUse(
        frozenset({("tls.test", hosts.ports["tls"], "/echo/")}), frozenset({(b"authorization", b"bearer ")})
    )
    inspector = Inspector([Key("API_KEY", REAL, STANDS, targets, use=use)], [str(hosts.authority)])

    async def resolve(_: str) -> list[str]:
        return ["127.0.0.1"]

    rules = HostRules((parse_rule("*.test", default_ports=None),), private=True)
    dialer = Dialer(resolve)
    gate = Gate(ProxyPolicy(rules), dialer, tell=lambda *_: None, inspector=inspector)
    loop = asyncio.get_running_loop()
    tasks = []

    async def accept(listener: socket.socket, serve: object) -> None:
        while True:
            sock, _ = await loop.sock_accept(listener)
            tasks.append(asyncio.ensure_future(answer(sock, serve)))

    async def answer(sock: socket.socket, serve: object) -> None:
        with sock:
            await asyncio.wait_for(serve(sock), 20)  # type: ignore[operator]  # one of two below

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for listener, serve in zip(
        listeners, (partial(proxy.serve, gate=gate), partial(socks.serve, gate=gate)), strict=True
    ):
        listener.setblocking(False)
        tasks.append(asyncio.ensure_future(accept(listener, serve)))
    yield listeners[0].getsockname()[1], listeners[1].getsockname()[1], inspector.certificate
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for listener in listeners:
        listener.close()


async def ask(opening: bytes, expected: int, via: int, trusted: bytes, head: str) -> str:
    """Say this first on a connection to a proxy, agree on TLS behind its answer, and ask."""
    reader, writer = await asyncio.open_connection("127.0.0.1", via)
    writer.write(opening)
    said = await (reader.readuntil(b"\r\n\r\n") if expected == 0 else reader.readexactly(expected))
    assert b"200" in said or said[:2] == b"\x05\x00", said
    context = ssl.create_default_context(cadata=trusted.decode())
    await writer.start_tls(context, server_hostname="tls.test")
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode("latin-1")


async def test_a_key_is_put_into_what_goes_through_the_proxy_of_a_process(tmp_path: Path) -> None:
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["tls"]
        async with gated(hosts) as (http, socks5, trusted):
            head = f"GET /echo/body HTTP/1.1\r\nHost: tls.test:{port}\r\nAuthorization: Bearer {STANDS}"
            connect = f"CONNECT tls.test:{port} HTTP/1.1\r\nHost: tls.test:{port}\r\n\r\n".encode()
            by_http = await ask(connect, 0, http, trusted, head)
            greeting = b"\x05\x01\x00" + b"\x05\x01\x00\x03\x08tls.test" + port.to_bytes(2, "big")
            by_socks = await ask(greeting, 12, socks5, trusted, head)
            elsewhere = await ask(connect, 0, http, trusted, head.replace("/echo/body", "/echoes"))
            otherwise = await ask(connect, 0, http, trusted, head.replace("Authorization: Bearer", "X-Key:"))
            plain = hosts.ports["plain"]
            reader, writer = await asyncio.open_connection("127.0.0.1", http)
            writer.write(
                f"GET http://api.test:{plain}/stolen HTTP/1.1\r\nHost: api.test:{plain}\r\n"
                f"X: {STANDS}\r\n\r\n".encode()
            )
            refused = (await reader.read()).decode()
            writer.close()
    for answer in (by_http, by_socks):
        assert ("200 OK" in answer, STANDS in answer, REAL in answer) == (True, True, False), answer
    assert "403" in elsewhere.splitlines()[0]
    assert "not for this path" in elsewhere
    assert "another header" in otherwise
    had = [seen for seen in hosts.seen if f"Bearer {REAL}".encode() in seen.data]
    assert len(had) == 2
    assert "403" in refused
    assert not [seen for seen in hosts.seen if b"/stolen" in seen.data]


async def test_a_process_has_placeholders_and_what_it_trusts_goes_with_it() -> None:
    env = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": REAL, "MY": GITHUB, "ALSO": f"x{REAL}", "OTHER": "1"}
    env |= {"OURS": OURS, "COPY": OURS}
    described = {"env": ["OURS"], "patterns": ["ours_.*"], "url_prefixes": ["https://api.ours.test/v1/"]}
    masked = {"proxy": SETTINGS | {"credentialMasking": True, "domains": {"api.openai.com": "allow"}}}
    masked["proxy"] |= {"credentialProviders": {"ours": {**described, "auth": ["bearer"]}}}
    async with serving() as (url, _), ready(url) as peer:
        told = (await peer.call("environment/info"))["capabilities"]
        assert told["credentialMasking"]
        assert told["credentialMaskingCustomProviders"]
        more = {"sandbox": LIMITED, "enforceManagedNetwork": True, "networkProxy": masked, "env": env}
        await peer.start("p", "env; stat -c %F $SSL_CERT_FILE; echo $SSL_CERT_FILE >&2", **more)
        await peer.closed("p")
    said = peer.output("p", "stdout").decode()
    assert (REAL in said, GITHUB in said, OURS in said) == (False, False, False)
    assert "OURS=" in said
    assert "COPY=" not in said
    assert "OPENAI_API_KEY=sk-proj-" in said
    assert "MY=ghp_" in said
    assert "OTHER=1" in said
    assert "regular file" in said
    assert not Path(peer.output("p", "stderr").decode().strip()).parent.exists()
