"""A name is looked up once, all its addresses are looked at, and one of them is dialled."""

import asyncio
import errno
import ipaddress
import socket
import threading
from collections.abc import Sequence

import pytest

from holdfast.egress import dial as module
from holdfast.egress.addresses import Address
from holdfast.egress.dial import Dialer, LookupFailed, NotPublic, connect, is_own, look_up
from holdfast.egress.hosts import parse_host
from holdfast.egress.upstream import Proxies, Upstreams
from holdfast.local.listeners import mark_listener
from tests.support.egress import Names, all_of, listening, nothing_own
from tests.support.patience import patient
from tests.support.rows import every_row

HOST = parse_host("api.example")


async def test_the_address_that_was_looked_at_is_dialled_and_no_other() -> None:
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with listening() as (port, _):
        sock = await Dialer(names).dial(HOST, port, private=True)
        assert sock.getpeername() == ("127.0.0.1", port)
        assert await all_of(sock) == b"hello"
    assert names.asked == ["api.example."]


@every_row(
    "answer",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["fe80::1%lo"],
        ["0.1.2.3"],
    ],
)
def test_one_address_that_is_not_public_is_enough_to_refuse(answer: list[str]) -> None:
    async def dial() -> None:
        with pytest.raises(NotPublic):
            await Dialer(Names(answer), is_own=nothing_own).dial(HOST, 443)

    asyncio.run(dial())


async def test_a_literal_is_looked_at_too_and_nobody_is_asked() -> None:
    names = Names()
    with pytest.raises(NotPublic):
        await Dialer(names).dial(parse_host("10.0.0.1"), 443)
    assert names.asked == []


async def test_an_address_of_this_machine_is_refused_also_if_it_is_public() -> None:
    def ours(address: Address) -> bool:
        return str(address) == "93.184.216.34"

    with pytest.raises(NotPublic, match="which is not public"):
        await Dialer(Names(["93.184.216.34"]), is_own=ours).dial(HOST, 443)


def test_this_machine_knows_its_own_addresses() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("93.184.216.34"))


async def test_a_name_without_an_address_is_said_to_have_none() -> None:
    with pytest.raises(LookupFailed, match="no address"):
        await Dialer(Names([])).dial(HOST, 443)
    with pytest.raises(LookupFailed):
        await look_up("no.such.invalid")


async def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_name: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(module, "RESOLVE_S", 0.01)
    with pytest.raises(LookupFailed) as caught:
        await Dialer(never).dial(HOST, 443)
    assert caught.value.errno == errno.ETIMEDOUT


async def test_our_resolver_is_asked_only_so_often_at_once_and_never_for_this_machine() -> None:
    for _ in range(module.MAX_LOOKUPS):
        assert module._looking.acquire(blocking=False)
    try:
        with pytest.raises(LookupFailed, match="too many"):
            await look_up("api.test")
        for name in ("localhost", "a.localhost", "a.localhost."):
            assert await look_up(name) == ("127.0.0.1", "::1")
    finally:
        module._looking.release(module.MAX_LOOKUPS)


class SlowNames:
    """A resolver that answers once it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may = asyncio.Event()

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        await self.may.wait()
        return (name,)


async def test_connections_to_one_name_share_its_lookup() -> None:
    """Two hundred at once are not more than may be looked up."""
    slow = SlowNames()
    lookups = module.Lookups(slow)
    waiting = [asyncio.ensure_future(lookups("a.example")) for _ in range(200)]
    while not slow.asked:
        await asyncio.sleep(0)
    slow.may.set()
    assert set(await asyncio.gather(*waiting)) == {("a.example",)}
    assert slow.asked == ["a.example"]
    assert await lookups("a.example") == ("a.example",)
    assert len(slow.asked) == 2  # what a name means is kept for nobody who comes later


async def test_one_command_leaves_lookups_for_the_others() -> None:
    """Names whose name servers do not answer are not looked up by all the threads that there are."""
    slow = SlowNames()
    lookups = module.Lookups(slow)
    waiting = [asyncio.ensure_future(lookups(f"n{number}.example")) for number in range(100)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for one in waiting:
        one.cancel()  # as after the time that a connection has for it
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(slow.asked) == module.MAX_OWN_LOOKUPS < module.MAX_LOOKUPS
    late = asyncio.ensure_future(lookups("late.example"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(slow.asked) == module.MAX_OWN_LOOKUPS  # the threads go on
    slow.may.set()
    assert await late == ("late.example",)


async def test_a_lookup_without_a_thread_is_refused_and_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(module.MAX_LOOKUPS + 1):
            with pytest.raises(LookupFailed):
                await look_up("one.example")
    assert await look_up("127.0.0.1") == ["127.0.0.1"]


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    async with listening() as (port, _):
        sock = await Dialer(Names(["127.0.0.2", "::1", "127.0.0.1"])).dial(HOST, port, private=True)
        assert sock.getpeername()[0] == "127.0.0.1"
        sock.close()


async def test_who_listens_on_this_machine_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "_connect")
    async with listening() as (port, _):
        (await connect([ipaddress.ip_address("127.0.0.1")], port)).close()


async def test_when_nobody_answers_the_last_refusal_is_told() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await connect([ipaddress.ip_address("127.0.0.1")], unused.getsockname()[1])


async def test_a_slow_address_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    cancelled = asyncio.Event()

    async def slow_first(_sock: socket.socket, address: Address, _port: int) -> None:
        tried.append(str(address))
        if len(tried) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    monkeypatch.setattr(module, "_connect", slow_first)
    monkeypatch.setattr(module, "STAGGER_S", 0.01)
    with await connect([ipaddress.ip_address("::1"), ipaddress.ip_address("127.0.0.1")], 1) as found:
        assert found.family == socket.AF_INET
        assert tried == ["::1", "127.0.0.1"]
        async with asyncio.timeout(patient(5)):
            await cancelled.wait()


def through(port: int, *, private: bool = False, more: str = "") -> Upstreams:
    return Upstreams(Proxies.from_environ({"ALL_PROXY": f"http://{more}127.0.0.1:{port}"}), private)


async def test_an_upstream_proxy_is_asked_to_connect_by_name() -> None:
    async with listening(head=True, answer=b"HTTP/1.1 200 OK\r\n\r\nhello") as (port, heard):
        dialer = Dialer(Names(["93.184.216.34"]), through(port, more="u:p@"), is_own=nothing_own)
        assert await all_of(await dialer.dial(HOST, 443)) == b"hello"
    [head] = heard
    assert head.startswith(b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n")
    assert b"Proxy-Authorization: Basic dTpw\r\n" in head


async def test_an_upstream_proxy_may_know_names_that_we_do_not() -> None:
    async with listening(head=True, answer=b"HTTP/1.1 200 OK\r\n\r\nhello") as (port, _):
        assert await all_of(await Dialer(Names([]), through(port)).dial(HOST, 443)) == b"hello"


async def test_an_upstream_proxy_is_no_way_to_a_private_address() -> None:
    async with listening(head=True, answer=b"HTTP/1.1 200 OK\r\n\r\n") as (port, heard):
        with pytest.raises(NotPublic):
            await Dialer(Names(["10.0.0.1"]), through(port, private=True)).dial(HOST, 443)
    assert heard == []


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 No\r\n\r\n", b"HTTP/1.1 2", b"HTTP/2 200 OK\r\n\r\n"])
async def test_an_upstream_proxy_that_refuses_is_a_refusal(answer: bytes) -> None:
    async with listening(answer, head=True) as (port, _):
        with pytest.raises(ConnectionRefusedError, match="upstream"):
            await Dialer(Names(["93.184.216.34"]), through(port), is_own=nothing_own).dial(HOST, 443)


async def test_the_way_is_known_before_it_is_taken() -> None:
    async with listening() as (port, heard):
        dialer = Dialer(Names(["93.184.216.34"]), through(port), is_own=nothing_own)
        route = await dialer.find(HOST, scheme="http")
        assert route.above is not None
        assert await all_of(await dialer.reach(route.above)) == b"hello"
    assert heard == []


async def test_a_daemon_of_ours_is_never_at_the_other_end() -> None:
    with socket.socket() as sock, mark_listener(sock):
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        for _ in range(2):  # the second time it is known
            with pytest.raises(NotPublic):
                await Dialer(Names(["127.0.0.1"])).dial(HOST, sock.getsockname()[1], private=True)
