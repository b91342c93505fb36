"""Frames of a server, however the bytes arrive."""

import struct

import pytest

from holdfast.client.links import frames
from holdfast.client.links.frames import (
    BINARY,
    BUFFER_BYTES,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameReader,
)
from holdfast.errors import RemoteProtocolError
from tests.support.rows import every_row

FIN = 0x80


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, long: bool = False) -> bytes:
    first = (FIN if fin else 0) | opcode
    size = len(payload)
    if long or size >= 1 << 16:
        return struct.pack("!BBQ", first, 127, size) + payload
    if size >= 126:
        return struct.pack("!BBH", first, 126, size) + payload
    return bytes((first, size)) + payload


def feed(reader: FrameReader, data: bytes, step: int = 1 << 30) -> list[tuple[int, bytes]]:
    found = []
    while data:
        space = reader.space()
        count = min(step, len(space), len(data))
        assert count
        space[:count] = data[:count]
        data = data[count:]
        found += [(opcode, bytes(payload)) for opcode, payload in reader.feed(count)]
    return found


MESSAGES = [b"", b"a", b"b" * 125, b"c" * 126, b"d" * 65535, b"e" * 65536, b"f"]


@every_row("step", [1, 2, 3, 1000, 1 << 30])
def test_messages_of_every_length_come_out_however_they_are_cut(step: int) -> None:
    data = b"".join(map(frame, MESSAGES))
    assert feed(FrameReader(), data, step) == [(TEXT, message) for message in MESSAGES]


def test_many_messages_pass_through_one_buffer() -> None:
    reader = FrameReader()
    message = bytes(100_000)
    for _ in range(50):
        assert feed(reader, frame(message), 70_000) == [(TEXT, message)]


def test_a_message_larger_than_the_buffer_gets_room_and_gives_it_back() -> None:
    reader = FrameReader()
    large = b"x" * (3 * BUFFER_BYTES)
    assert feed(reader, frame(large) + frame(b"next")) == [(TEXT, large), (TEXT, b"next")]
    assert len(reader.space()) == BUFFER_BYTES


def test_fragments_become_one_message() -> None:
    data = frame(b"ab", BINARY, fin=False) + frame(b"", CONTINUATION, fin=False) + frame(b"cd", CONTINUATION)
    assert feed(FrameReader(), data) == [(TEXT, b"abcd")]


def test_control_frames_may_come_between_fragments() -> None:
    data = frame(b"ab", fin=False) + frame(b"?", PING) + frame(b"cd", CONTINUATION) + frame(b"", PONG)
    assert feed(FrameReader(), data) == [(PING, b"?"), (TEXT, b"abcd"), (PONG, b"")]


def test_a_short_message_may_be_announced_at_length() -> None:
    assert feed(FrameReader(), frame(b"ab", long=True)) == [(TEXT, b"ab")]


def test_a_close_frame_is_reported() -> None:
    assert feed(FrameReader(), frame(b"\x03\xe8", CLOSE)) == [(CLOSE, b"\x03\xe8")]


@every_row(
    "data",
    [
        b"\xc1\x00",  # compressed, which was not agreed on
        b"\x81\x80\0\0\0\0",  # masked, which only clients do
        b"\x83\x00",  # no such kind
        b"\x8b\x00",
        frame(b"?", PING, fin=False),
        frame(b"?" * 126, PING),
        frame(b"cd", CONTINUATION),  # of nothing
        frame(b"ab", fin=False) + frame(b"cd"),  # a new message inside another
    ],
)
def test_what_no_server_may_send_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        feed(FrameReader(), data)


def test_a_message_at_the_limit_passes_and_beyond_it_is_refused_when_announced() -> None:
    assert feed(FrameReader(max_bytes=1000), frame(b"x" * 1000)) == [(TEXT, b"x" * 1000)]
    with pytest.raises(RemoteProtocolError):
        feed(FrameReader(max_bytes=1000), frame(b"x" * 1001)[:4])


def test_fragments_count_together() -> None:
    with pytest.raises(RemoteProtocolError):
        feed(FrameReader(max_bytes=1000), frame(b"x" * 600, fin=False) + frame(b"x" * 401, CONTINUATION)[:4])


def test_endless_empty_fragments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PARTS", 3)
    with pytest.raises(RemoteProtocolError):
        feed(FrameReader(), frame(b"", fin=False) + 3 * frame(b"", CONTINUATION, fin=False))
