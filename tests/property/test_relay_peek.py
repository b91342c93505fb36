"""A rendezvous reads of a frame what its receivers read, and never raises anything but its own error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.wire.relayframes import MAX_FRAME_BYTES, Body, RelayFrame, decode, encode, peek, resume

TEXTS = st.text(max_size=40)
UINT32 = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    RelayFrame,
    stream_id=TEXTS,
    body=st.none() | st.sampled_from(Body),
    payload=st.binary(max_size=200),
    seq=UINT32,
    segment_count=UINT32,
    reason=TEXTS,
    traceparent=st.none() | TEXTS,
    ack=UINT32,
    version=st.sampled_from([0, 1, 1, 1, 2]),
)


@given(FRAMES)
def test_a_whole_frame_is_read_as_its_receiver_reads_it(frame: RelayFrame) -> None:
    raw = encode(frame)
    if frame.version == 1 and frame.stream_id.strip():
        assert peek(raw) == (frame.stream_id, frame.body)
    else:
        with pytest.raises(RemoteProtocolError):
            peek(raw)


@given(st.binary(max_size=300) | st.builds(lambda f, n: encode(f)[:n], FRAMES, st.integers(0, 300)))
def test_bytes_that_both_take_mean_the_same_to_both(raw: bytes) -> None:
    try:
        seen = peek(raw)
    except RemoteProtocolError:
        return
    try:
        frame = decode(raw)
    except RemoteProtocolError:
        return  # what is inside a body is for its receiver to judge
    assert seen == (frame.stream_id, frame.body)


def test_neither_a_huge_frame_nor_a_huge_name_is_taken() -> None:
    assert peek(resume("s" * 256)) == ("s" * 256, Body.RESUME)
    for raw in (resume("s" * 257), resume("s") + b"\x62\x80\x80\x10" + b"x" * MAX_FRAME_BYTES):
        with pytest.raises(RemoteProtocolError):
            peek(raw)
    with pytest.raises(RemoteProtocolError):
        peek(resume("s") * 64)
