"""A byte stream cut into messages at its newlines."""

import pytest

from holdfast.errors import RemoteProtocolError
from holdfast.wire.lines import LineReader
from holdfast.wire.rpc import MAX_MESSAGE_BYTES
from tests.support.rows import every_row


@every_row(
    ("data", "messages"),
    [
        (b"", []),
        (b"a", []),
        (b"a\n", [b"a"]),
        (b"a\r\n", [b"a"]),
        (b"a\nb\r\nc\n", [b"a", b"b", b"c"]),
        (b"a\n\n \t\r\n\r\nb\n", [b"a", b"b"]),
        (b" a \n", [b" a "]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"\n", []),
        (b"\r\n", []),
        (b"\xff\n", [b"\xff"]),
    ],
)
def test_lf_and_crlf_end_a_line_and_blank_lines_are_nothing(data: bytes, messages: list[bytes]) -> None:
    assert LineReader().feed(data) == messages


def test_a_line_may_come_in_pieces() -> None:
    reader = LineReader()
    assert [reader.feed(piece) for piece in (b"a", b"", b"b\r", b"\nc", b"\n")] == [
        [],
        [],
        [],
        [b"ab"],
        [b"c"],
    ]


@pytest.mark.parametrize(("rest", "messages"), [(b"", []), (b" \r", []), (b"b", [b"b"])])
def test_the_last_line_needs_no_newline(rest: bytes, messages: list[bytes]) -> None:
    reader = LineReader()
    assert reader.feed(b"a\n" + rest) == [b"a"]
    assert reader.finish() == messages
    assert reader.finish() == []


def test_after_the_end_the_reader_is_as_new() -> None:
    reader = LineReader()
    reader.feed(b"abc")
    reader.finish()
    assert reader.feed(b"\nd\n") == [b"d"]


@pytest.mark.parametrize("data", [b"abcd\n", b"abcd\r\n", b"x\nabcd\r\n", b"abc\r\r\n"])
def test_a_line_at_the_limit_is_legal_with_either_ending(data: bytes) -> None:
    whole, bytewise = LineReader(max_bytes=4), LineReader(max_bytes=4)
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n") if line]
    assert whole.feed(data) == expected
    assert [m for byte in data for m in bytewise.feed(bytes([byte]))] == expected


@every_row(
    "data",
    [b"abcde\n", b"abcde\r\n", b"abcd\r\r\n", b"abcd\rx\n", b"     \n", b"ok\nabcde\n", b"abcde\nok\n"],
)
def test_a_line_over_the_limit_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        LineReader(max_bytes=4).feed(data)


@pytest.mark.parametrize("data", [b"abcde", b"abcd\r\r", b"abcd\rx", b"ok\nabcde"])
def test_an_overlong_line_is_refused_before_it_ends(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        LineReader(max_bytes=4).feed(data)


def test_one_byte_of_lookahead_is_for_a_carriage_return_only() -> None:
    reader = LineReader(max_bytes=4)
    assert reader.feed(b"abcd\r") == []
    with pytest.raises(RemoteProtocolError):
        reader.feed(b"x")


def test_the_limit_is_that_of_a_message() -> None:
    reader = LineReader()
    assert reader.feed(b"x" * MAX_MESSAGE_BYTES) == []
    assert [len(message) for message in reader.feed(b"\n")] == [MAX_MESSAGE_BYTES]
    with pytest.raises(RemoteProtocolError):
        reader.feed(b"x" * (MAX_MESSAGE_BYTES + 1))
