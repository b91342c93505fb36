"""Frames as Protocol Buffers' own library reads and writes them, and records in whatever order they come."""

import functools
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.wire import relayframes
from holdfast.wire.relayframes import MAX_AHEAD, Body, ReceiveWindow, RelayFrame, decode, encode

_KINDS = descriptor_pb2.FieldDescriptorProto
_UINT32, _STRING, _BYTES = _KINDS.TYPE_UINT32, _KINDS.TYPE_STRING, _KINDS.TYPE_BYTES
_BODIES = {
    "RelayData": [
        ("seq", _UINT32),
        ("segment_index", _UINT32),
        ("segment_count", _UINT32),
        ("payload", _BYTES),
    ],
    "RelayAck": [],
    "RelayResume": [("next_seq", _UINT32)],
    "RelayReset": [("reason", _STRING)],
    "RelayHeartbeat": [],
    "RelayHandshake": [("payload", _BYTES)],
}
_MEMBERS = ["data", "ack_frame", "resume", "reset", "heartbeat", "handshake"]


@functools.cache
def schema() -> Any:
    """The message class, made from the schema."""
    file = descriptor_pb2.FileDescriptorProto(name="relay.proto", package="relay", syntax="proto3")
    for name, fields in _BODIES.items():
        body = file.message_type.add(name=name)
        for number, (member, kind) in enumerate(fields, 1):
            body.field.add(name=member, number=number, type=kind, label=_KINDS.LABEL_OPTIONAL)
    frame = file.message_type.add(name="Frame")
    plain = [
        ("version", 1, _UINT32),
        ("stream_id", 2, _STRING),
        ("ack", 3, _UINT32),
        ("ack_bits", 4, _UINT32),
    ]
    for member, number, kind in plain:
        frame.field.add(name=member, number=number, type=kind, label=_KINDS.LABEL_OPTIONAL)
    frame.oneof_decl.add(name="body")
    for number, (member, name) in enumerate(zip(_MEMBERS, _BODIES, strict=True), 5):
        frame.field.add(
            name=member, number=number, type=_KINDS.TYPE_MESSAGE, type_name=f".relay.{name}", oneof_index=0
        )
    for index, member in enumerate(("traceparent", "tracestate"), 1):
        frame.oneof_decl.add(name=f"_{member}")
        frame.field.add(name=member, number=10 + index, type=_STRING, oneof_index=index, proto3_optional=True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("relay.Frame"))


def by_library(frame: RelayFrame) -> Any:
    made = schema()(version=frame.version, stream_id=frame.stream_id, ack=frame.ack, ack_bits=frame.ack_bits)
    for member in ("traceparent", "tracestate"):
        if getattr(frame, member) is not None:
            setattr(made, member, getattr(frame, member))
    if frame.body is not None:
        member = _MEMBERS[frame.body - 5]
        inner = getattr(made, member)
        inner.SetInParent()
        for name, _ in list(_BODIES.values())[frame.body - 5]:
            setattr(inner, name, getattr(frame, name))
    return made


uint32 = st.integers(0, 2**32 - 1)
words = st.text(max_size=20)


@st.composite
def frames(draw: st.DrawFn) -> RelayFrame:
    body = draw(st.none() | st.sampled_from(Body))
    said: dict[str, Any] = {}
    strategies: dict[int, st.SearchStrategy[Any]] = {
        _UINT32: uint32,
        _STRING: words,
        _BYTES: st.binary(max_size=40),
    }
    if body is not None:
        said = {name: draw(strategies[kind]) for name, kind in list(_BODIES.values())[body - 5]}
    return RelayFrame(
        draw(words),
        body,
        version=draw(uint32),
        ack=draw(uint32),
        ack_bits=draw(uint32),
        traceparent=draw(st.none() | words),
        tracestate=draw(st.none() | words),
        **said,
    )


@given(frames())
def test_a_frame_is_written_as_the_library_writes_it(frame: RelayFrame) -> None:
    assert encode(frame) == by_library(frame).SerializeToString(deterministic=True)


@given(frames())
def test_what_the_library_writes_is_read(frame: RelayFrame) -> None:
    assert decode(by_library(frame).SerializeToString()) == frame


@given(
    st.lists(frames(), max_size=3), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
)
def test_whatever_we_can_read_the_library_reads_alike(
    parts: list[RelayFrame], changes: list[tuple[int, int]]
) -> None:
    raw = bytearray(b"".join(map(encode, parts)))
    for at, value in changes:
        if at < len(raw):
            raw[at] = value
    try:
        ours = decode(bytes(raw))
    except RemoteProtocolError:
        return
    theirs = schema().FromString(bytes(raw))
    theirs.DiscardUnknownFields()
    assert theirs == by_library(ours)


@given(st.binary(max_size=300))
def test_no_bytes_surprise_the_reader(raw: bytes) -> None:
    try:
        frame = decode(raw)
    except RemoteProtocolError:
        return
    try:
        theirs = schema().FromString(raw)
    except DecodeError:
        raise AssertionError("we read what the library refuses") from None
    theirs.DiscardUnknownFields()
    assert theirs == by_library(frame)


@given(st.data(), st.integers(1, 100))
def test_records_come_out_once_and_in_order(data: st.DataObject, count: int) -> None:
    """Whatever is repeated or overtaken on the way, as long as nothing is lost or too late."""
    window, arrived, due = ReceiveWindow(), [], list(range(count))
    while due:
        at = data.draw(st.integers(0, min(len(due) - 1, MAX_AHEAD)))
        if due[at] - due[0] > MAX_AHEAD:
            at = 0
        seq = due.pop(at)
        for _ in range(data.draw(st.integers(1, 2))):
            arrived += window.push(seq, seq.to_bytes(4, "big"), 0.0)
    assert window.gap_ends is None
    assert arrived == [seq.to_bytes(4, "big") for seq in range(count)]


def test_the_limit_of_a_frame_holds_the_largest_record() -> None:
    assert len(relayframes.data("x" * 256, 2**32 - 1, bytes(61_456), "t" * 512, "s" * 512)) < 2**18
