"""SOCKS5 as programs speak it, well and badly."""

import asyncio

from holdfast.egress import socks
from tests.support.egress import Names, Proxied, listening
from tests.support.rows import every_row

HELLO = b"\x05\x01\x00"


def request(name: bytes, port: int, command: int = 1) -> bytes:
    return bytes((5, command, 0, 3, len(name))) + name + port.to_bytes(2, "big")


def reply(code: int) -> bytes:
    return b"\x05\x00" + bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))


async def test_a_connection_to_an_allowed_name_is_joined() -> None:
    async with listening(b"hello\n") as (port, _):
        stage = Proxied(socks.serve, allow=[f"a.example:{port}"])
        assert await stage.say(HELLO, request(b"A.example.", port)) == reply(0) + b"hello\n"
    [(attempt, verdict)] = stage.told
    assert (attempt.protocol.value, attempt.host.name, attempt.method) == ("socks5_tcp", "a.example", None)
    assert attempt.client.startswith("127.0.0.1:")
    assert verdict.allowed


async def test_addresses_are_asked_for_as_such() -> None:
    async with listening(b"hello\n") as (port, _):
        stage = Proxied(socks.serve, allow=[f"127.0.0.1:{port}"])
        four = bytes((5, 1, 0, 1, 127, 0, 0, 1)) + port.to_bytes(2, "big")
        mapped = bytes((5, 1, 0, 4)) + bytes(10) + b"\xff\xff\x7f\0\0\x01" + port.to_bytes(2, "big")
        assert await stage.say(HELLO, four) == reply(0) + b"hello\n"
        assert await stage.say(HELLO, mapped) == reply(0) + b"hello\n"


@every_row(
    ("name", "reasons"),
    [
        (b"b.example", ["not_allowed"]),
        (b"bad.a.example", ["denied"]),
        (b"10.0.0.1", ["not_allowed_local"]),
        (b"evil.example\0.a.example", []),
        (b"a.example\0", []),
        (b"a.example\n", []),
        (b" a.example", []),
        (b"", []),
        (b"2130706433", []),
        (b"0x7f.1", []),
        (b"\xc3\xa4.a.example", []),
        (b"[a.example]", []),
        (b"a.example:443", []),
    ],
)
def test_what_is_not_allowed_or_no_name_is_refused_and_never_looked_up(
    name: bytes, reasons: list[str]
) -> None:

    async def try_it() -> None:
        stage = Proxied(socks.serve, allow=["**.a.example"], deny=["bad.a.example"], private=False)
        assert await stage.say(HELLO, request(name, 443)) == reply(2)
        assert stage.reasons == reasons
        assert stage.names.asked == []

    asyncio.run(try_it())


@every_row("command", [2, 3, 0, 9])
def test_nothing_but_connections_can_be_had(command: int) -> None:

    async def try_it() -> None:
        stage = Proxied(socks.serve, allow=["a.example"])
        assert await stage.say(HELLO, request(b"a.example", 443, command)) == reply(7)

    asyncio.run(try_it())


@every_row(
    ("said", "answer"),
    [
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x00", b"\x05\xff"),
        (HELLO + b"\x05\x01\x00\x09", reply(8)),
        (HELLO + b"\x04\x01\x00\x01", b"\x05\x00"),
        (HELLO + bytes((5, 1, 0, 3, 1)) + b"a\0\0", reply(2)),
        (HELLO + b"\x05\x01", b"\x05\x00"),
    ],
)
def test_what_is_no_request_ends_the_connection(said: bytes, answer: bytes) -> None:

    async def try_it() -> None:
        assert await Proxied(socks.serve, allow=["a.example"]).say(said, end=True) == answer

    asyncio.run(try_it())


async def test_a_host_that_cannot_be_reached_is_told_from_one_that_may_not_be() -> None:
    stage = Proxied(socks.serve, allow=["*:1"])
    assert await stage.say(HELLO, request(b"a.example", 1)) == reply(5)
    stage = Proxied(socks.serve, allow=["*:1"], names=Names([]))
    assert await stage.say(HELLO, request(b"a.example", 1)) == reply(4)
