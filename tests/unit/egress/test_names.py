"""A name server that asks nobody: one question, one answer, and nothing that a message could break."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress import names
from holdfast.egress.names import BLOCK_V4, BLOCK_V6, BadMessage, NameTable, Rcode, RecordType
from tests.support.rows import every_row


def ask(
    name: bytes | list[bytes], kind: int = 1, *, flags: int = 0x0100, count: int = 1, klass: int = 1
) -> bytes:
    labels = name.split(b".") if isinstance(name, bytes) else name
    asked = b"".join(bytes((len(label),)) + label for label in labels if label) + b"\0"
    return struct.pack("!HHHHHH", 7, flags, count, 0, 0, 0) + asked + struct.pack("!HH", kind, klass)


def rcode(message: bytes) -> int:
    return message[3] & 0xF


@every_row(
    ("name", "wanted"),
    [
        (b"api.example.com", "api.example.com"),
        (b"API.Example.com", "api.example.com"),
        (b"_dns.example.com", "_dns.example.com"),
        ([b"evil.com\0", b"example", b"com"], None),
        ([b"a.b", b"com"], None),
        ([b"b\xc3\xbccher", b"example"], None),
        ([b"a b", b"example"], None),
        ([], None),
        ([b"a" * 63, b"b"], f"{'a' * 63}.b"),
    ],
)
def test_a_question_names_a_host_or_nothing(name: bytes | list[bytes], wanted: str | None) -> None:
    assert names.read_question(ask(name)).name == wanted


@every_row(
    ("message", "told"),
    [
        (b"", None),
        (b"\0" * 11, None),
        (ask(b"a.b", flags=0x8100), None),
        (ask(b"a.b", flags=0x2900), Rcode.NOT_IMPLEMENTED),
        (ask(b"a.b", count=0), Rcode.FORMAT_ERROR),
        (ask(b"a.b", count=2), Rcode.FORMAT_ERROR),
        (ask(b"a.b")[:-1], Rcode.FORMAT_ERROR),
        (ask(b"a.b")[:14], Rcode.FORMAT_ERROR),
        (ask([b"a" * 63] * 4), Rcode.FORMAT_ERROR),
        (struct.pack("!HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", Rcode.FORMAT_ERROR),
        (struct.pack("!HHHHHH", 7, 0, 1, 0, 0, 0) + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", Rcode.FORMAT_ERROR),
    ],
)
def test_what_is_no_question_is_not_taken_for_one(message: bytes, told: Rcode | None) -> None:
    with pytest.raises(BadMessage) as caught:
        names.read_question(message)
    assert (None if caught.value.answer is None else rcode(caught.value.answer)) == told


def test_a_name_has_an_address_of_each_kind() -> None:
    table = NameTable()
    found = table.give("api.example.com")
    assert found is not None
    for kind, address in zip((RecordType.A, RecordType.AAAA), found, strict=True):
        told = names.answer(names.read_question(ask(b"API.example.com", kind)), found)
        assert told[:2] == b"\0\7"
        assert rcode(told) == Rcode.NO_ERROR
        assert struct.unpack("!H", told[6:8]) == (1,)
        assert told.endswith(address.packed)
        assert b"\3API\7example\3com\0" in told  # the letters as they were asked, which some clients compare


@every_row("kind", [2, 5, 15, 16, 33, 64, 65, 12], ids=str)
def test_other_records_of_a_name_are_not_there(kind: int) -> None:
    found = NameTable().give("api.example.com")
    assert found is not None
    told = names.answer(names.read_question(ask(b"api.example.com", kind)), found)
    assert (rcode(told), told[6:8]) == (Rcode.NO_ERROR, b"\0\0")


def test_a_refused_name_does_not_exist() -> None:
    told = names.refuse(names.read_question(ask(b"other.example")))
    assert (rcode(told), told[6:8]) == (Rcode.NAME_ERROR, b"\0\0")


def test_addresses_stay_what_they_were() -> None:
    table = NameTable(most=2)
    first, second = table.give("a.example"), table.give("b.example")
    assert table.give("a.example") == first != second
    assert table.give("c.example") is None
    assert table.find("c.example") is None
    assert first is not None
    assert first[0] in BLOCK_V4
    assert first[1] in BLOCK_V6
    assert {table.name_at(str(address)) for address in first} == {"a.example"}
    assert [table.name_at(text) for text in ("198.18.0.1", "127.0.0.1", "::1", "198.18.9.9", "no")] == [
        None
    ] * 5


@given(st.binary(max_size=600))
def test_no_message_breaks_it(message: bytes) -> None:
    try:
        question = names.read_question(message)
    except BadMessage:
        return
    found = NameTable().give("a.example")
    assert found is not None
    for told in (names.answer(question, found), names.refuse(question)):
        assert len(told) <= names.MAX_QUESTION
        assert told[:2] == message[:2]


@given(st.lists(st.binary(min_size=1, max_size=63), min_size=1, max_size=8), st.integers(0, 0xFFFF))
def test_a_name_that_is_read_is_one_that_can_be_written(labels: list[bytes], kind: int) -> None:
    try:
        question = names.read_question(ask(labels, kind))
    except BadMessage:
        assert sum(len(label) + 1 for label in labels) >= 255
        return
    if question.name is not None:
        assert question.name.encode() == b".".join(labels).lower()
        assert question.name.isascii()
        assert question.name.isprintable()
