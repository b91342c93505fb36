"""The name server and the connections of one command, with the loopback of this machine for its namespace."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from holdfast.egress import broker as module
from holdfast.egress.addresses import Address
from holdfast.egress.asking.asker import Ask, ask_nobody
from holdfast.egress.asking.questions import Answer, HostQuestion
from holdfast.egress.bounds.allowance import Allowance
from holdfast.egress.broker import NameBroker
from holdfast.egress.dial import Dialer
from holdfast.egress.hosts import Host, parse_rules
from holdfast.egress.inside import InsideSockets
from holdfast.egress.keys.inspector import Inspector
from holdfast.egress.keys.placeholders import Key
from tests.support.egress import listening
from tests.support.patience import patient
from tests.support.rows import every_row
from tests.support.tcp import tcp_server
from tests.unit.egress.test_names import ask, rcode


class Inside:
    """Stands for the sockets of a namespace: an address of it is a port of ours."""

    families = frozenset({socket.AF_INET, socket.AF_INET6})

    def __init__(self) -> None:
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", 0))
        self.stream = socket.create_server(("127.0.0.1", 0))
        self.attempts, self.packets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ports: dict[tuple[str, int], int] = {}
        self.taken: set[int] = set()
        self.programs: list[tuple[str, int]] = []  # that were looked for

    def find_program(self, kind: str, port: int) -> str | None:
        self.programs.append((kind, port))
        return "/usr/bin/curl"

    def listen(self, address: Address, port: int) -> socket.socket:
        if port in self.taken:
            raise OSError(98, "Address already in use")
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        listener.setblocking(False)
        self.ports[str(address), port] = listener.getsockname()[1]
        return listener

    def close(self) -> None:
        for sock in (self.datagrams, self.stream, self.attempts, self.packets):
            sock.close()


class Scene:
    """A broker, what it asked a resolver for, and an echo at the other end."""

    def __init__(
        self,
        *allow: str,
        deny: Sequence[str] = (),
        private: bool = True,
        ask: Ask | None = None,
        inspector: Inspector | None = None,
    ) -> None:
        self.inside = Inside()
        self.asked: list[str] = []
        rules = parse_rules(allow, deny, private=private)
        self.room = 10_000
        self.broker = NameBroker(
            rules,
            cast("InsideSockets", self.inside),
            Dialer(self._resolve),
            lambda count: self.broker.descriptors + count <= self.room,
            inspector,
            ask=ask or ask_nobody,
            ask_s=0 if ask is None else patient(60),
        )

    async def _resolve(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        return ("127.0.0.1",)

    async def ask(self, name: bytes, kind: int = 1) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, self.inside.datagrams.getsockname())
            await loop.sock_sendall(sock, ask(name, kind))
            async with asyncio.timeout(patient(5)):
                return await loop.sock_recv(sock, 512)

    async def open(self, name: bytes, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = ".".join(str(byte) for byte in (await self.ask(name))[-4:])
        return await asyncio.open_connection("127.0.0.1", self.inside.ports[address, port])


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async with tcp_server(answer, backlog=512) as port:
        yield port


@contextlib.asynccontextmanager
async def scene(
    *allow: str,
    deny: Sequence[str] = (),
    private: bool = True,
    ask: Ask | None = None,
    inspector: Inspector | None = None,
) -> AsyncIterator[Scene]:
    made = Scene(*allow, deny=deny, private=private, ask=ask, inspector=inspector)
    made.broker.open()
    try:
        yield made
    finally:
        async with asyncio.timeout(patient(10)):
            await made.broker.aclose()


async def test_nobody_is_asked_for_a_name_before_a_connection_is_made() -> None:
    async with echo() as port, scene(f"api.test:{port}", f"**.wild.test:{port}") as made:
        for name in (b"api.test", b"x.wild.test", b"evil.test", b"c2VjcmV0.evil.test", b"c2VjcmV0.wild.test"):
            for kind in (1, 28, 16, 65):
                await made.ask(name, kind)
        assert made.asked == []
        _, writer = await made.open(b"api.test", port)
        writer.write(b"\0")
        while not made.asked:
            await asyncio.sleep(0)
        assert made.asked == ["api.test."]
        writer.close()


async def test_a_listener_exists_for_allowed_ports_once_its_name_was_asked_for() -> None:
    async with scene("api.test", "api.test:8443", "*.wild.test:81") as made:
        assert made.inside.ports == {}
        await made.ask(b"api.test")
        assert {port for _, port in made.inside.ports} == {80, 443, 8443}
        await made.ask(b"a.wild.test")
        assert len(made.inside.ports) == 2 * 3 + 2
        await made.ask(b"api.test", 28)
        assert len(made.inside.ports) == 2 * 3 + 2


async def test_what_is_refused_is_told_once_for_each_name() -> None:
    async with scene("**.test", deny=["ads.test"]) as made:
        for name in (b"ads.test", b"ads.test", b"other.example", b"7.0.0.127.in-addr.arpa", b"0x7f.1"):
            assert rcode(await made.ask(name)) == 3
        assert rcode(await made.ask(b"localhost")) == 0
        told = [(row.host, row.rule, row.grant, row.count) for row in made.broker.traffic.refused]
        assert told == [
            ("ads.test", "--deny-host ads.test denies it", None, 2),
            ("other.example", "no rule allows it", "--allow-host other.example", 1),
        ]


async def test_a_port_that_somebody_inside_has_is_told() -> None:
    async with scene("api.test:80", "api.test:81") as made:
        made.inside.taken.add(81)
        assert rcode(await made.ask(b"api.test")) == 0
        (row,) = made.broker.traffic.refused
        assert (row.port, row.grant) == (81, None)


def begin(address: bytes, port: int, *, flags: int = 2) -> bytes:
    """A packet that begins a connection."""
    return b"\x45" + bytes(15) + address + struct.pack("!HHIIBB", 40000, port, 0, 0, 0x50, flags) + bytes(6)


async def test_a_port_that_is_not_allowed_is_told_with_its_grant() -> None:
    async with scene("api.test") as made:
        address = (await made.ask(b"api.test"))[-4:]
        for packet in (
            begin(address, 5432),
            begin(address, 443),
            begin(address, 5432, flags=0x12),
            begin(b"\xc6\x12\x09\x09", 80),
            b"",
            b"\x45" * 10,
            begin(address, 5432),
        ):
            made.inside.packets.send(packet)
        while not made.broker.traffic.refused or made.broker.traffic.refused[0].count < 2:
            await asyncio.sleep(0)
        (row,) = made.broker.traffic.refused
        assert (row.host, row.port, row.grant) == ("api.test", 5432, "--allow-host api.test:5432")


async def test_questions_come_in_streams_too() -> None:
    async with scene("api.test") as made:
        reader, writer = await asyncio.open_connection(*made.inside.stream.getsockname())
        for name, wanted in ((b"api.test", 0), (b"evil.test", 3)):
            question = ask(name)
            writer.write(struct.pack("!H", len(question)) + question[:5])
            await writer.drain()
            writer.write(question[5:])
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            assert rcode(await reader.readexactly(length)) == wanted
        writer.write(b"\xff\xff")
        assert await reader.read() == b""
        writer.close()


async def test_two_hundred_connections_at_once_pass_bytes_both_ways() -> None:
    async with echo() as port, scene(f"api.test:{port}") as made:

        async def talk(number: int) -> bytes:
            reader, writer = await made.open(b"api.test", port)
            writer.write(b"\0" + b"%d" % number * 1000)
            writer.write_eof()
            data = await reader.read(-1)
            writer.close()
            return data

        async with asyncio.timeout(patient(30)):
            told = await asyncio.gather(*map(talk, range(200)))
        assert told == [b"\0" + b"%d" % number * 1000 for number in range(200)]
        (row,) = made.broker.traffic.sent
        assert row.connections == 200
        assert row.sent == row.received == sum(map(len, told))


async def test_further_connections_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    async with echo() as port, scene(f"api.test:{port}") as made:
        open_ones = [await made.open(b"api.test", port) for _ in range(3)]
        for number, (_, writer) in enumerate(open_ones):
            writer.write(b"\0%d" % number)
        for reader, _ in open_ones[:2]:
            await reader.readexactly(2)
        assert made.broker.traffic.sent[0].connections == 2
        open_ones[0][1].close()
        async with asyncio.timeout(patient(10)):
            assert await open_ones[2][0].readexactly(2) == b"\x002"
        for _, writer in open_ones[1:]:
            writer.close()


async def test_whoever_asks_for_many_names_takes_no_descriptors_from_others() -> None:
    async with echo() as port, scene(f"*.test:{port}") as made:
        made.room = 5
        codes = [rcode(await made.ask(b"%d.test" % number)) for number in range(4)]
        assert codes == [0, 0, 2, 2]
        assert made.broker.descriptors == 4
        _, waiting = await made.open(b"0.test", port)
        await asyncio.sleep(0)
        assert made.broker.traffic.sent == []
        made.room = 100
        waiting.write(b"\0")
        async with asyncio.timeout(patient(10)):
            while not made.broker.traffic.sent:
                await asyncio.sleep(0.01)
        waiting.close()


async def test_a_refusal_comes_in_words_and_the_host_hears_nothing() -> None:
    async with echo() as port, scene(f"api.test:{port}") as made:
        reader, writer = await made.open(b"api.test", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 403 ")
        assert b"it names the host 'evil.test'" in told
        writer.close()
        assert made.broker.traffic.sent[0].sent == 0


async def test_a_host_that_is_not_public_is_not_dialled() -> None:
    async with echo() as port, scene(f"api.test:{port}", private=False) as made:
        reader, writer = await made.open(b"api.test", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode())
        assert b"is at 127.0.0.1, which is not public" in await reader.read()
        writer.close()
        (row,) = made.broker.traffic.refused
        assert row.grant == "--allow-private"


@every_row("denied", ["127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1:{port}"], ids=str)
async def test_an_address_that_is_denied_is_not_dialled_by_any_name(denied: str) -> None:
    async with echo() as port, scene(f"*.test:{port}", deny=[denied.format(port=port)]) as made:
        reader, writer = await made.open(b"api.test", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode())
        async with asyncio.timeout(patient(5)):
            assert b"is at 127.0.0.1, which --deny-host 127.0.0.1" in await reader.read()
        writer.close()
        (row,) = made.broker.traffic.refused
        assert (row.host, row.grant) == ("api.test", None)
        assert [sent.failed for sent in made.broker.traffic.sent] == [1]


async def test_an_address_that_is_denied_at_another_port_is_dialled() -> None:
    async with echo() as port, scene(f"api.test:{port}", deny=["127.0.0.1:1"]) as made:
        reader, writer = await made.open(b"api.test", port)
        request = f"GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()
        writer.write(request)
        assert await reader.readexactly(len(request)) == request
        writer.close()


class Counted(Allowance):
    """Limits that count connections and hold up nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def connect(self, host: Host, port: int, now: float) -> float:
        self.begun += 1
        return 0.0


async def test_every_connection_outside_counts_against_a_limit() -> None:
    """One from inside has several outside, where its requests are read and have bodies in chunks."""
    ask = b"POST / HTTP/1.1\r\nHost: api.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", head=True) as (port, heard):
        target = frozenset({("api.test", port)})
        inspector = Inspector([Key("API_KEY", "the-real-key-1", "a-placeholder1", target, target)])
        async with scene(f"api.test:{port}", inspector=inspector) as made:
            made.broker.allowance = limits = Counted()
            reader, writer = await made.open(b"api.test", port)
            async with asyncio.timeout(patient(10)):
                for _ in range(3):
                    writer.write(ask % port)
                    assert (await reader.readuntil(b"\r\n\r\nhi")).startswith(b"HTTP/1.1 200")
            writer.close()
            assert len(heard) == limits.begun == made.broker.traffic.sent[0].connections == 3


async def test_what_was_sent_before_the_end_arrives() -> None:
    async with echo() as port, scene(f"api.test:{port}") as made:
        reader, writer = await made.open(b"api.test", port)
        writer.write(b"\0last words")
        assert await reader.readexactly(1) == b"\0"
        made.broker.end()
        assert await reader.readexactly(10) == b"last words"
        writer.close()


# --- hosts that somebody is asked about


class Person:
    """Gives one answer to everything, and knows what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int]] = []
        self.ready = asyncio.Event()

    async def ask(self, question: HostQuestion) -> Answer:
        self.asked.append((question.host, question.port))
        await self.ready.wait()
        return self.answer


async def test_a_connection_waits_for_a_yes_and_nobody_is_asked_for_the_name_before() -> None:
    person = Person(Answer.HOST)
    async with echo() as port, scene(f"known.test:{port}", ask=person.ask) as made:
        reader, writer = await made.open(b"new.test", port)
        writer.write(b"\0hello")
        while not person.asked:
            await asyncio.sleep(0)
        assert (person.asked, made.asked) == ([("new.test", port)], [])
        person.ready.set()
        assert await reader.readexactly(6) == b"\0hello"
        assert made.asked == ["new.test."]
        writer.close()
        assert made.broker.traffic.refused == []
        assert [(row.host, row.port) for row in made.broker.traffic.sent] == [("new.test", port)]


async def test_a_no_is_a_denial_with_its_grant_and_nothing_is_looked_up() -> None:
    person = Person(Answer.NO)
    person.ready.set()
    async with echo() as port, scene(f"known.test:{port}", ask=person.ask) as made:
        for _ in range(2):
            reader, writer = await made.open(b"new.test", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: new.test\r\n\r\n")
            assert b"403 Forbidden" in await reader.read()
            writer.close()
        assert (person.asked, made.asked) == ([("new.test", port)], [])
        (row,) = made.broker.traffic.refused
        told = (row.host, row.port, row.rule, row.grant, row.count)
        rule = "no rule allows it, and the answer was no"
        assert told == ("new.test", port, rule, f"--allow-host new.test:{port}", 2)
        assert made.broker.traffic.sent == []


async def test_a_yes_to_a_name_is_no_yes_to_an_address_that_is_not_public() -> None:
    person = Person(Answer.HOST)
    person.ready.set()
    async with echo() as port, scene(f"known.test:{port}", private=False, ask=person.ask) as made:
        reader, writer = await made.open(b"metadata.test", port)
        writer.write(b"\0")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        (row,) = made.broker.traffic.refused
        assert (row.host, row.grant) == ("metadata.test", "--allow-private")
        assert "which is not public" in row.rule


async def test_a_name_is_asked_about_once_somebody_connects_and_not_before() -> None:
    person = Person(Answer.HOST)
    async with scene(deny=["ads.test"], ask=person.ask) as made:
        assert rcode(await made.ask(b"new.test")) == 0
        assert {port for _, port in made.inside.ports} == {22, 80, 443}
        assert rcode(await made.ask(b"ads.test")) == 3
        assert rcode(await made.ask(b"7.0.0.10.in-addr.arpa", 12)) == 3
        text = await made.ask(b"other.test", 16)
        assert (rcode(text), text[6:8]) == (0, b"\0\0")
        assert len(made.inside.ports) == 2 * 3
        assert person.asked == []
        assert [row.host for row in made.broker.traffic.refused] == ["ads.test"]


async def test_names_that_may_be_asked_about_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNDECIDED", 3)
    async with scene("known.test", ask=Person(Answer.HOST).ask) as made:
        told = [rcode(await made.ask(b"n%d.test" % number)) for number in range(5)]
        assert told == [0, 0, 0, 3, 3]
        assert rcode(await made.ask(b"n1.test")) == 0
        assert rcode(await made.ask(b"known.test")) == 0


async def test_what_waits_at_the_end_of_the_command_is_let_go() -> None:
    person = Person(Answer.HOST)
    async with echo() as port, scene(f"known.test:{port}", ask=person.ask) as made:
        _, writer = await made.open(b"new.test", port)
        while not person.asked:
            await asyncio.sleep(0)
    assert made.asked == []
    writer.close()


async def test_a_refusal_names_the_program_which_is_looked_for_once() -> None:
    person = Person(Answer.NO)
    person.ready.set()
    async with echo() as port, scene(f"known.test:{port}", deny=["ads.test"], ask=person.ask) as made:
        for _ in range(3):
            await made.ask(b"ads.test")
        assert [kind for kind, _ in made.inside.programs] == ["udp"]
        for _ in range(3):
            reader, writer = await made.open(b"new.test", port)
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
        assert [kind for kind, _ in made.inside.programs] == ["udp", "tcp", "tcp"]  # to ask, and to tell
        assert {row.program for row in made.broker.traffic.refused} == {"/usr/bin/curl"}
