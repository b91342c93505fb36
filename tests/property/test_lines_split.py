"""However the bytes are cut into reads, the lines are the same."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.wire.lines import LineReader

LIMIT = 6
STREAMS = st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"\r", b"\r\n", b" ", b"\xff"]), max_size=30).map(
    b"".join
)
CUTS = st.lists(st.integers(0, 60), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def expected(data: bytes, limit: int) -> tuple[list[bytes], bool]:
    """The messages of the whole stream, up to the first line that is too long; and whether there is one."""
    messages: list[bytes] = []
    *lines, rest = data.split(b"\n")
    for line in lines:
        line = line.removesuffix(b"\r")
        if len(line) > limit:
            return messages, True
        if line.strip():
            messages.append(line)
    if len(rest.removesuffix(b"\r")) > limit:
        return messages, True
    return messages + ([rest] if rest.strip() else []), False


def actual(data: bytes, cuts: list[int], limit: int) -> tuple[list[bytes], bool]:
    reader = LineReader(max_bytes=limit)
    messages: list[bytes] = []
    try:
        for piece in pieces(data, cuts):
            messages += reader.feed(piece)
    except RemoteProtocolError:
        return messages, True
    return messages + reader.finish(), False


@given(STREAMS, CUTS)
@settings(deadline=None)
@example(b"a\r\nb", [2])
def test_any_cut_of_the_stream_gives_the_same_messages(data: bytes, cuts: list[int]) -> None:
    assert actual(data, cuts, 1000) == expected(data, 1000) == actual(data, list(range(len(data))), 1000)


@given(STREAMS, CUTS)
@settings(deadline=None)
@example(b"abcdef\r\n", [7])
@example(b"abcdef\r\r\n", [7])
@example(b"abcdef\r", [])
def test_a_line_is_too_long_however_it_arrives(data: bytes, cuts: list[int]) -> None:
    messages, too_long = actual(data, cuts, LIMIT)
    whole, broken = expected(data, LIMIT)
    assert too_long is broken
    # What came in the same read as the end of the connection may go down with it.
    assert messages == (whole[: len(messages)] if broken else whole)


@given(STREAMS)
@settings(deadline=None)
def test_byte_by_byte_nothing_before_the_long_line_is_lost(data: bytes) -> None:
    assert actual(data, list(range(len(data))), LIMIT) == expected(data, LIMIT)
