"""The server that a TLS client names, whole or in pieces; what is odd is refused and nothing breaks."""

import contextlib
import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.clienthello import MAX_HELLO, BadHello, Hello, HelloReader
from tests.support.rows import every_row


def real_hello(name: str | None) -> bytes:
    """What Python's own TLS says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def server_name(name: bytes) -> bytes:
    entry = b"\0" + struct.pack("!H", len(name)) + name
    return struct.pack("!H", len(entry)) + entry


def hello(*extensions: tuple[int, bytes], records: int = 1) -> bytes:
    listed = b"".join(struct.pack("!HH", kind, len(content)) + content for kind, content in extensions)
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack("!H", len(listed)) + listed
    message = b"\1" + len(body).to_bytes(3) + body
    size = -(-len(message) // records)
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\3\1" + struct.pack("!H", len(part)) + part for part in parts)


@every_row("name", ["api.example.com", None, "xn--bcher-kva.example"], ids=str)
def test_a_real_client_is_understood(name: str | None) -> None:
    assert HelloReader().feed(real_hello(name)) == Hello(name, encrypted=False)


@every_row("records", [1, 2, 3, 50], ids=str)
def test_records_are_put_together(records: int) -> None:
    sent = hello((0, server_name(b"api.example.com")), records=records)
    assert HelloReader().feed(sent + b"more") == Hello("api.example.com", encrypted=False)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=40))
def test_pieces_are_put_together(sizes: list[int]) -> None:
    sent, reader, found = (
        hello((0, server_name(b"a.example")), (16, b"\0\1x"), records=3),
        HelloReader(),
        None,
    )
    for size in [*sizes, len(sent)]:
        assert found is None
        if not sent:
            break
        found, sent = reader.feed(sent[:size]), sent[size:]
        if found:
            break
    assert found == Hello("a.example", encrypted=False)


@every_row("kind", [0xFE0D, 0xFFCE], ids=hex)
def test_one_inside_of_another_is_told_of(kind: int) -> None:
    found = HelloReader().feed(hello((0, server_name(b"a.example")), (kind, b"x")))
    assert found == Hello("a.example", encrypted=True)


@every_row(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\1\0\2",
        b"\x16\2\0\0\5",
        b"\x16\3\1\0\0",
        b"\x16\3\1\xff\xff",
        b"\x15\3\1\0\2\2\50",
        b"\x16\3\1\0\4\2\0\0\0",
        b"\x16\3\1\0\4\1\xff\xff\xff",
        hello((0, server_name(b"a")), (0, server_name(b"b"))),
        hello((0, server_name(b"a") + b"x")),
        hello((0, struct.pack("!H", 8) + b"\0\0\1a\0\0\1b")),
        hello((0, b"\0\4\1\0\1a")),
        hello((0, server_name(b"\xff"))),
        b"\x16\3\1\0\5\1\0\0\1\3",
    ],
)
def test_what_is_odd_is_refused(sent: bytes) -> None:
    with pytest.raises(BadHello):
        HelloReader().feed(sent)


def test_one_that_never_ends_is_refused() -> None:
    reader = HelloReader()
    record = b"\x16\3\1\x40\0" + (b"\1\0\xff\xff" + bytes(0x4000))[:0x4000]
    for _ in range(MAX_HELLO // len(record)):
        assert reader.feed(record) is None
    with pytest.raises(BadHello):
        reader.feed(record)


@given(st.binary(max_size=300), st.integers(0, 60))
def test_no_bytes_break_it(noise: bytes, at: int) -> None:
    sent = hello((0, server_name(b"a.example")))
    for data in (noise, sent[:at] + noise + sent[at:], b"\x16\3\1\0" + noise):
        with contextlib.suppress(BadHello):
            HelloReader().feed(data)
