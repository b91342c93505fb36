"""Frames of a relay: the bytes of the reference, what is refused, and records put in order."""

import pytest

from holdfast.errors import RemoteProtocolError
from holdfast.wire import relayframes
from holdfast.wire.relayframes import (
    MAX_AHEAD,
    MAX_AHEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_GAP_S,
    Body,
    ReceiveWindow,
    RelayFrame,
    check,
    decode,
    encode,
)
from tests.support.rows import every_row

NOW = 1000.0
STREAM = "00000000-0000-4000-8000-000000000001"


@every_row(
    ("made", "wanted"),
    [
        (relayframes.resume(STREAM), "08011224" + STREAM.encode().hex() + "3a00"),
        (relayframes.data("s", 1, b"\xaa"), "0801120173" + "2a07" + "08011801" + "2201aa"),
        (relayframes.data("s", 0, b"\xaa"), "0801120173" + "2a05" + "1801" + "2201aa"),
        (relayframes.handshake("s", b"\xbb"), "0801120173" + "5203" + "0a01bb"),
        (relayframes.reset("s"), "0801120173" + "421c0a1a" + b"noise_relay_protocol_error".hex()),
    ],
    ids=["resume", "data 1", "data 0", "handshake", "reset"],
)
def test_a_frame_has_the_bytes_of_the_reference(made: bytes, wanted: str) -> None:
    assert made.hex() == wanted
    check(decode(made))


@every_row(
    ("made", "size"),
    [
        (relayframes.handshake(STREAM, bytes(3424)), 3470),
        (relayframes.reset(STREAM), 70),
        (relayframes.data(STREAM, 1, bytes(61_456)), 61_508),
    ],
    ids=["handshake", "reset", "data"],
)
def test_a_frame_has_the_size_of_the_reference(made: bytes, size: int) -> None:
    assert len(made) == size


@every_row(
    "frame",
    [
        RelayFrame("s", Body.ACK),
        RelayFrame("s", Body.HEARTBEAT, ack=3, ack_bits=2**32 - 1),
        RelayFrame("s", Body.RESUME, next_seq=7),
        RelayFrame("s", Body.DATA, b"x", 2**32 - 1, segment_count=1, traceparent="00-a", tracestate=""),
        RelayFrame("ü", None, version=0),
    ],
    ids=str,
)
def test_what_is_written_is_read_again(frame: RelayFrame) -> None:
    assert decode(encode(frame)) == frame


@every_row(
    "raw",
    [
        b"\x08",  # a key without its value
        b"\x08\x80",  # half a number
        b"\x08" + b"\x80" * 10,  # a number without an end
        b"\x12\x05abc",  # shorter than it says
        b"\x12\xff\xff\xff\xff\x7fabc",
        b"\x00\x00",  # field 0
        b"\x0b\x0c",  # a group
        b"\x0f",  # a kind that does not exist
        b"\x0a\x01x",  # a version that is text
        b"\x10\x01",  # a stream that is a number
        b"\x11" + bytes(8),  # a stream of fixed width
        b"\x12\x01\xff",  # not UTF-8
        b"\x5a\x01\xff",
        b"\x42\x03\x0a\x01\xff",
        b"\x28\x01",  # a body that is a number
        b"\x2a\x02\x0a\x00",  # a sequence number that is bytes
        b"\x2a\x02\x08",  # a body that is cut short
        b"\x78\x01" * 65,  # more fields than anybody needs
        bytes(MAX_FRAME_BYTES + 1),
    ],
    ids=range(19),
)
def test_what_is_no_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(raw)


def test_unknown_fields_are_skipped() -> None:
    more = b"\x78\x05" + b"\x7a\x02hi" + b"\x7d" + bytes(4) + b"\x79" + bytes(8)
    assert decode(more + relayframes.resume("s") + more) == RelayFrame("s", Body.RESUME)


def test_what_comes_after_a_payload_is_no_part_of_it() -> None:
    frame = RelayFrame("s", Body.DATA, b"x", 5, segment_count=1)
    inner = b"\x08\x05\x18\x01\x22\x01x"
    for rest in (b"\x28\x01", b"\x2a\x01y"):
        longer = inner + rest
        assert decode(b"\x08\x01\x12\x01s\x2a" + bytes((len(longer),)) + longer) == frame
        assert decode(b"\x08\x01\x12\x01s\x2a" + bytes((len(inner),)) + inner + b"\x78\x01") == frame


def test_the_last_of_several_bodies_counts() -> None:
    both = relayframes.handshake("s", b"x") + relayframes.reset("s", "y")
    assert decode(both) == RelayFrame("s", Body.RESET, reason="y")


def test_a_body_in_parts_is_merged() -> None:
    parts = b"\x08\x01\x12\x01s" + b"\x2a\x02\x08\x05" + b"\x2a\x05\x18\x01\x22\x01x"
    assert decode(parts) == RelayFrame("s", Body.DATA, b"x", 5, segment_count=1)


@every_row(
    "frame",
    [
        RelayFrame("s", Body.RESUME, version=0),
        RelayFrame("s", Body.RESUME, version=2),
        RelayFrame("", Body.RESUME),
        RelayFrame(" \t", Body.RESUME),
        RelayFrame("x" * 257, Body.RESUME),
        RelayFrame("s", None),
        RelayFrame("s", Body.DATA, b"x", segment_index=1, segment_count=1),
        RelayFrame("s", Body.DATA, b"x", segment_count=0),
        RelayFrame("s", Body.DATA, b"x", segment_count=2),
        RelayFrame("s", Body.DATA, segment_count=1),
        RelayFrame("s", Body.HANDSHAKE),
        RelayFrame("s", Body.RESET),
    ],
    ids=str,
)
def test_what_may_not_be_said_is_refused(frame: RelayFrame) -> None:
    with pytest.raises(RemoteProtocolError):
        check(decode(encode(frame)))


@every_row("body", [Body.ACK, Body.RESUME, Body.HEARTBEAT])
def test_a_body_without_content_may_always_be_said(body: Body) -> None:
    assert check(RelayFrame("s", body)) is body


def test_records_are_released_in_their_order() -> None:
    window = ReceiveWindow()
    assert window.push(2, b"c", NOW) == []
    assert window.push(1, b"b", NOW) == []
    assert window.push(0, b"a", NOW) == [b"a", b"b", b"c"]
    assert window.push(3, b"d", NOW) == [b"d"]


def test_the_first_copy_of_a_record_counts() -> None:
    window = ReceiveWindow()
    assert window.push(1, b"first", NOW) == []
    assert window.push(1, b"second", NOW) == []
    assert window.push(0, b"a", NOW) == [b"a", b"first"]
    assert window.push(0, b"again", NOW) == []
    assert window.push(1, b"again", NOW) == []


def test_a_record_may_be_ahead_only_so_far() -> None:
    window = ReceiveWindow()
    assert window.push(MAX_AHEAD, b"x", NOW) == []
    with pytest.raises(RemoteProtocolError):
        window.push(MAX_AHEAD + 1, b"x", NOW)


def test_only_so_much_is_kept_of_what_is_ahead() -> None:
    window = ReceiveWindow()
    assert window.push(1, bytes(MAX_AHEAD_BYTES), NOW) == []
    with pytest.raises(RemoteProtocolError):
        window.push(2, b"x", NOW)
    assert [len(one) for one in window.push(0, b"a", NOW)] == [1, MAX_AHEAD_BYTES]
    assert window.push(3, bytes(MAX_AHEAD_BYTES), NOW) == []


def test_a_record_that_is_missing_is_waited_for_only_so_long() -> None:
    window, ends = ReceiveWindow(), []
    for after_s, seq in enumerate([0, 2, 4, 1, 3]):
        window.push(seq, b"x", NOW + after_s)
        ends.append(window.gap_ends)
    first, another = NOW + 1 + MAX_GAP_S, NOW + 3 + MAX_GAP_S
    assert ends == [None, first, first, another, None]
