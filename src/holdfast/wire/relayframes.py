"""Relay frames between a rendezvous and the peers that dial it, one frame per message. Pure module.

The schema is Protocol Buffers' (proto3, package `codex.exec_server.relay.v1`), small enough to be read and
written here. Reading is in two steps, because the stream of a frame matters before its validity: `decode`
parses the bytes, `check` validates the frame. Only the payload of the single frame grows with what a peer
sends, and that is bounded.

Records of a stream are numbered. `ReceiveWindow` puts them in order before they are decrypted, because the
channel's nonces are not on the wire. Duplicates are dropped, and a record that is too far ahead ends the
stream. So does a record that stays missing, since records are never sent twice: the owner of a window must
check `gap_ends`.
"""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from holdfast.errors import RemoteProtocolError

VERSION: Final = 1
MAX_FRAME_BYTES: Final = 256 * 1024  # of one WebSocket message, as in the reference
MAX_FIELDS: Final = 64  # in one message; the schema has 12, and a later version may have more that we skip
MAX_STREAM_ID_BYTES: Final = 256  # the reference sends 36; an id is kept as long as its stream
MAX_AHEAD: Final = 64  # how many records may be missing before one that has arrived
MAX_AHEAD_BYTES: Final = 1024 * 1024  # of early records that are kept
MAX_GAP_S: Final = 5.0  # for a missing record: connections keep the order, so it comes at once or never
MAX_SEQ: Final = 2**32 - 1
RESET_REASON: Final = "noise_relay_protocol_error"  # the only one that the reference sends

_UINT32: Final = 2**32 - 1
_UINT64: Final = 2**64 - 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES: Final = 10
_USUAL_HEAD: Final = b"\x08\x01\x12"  # version 1, then the stream
_USUAL_BODY: Final = 0x2A  # data
_USUAL_SEQ: Final = 0x08
_USUAL_REST: Final = b"\x18\x01\x22"  # one segment, then the payload
_MAX_FIELD_NUMBER: Final = 2**29 - 1


class Body(enum.IntEnum):
    """The content of a frame; the value is the number of its field."""

    DATA = 5
    ACK = 6
    RESUME = 7
    RESET = 8
    HEARTBEAT = 9
    HANDSHAKE = 10


@dataclass(frozen=True, slots=True)
class RelayFrame:
    """One frame. `body` determines which members are meaningful; None is a frame without a body."""

    stream_id: str
    body: Body | None
    payload: bytes = b""  # of data and handshake
    seq: int = 0  # of data
    segment_index: int = 0
    segment_count: int = 0
    next_seq: int = 0  # of resume
    reason: str = ""  # of reset: unauthenticated text, never logged or shown
    traceparent: str | None = None
    tracestate: str | None = None
    ack: int = 0
    ack_bits: int = 0
    version: int = VERSION


# --- what is sent


def data(
    stream_id: str,
    seq: int,
    payload: bytes,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> bytes:
    """Encode one record of a stream."""
    frame = RelayFrame(
        stream_id,
        Body.DATA,
        payload,
        seq,
        segment_count=1,
        traceparent=traceparent,
        tracestate=tracestate,
    )
    return encode(frame)


def handshake(stream_id: str, payload: bytes) -> bytes:
    """Encode a message of the channel's handshake."""
    return encode(RelayFrame(stream_id, Body.HANDSHAKE, payload))


def resume(stream_id: str) -> bytes:
    """Encode the first frame of a client's socket, which claims the stream."""
    return encode(RelayFrame(stream_id, Body.RESUME))


def reset(stream_id: str, reason: str = RESET_REASON) -> bytes:
    """Encode that the sender has dropped this stream."""
    return encode(RelayFrame(stream_id, Body.RESET, reason=reason))


def encode(frame: RelayFrame) -> bytes:
    """Encode a frame as the reference does: fields in ascending order, zeros left out."""
    parts = [
        _number(1, frame.version),
        _text(2, frame.stream_id),
        _number(3, frame.ack),
        _number(4, frame.ack_bits),
    ]
    if frame.body is not None:
        inner = _encode_body(frame.body, frame)
        parts += [_key(frame.body, _BYTES), _varint(len(inner)), inner]
    for field, text in ((11, frame.traceparent), (12, frame.tracestate)):
        if text is not None:
            encoded = text.encode()
            parts += [_key(field, _BYTES), _varint(len(encoded)), encoded]
    return b"".join(parts)


def _encode_body(body: Body, frame: RelayFrame) -> bytes:
    match body:
        case Body.DATA:
            numbers = ((1, frame.seq), (2, frame.segment_index), (3, frame.segment_count))
            return b"".join([*(_number(*one) for one in numbers), _blob(4, frame.payload)])
        case Body.HANDSHAKE:
            return _blob(1, frame.payload)
        case Body.RESUME:
            return _number(1, frame.next_seq)
        case Body.RESET:
            return _text(1, frame.reason)
        case Body.ACK | Body.HEARTBEAT:
            return b""


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    if not 0 <= value <= _UINT32:
        raise AssertionError("numbers of a frame have 32 bits")
    return _key(field, _VARINT) + _varint(value) if value else b""


def _blob(field: int, value: bytes) -> bytes:
    return b"".join((_key(field, _BYTES), _varint(len(value)), value)) if value else b""


def _text(field: int, value: str) -> bytes:
    return _blob(field, value.encode())


# --- what is received


def decode(raw: bytes) -> RelayFrame:
    """Parse the bytes.

    Raises:
        RemoteProtocolError: they are not a frame.
    """
    if len(raw) > MAX_FRAME_BYTES:
        raise RemoteProtocolError(f"a relay frame exceeds {MAX_FRAME_BYTES} bytes")
    usual = _decode_usual(raw)
    if usual is not None:
        return usual
    said: dict[str, Any] = {"version": 0}
    inner: dict[str, Any] = {}
    body: Body | None = None
    for field, value in _fields(raw):
        if field in _MEMBERS:
            name, parse = _MEMBERS[field]
            said[name] = parse(value)
        elif field in _BODIES:
            kind, members = _BODIES[field]
            if kind is not body:  # of several the last one counts; one given in parts is merged
                body, inner = kind, {}
            for number, part in _fields(_as_bytes(value)):
                if number in members:
                    name, parse = members[number]
                    inner[name] = parse(part)
    return replace(RelayFrame("", body), **said, **inner)


def peek(raw: bytes) -> tuple[str, Body | None]:
    """The stream and the body of a frame, for a rendezvous: nothing inside a body is parsed or copied.

    Raises:
        RemoteProtocolError: it is not a frame of this version, or names no stream.
    """
    version, stream_id, body = 0, b"", None
    at, count, end = 0, 0, len(raw)
    if end > MAX_FRAME_BYTES:
        raise RemoteProtocolError(f"a relay frame exceeds {MAX_FRAME_BYTES} bytes")
    while at < end:
        count += 1
        key, at = _read_varint(raw, at)
        field, kind = key >> 3, key & 7
        size = _WIDTHS.get(kind, 0)
        if kind == _VARINT:
            number, at = _read_varint(raw, at)
            version = number & _UINT32 if field == 1 else version
        elif kind == _BYTES:
            size, at = _read_varint(raw, at)
        elif not size:
            raise RemoteProtocolError("a relay frame has a field of an unknown kind")
        if not 0 < field <= _MAX_FIELD_NUMBER:
            raise RemoteProtocolError("a relay frame has a field of an impossible number")
        if size > end - at or count > MAX_FIELDS:
            raise RemoteProtocolError("a relay frame is cut short, or has too many fields")
        if field == 2 and kind == _BYTES:
            stream_id = raw[at : min(at + size, at + MAX_STREAM_ID_BYTES + 1)]
        elif field in _BODIES:
            body = _BODIES[field][0]
        at += size
    name = _as_text(stream_id)
    if version != VERSION or not name.strip() or len(stream_id) > MAX_STREAM_ID_BYTES:
        raise RemoteProtocolError("a relay frame is of another version, or names no stream")
    return name, body


def _decode_usual(raw: bytes) -> RelayFrame | None:
    """Parse a record in the usual encoding, at a fifth of the cost; None: it has another encoding."""
    try:
        at = 4 + raw[3]
        if raw[:3] != _USUAL_HEAD or raw[3] >= 0x80 or raw[at] != _USUAL_BODY:
            return None
        size, at = _read_varint(raw, at + 1)
        if at + size != len(raw):
            return None
        seq = 0
        if raw[at] == _USUAL_SEQ:
            seq, at = _read_varint(raw, at + 1)
        size, payload = _read_varint(raw, at + 3)
        if raw[at : at + 3] != _USUAL_REST or payload + size != len(raw):
            return None
        stream_id = raw[4 : 4 + raw[3]].decode()
    except (IndexError, RemoteProtocolError, UnicodeDecodeError):
        return None
    return RelayFrame(stream_id, Body.DATA, raw[payload:], seq & _UINT32, 0, 1)


def _fields(raw: bytes) -> Iterator[tuple[int, "_Value"]]:
    """Yield number and value of each field. Raises: RemoteProtocolError."""
    view, at, count = memoryview(raw), 0, 0
    while at < len(raw):
        count += 1
        if count > MAX_FIELDS:
            raise RemoteProtocolError("a relay frame has too many fields")
        key, at = _read_varint(raw, at)
        field, kind = key >> 3, key & 7
        if not 0 < field <= _MAX_FIELD_NUMBER:
            raise RemoteProtocolError("a relay frame has a field of an impossible number")
        if kind == _VARINT:
            value, at = _read_varint(raw, at)
            yield field, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(raw, at)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise RemoteProtocolError("a relay frame has a field of an unknown kind")
        if size > len(raw) - at:
            raise RemoteProtocolError("a relay frame is cut short")
        yield field, bytes(view[at : at + size]) if kind == _BYTES else None
        at += size


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(raw):
            raise RemoteProtocolError("a relay frame is cut short")
        byte = raw[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & _UINT64, at + index + 1
    raise RemoteProtocolError("a number in a relay frame is too long")


_Value: TypeAlias = int | bytes | None  # None: of a width that no field of the schema has
_Table: TypeAlias = dict[int, tuple[str, Callable[[_Value], int | bytes | str]]]


def _as_uint32(value: _Value) -> int:
    """Keep the low 32 bits, as Protocol Buffers do."""
    if not isinstance(value, int):
        raise RemoteProtocolError("a field of a relay frame has the wrong kind")
    return value & _UINT32


def _as_bytes(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise RemoteProtocolError("a field of a relay frame has the wrong kind")
    return value


def _as_text(value: _Value) -> str:
    try:
        return _as_bytes(value).decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a text in a relay frame is not UTF-8") from None


_MEMBERS: Final[_Table] = {
    1: ("version", _as_uint32),
    2: ("stream_id", _as_text),
    3: ("ack", _as_uint32),
    4: ("ack_bits", _as_uint32),
    11: ("traceparent", _as_text),
    12: ("tracestate", _as_text),
}
_BODIES: Final[dict[int, tuple[Body, _Table]]] = {
    Body.DATA: (
        Body.DATA,
        {
            1: ("seq", _as_uint32),
            2: ("segment_index", _as_uint32),
            3: ("segment_count", _as_uint32),
            4: ("payload", _as_bytes),
        },
    ),
    Body.ACK: (Body.ACK, {}),
    Body.RESUME: (Body.RESUME, {1: ("next_seq", _as_uint32)}),
    Body.RESET: (Body.RESET, {1: ("reason", _as_text)}),
    Body.HEARTBEAT: (Body.HEARTBEAT, {}),
    Body.HANDSHAKE: (Body.HANDSHAKE, {1: ("payload", _as_bytes)}),
}


def check(frame: RelayFrame) -> Body:
    """Validate a frame and return its body.

    Raises:
        RemoteProtocolError: it is invalid: another version, no stream, no body, or an empty one.
    """
    if frame.version != VERSION:
        raise RemoteProtocolError("a relay frame is of another version")
    if not frame.stream_id.strip() or len(frame.stream_id.encode()) > MAX_STREAM_ID_BYTES:
        raise RemoteProtocolError("a relay frame names no stream")
    match frame.body:
        case None:
            raise RemoteProtocolError("a relay frame carries nothing")
        case Body.DATA if (frame.segment_index, frame.segment_count) != (0, 1):
            raise RemoteProtocolError("a record comes in segments, which was not agreed on")
        case Body.DATA | Body.HANDSHAKE if not frame.payload:
            raise RemoteProtocolError("a relay frame has no payload")
        case Body.RESET if not frame.reason:
            raise RemoteProtocolError("a stream is reset for no reason")
    return frame.body


class ReceiveWindow:
    """Puts the records of one direction of one stream in order. After `gap_ends` the stream has lost one."""

    def __init__(self) -> None:
        self.gap_ends: float | None = None  # None: nothing is missing
        self._next = 0
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0

    def push(self, seq: int, record: bytes, now: float) -> list[bytes]:
        """Return the records that are in order now; none if this one is early, or a duplicate.

        Raises:
            RemoteProtocolError: it is too far ahead, or too many bytes wait for a missing one.
        """
        if seq < self._next or seq in self._early:
            return []  # the first copy counts
        if seq > self._next:
            if seq - self._next > MAX_AHEAD or self._early_bytes + len(record) > MAX_AHEAD_BYTES:
                raise RemoteProtocolError("records are missing")
            self._early[seq] = record
            self._early_bytes += len(record)
            self.gap_ends = self.gap_ends or now + MAX_GAP_S
            return []
        ready = [record]
        self._next += 1
        while (early := self._early.pop(self._next, None)) is not None:
            self._early_bytes -= len(early)
            ready.append(early)
            self._next += 1
        self.gap_ends = now + MAX_GAP_S if self._early else None
        return ready
