"""A confined command with a proxy tries to reach what it may not: a service of this host, by every door.

The service counts who comes; the names that are allowed lead there too, as a hostile name server has it.
"""

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.egress.dial import Dialer
from holdfast.server.processes import proxying
from tests.support.egress import PUBLIC, Names, nothing_own
from tests.support.managed import begin, decisions, finish, proxied, run
from tests.support.peer import ready, serving
from tests.support.tcp import tcp_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
RULES = {"a.example": "allow", "*.wild.example": "allow", "**.a.example": "allow", "bad.a.example": "deny"}


class Victim:
    def __init__(self) -> None:
        self.port = 0
        self.visits = 0


@contextlib.asynccontextmanager
async def victim() -> AsyncIterator[Victim]:
    """A service on this host's loopback that no command may reach."""
    found = Victim()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.visits += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    async with tcp_server(serve) as found.port:
        yield found


# Each is a way that somebody has taken through some proxy. `P` is the victim's port.
REQUESTS = r"""
attempts = {
    "loopback": lambda: get(f"127.0.0.1:{P}"),
    "loopback by name": lambda: get(f"localhost:{P}"),
    "a name below localhost": lambda: get(f"x.localhost:{P}"),
    "IPv6 loopback": lambda: get(f"[::1]:{P}"),
    "mapped into IPv6": lambda: get(f"[::ffff:127.0.0.1]:{P}"),
    "mapped, in hexadecimal": lambda: get(f"[::ffff:7f00:1]:{P}"),
    "compatible with IPv4": lambda: get(f"[::127.0.0.1]:{P}"),
    "NAT64": lambda: get(f"[64:ff9b::7f00:1]:{P}"),
    "6to4": lambda: get(f"[2002:7f00:1::]:{P}"),
    "a zone": lambda: get(f"[::1%25lo]:{P}"),
    "decimal": lambda: get(f"2130706433:{P}"),
    "octal": lambda: get(f"0177.0.0.1:{P}"),
    "hexadecimal": lambda: get(f"0x7f000001:{P}"),
    "hexadecimal, short": lambda: get(f"0x7f.1:{P}"),
    "short": lambda: get(f"127.1:{P}"),
    "zero": lambda: get(f"0:{P}"),
    "all zeros": lambda: get(f"0.0.0.0:{P}"),
    "a last dot": lambda: get(f"127.0.0.1.:{P}"),
    "metadata": lambda: get("169.254.169.254"),
    "a name of the policy that leads here": lambda: get(f"a.example:{P}"),
    "the same with a last dot": lambda: get(f"a.example.:{P}"),
    "the same in capitals": lambda: get(f"A.EXAMPLE:{P}"),
    "a wildcard that leads here": lambda: get(f"data-in-a-label.wild.example:{P}"),
    "the apex of a wildcard": lambda: get(f"wild.example:{P}"),
    "an ending that is not below": lambda: get(f"evilwild.example:{P}"),
    "denied below an allowed tree": lambda: get(f"bad.a.example:{P}"),
    "a user name": lambda: get(f"a.example@127.0.0.1:{P}"),
    "a user name, the other way": lambda: get(f"127.0.0.1:{P}@a.example"),
    "a backslash": lambda: get(f"a.example\\@127.0.0.1:{P}"),
    "a fragment": lambda: get(f"a.example#@127.0.0.1:{P}"),
    "percent signs": lambda: get(f"127%2e0%2e0%2e1:{P}"),
    "full-width digits": lambda: get(f"\xef\xbc\x9127.0.0.1:{P}"),
    "a NUL": lambda: get(f"127.0.0.1\0.a.example:{P}"),
    "a line break": lambda: get(f"a.example\r\nX: y\r\n\r\nGET http://127.0.0.1:{P}/ HTTP/1.1\r\nHost: x"),
    "a Host that is another": lambda: http(
        f"GET http://a.example/ HTTP/1.1\r\nHost: 127.0.0.1:{P}\r\nConnection: close\r\n\r\n"),
    "two Hosts": lambda: http(
        f"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: 127.0.0.1:{P}\r\n\r\n"),
    "origin form": lambda: http(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{P}\r\nConnection: close\r\n\r\n"),
    "https in a URL": lambda: http(f"GET https://127.0.0.1:{P}/ HTTP/1.1\r\nHost: 127.0.0.1:{P}\r\n\r\n"),
    "two lengths": lambda: http(
        f"POST http://a.example:{P}/ HTTP/1.1\r\nHost: a.example:{P}\r\nContent-Length: 4\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://127.0.0.1:{P}/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    "behind a refused one": lambda: http(
        f"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n"
        f"GET http://127.0.0.1:{P}/ HTTP/1.1\r\nHost: 127.0.0.1:{P}\r\n\r\n", end=True),
    "HTTP/2 without asking": lambda: http("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", end=True),
    "TLS to the proxy": lambda: http("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", end=True),
    "CONNECT": lambda: connect(f"127.0.0.1:{P}"),
    "CONNECT to IPv6": lambda: connect(f"[::1]:{P}"),
    "CONNECT by an allowed name": lambda: connect(f"a.example:{P}"),
    "CONNECT in decimal": lambda: connect(f"2130706433:{P}"),
    "CONNECT with a path": lambda: connect(f"a.example:443/127.0.0.1:{P}"),
    "CONNECT to the proxy itself": lambda: connect(os.environ["HTTP_PROXY"][7:]),
    "SOCKS": lambda: socks(b"127.0.0.1", P),
    "SOCKS with an address": lambda: socks(b"\x7f\0\0\1", P, kind=1),
    "SOCKS with a mapped address": lambda: socks(bytes(10) + b"\xff\xff\x7f\0\0\1", P, kind=4),
    "SOCKS with a NUL": lambda: socks(b"127.0.0.1\0.a.example", P),
    "SOCKS with a NUL at the end": lambda: socks(b"a.example\0", P),
    "SOCKS by an allowed name": lambda: socks(b"a.example", P),
    "SOCKS in hexadecimal": lambda: socks(b"0x7f.1", P),
    "SOCKS with brackets": lambda: socks(b"[::1]", P),
    "SOCKS with a port in the name": lambda: socks(f"a.example:{P}".encode(), 443),
}
P = int(sys.argv[1])
for name, attempt in attempts.items():
    said = attempt()
    refused = said[3:4] not in (b"\0",) if isinstance(said, bytes) else said.split(" ")[1][:1] in "45"
    if not refused or "secret" in str(said):
        print("REACHED", name, said)
print(len(attempts))
"""


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Every name leads to this machine, as whoever owns it says."""
    names = Names(["127.0.0.1"])
    monkeypatch.setattr(proxying, "Dialer", functools.partial(Dialer, names))
    return names


async def test_no_door_of_the_proxy_leads_to_this_host(hostile: Names) -> None:
    async with victim() as service, serving() as (url, _), ready(url) as peer:
        assert await run(peer, REQUESTS, service.port, **proxied(domains=RULES)) == "57\n"
        assert service.visits == 0
    asked = {name.removesuffix(".") for name in hostile.asked}
    assert asked == {"a.example", "data-in-a-label.wild.example"}  # nothing else was said to a name server


async def test_a_name_that_changes_its_mind_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: public when it is looked at, here when it is dialled."""
    names = Names([PUBLIC], ["127.0.0.1"])
    tried: list[str] = []

    async def refuse(addresses: Any, _port: int) -> Any:
        tried.extend(map(str, addresses))
        raise ConnectionRefusedError

    monkeypatch.setattr(proxying, "Dialer", functools.partial(Dialer, names, is_own=nothing_own))
    monkeypatch.setattr("holdfast.egress.dial.connect", refuse)
    async with serving() as (url, _), ready(url) as peer:
        assert await run(peer, "print(code(get('a.example')))", **proxied(domains=RULES)) == "502\n"
    assert (names.asked, tried) == (["a.example."], [PUBLIC])


async def test_local_addresses_that_are_granted_do_not_include_our_own_daemons() -> None:
    """The exec server takes whoever comes from this user for its user."""
    code = """
    host, port = sys.argv[1:]
    print(code(connect(f"{host}:{port}")), code(get(f"{host}:{port}")), code(socks(b"localhost", int(port))))
    """
    async with victim() as service, serving() as (url, _), ready(url) as peer:
        port = url.rsplit(":", 1)[1]
        granted = proxied(domains={"*": "allow"}, allowLocalBinding=True)
        assert await run(peer, code, "127.0.0.1", port, **granted) == "502 502 04\n"
        assert await run(peer, code, "127.0.0.1", service.port, **granted) == "200 200 00\n"
        assert service.visits == 3


async def test_a_flood_of_questions_is_bounded_and_the_client_is_not_held_up() -> None:
    code = """
    import threading
    said = []
    def ask(number):
        said.append(code(get(f"n{number}.example")))
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(100)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(len(said), set(said))
    """
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, code, **proxied(3_600_000))

        def asked() -> list[dict[str, Any]]:
            return [
                event for event in peer.events.get(name, []) if event["method"] == "network/policyRequest"
            ]

        await peer.until(lambda: len(asked()) == 100)
        assert await peer.call("environment/status") == {"status": "ready"}
        for question in asked():
            await peer.send({"id": question["id"], "error": {"code": -1, "message": "no"}})
        assert await finish(peer, name) == "100 {'403'}\n"
        assert len(decisions(peer, name)) == 100
