"""WebSocket frames of a server: bytes in, whole messages out, without copying. Pure module.

The caller reads into `space()` and reports how much with `feed`. A payload is a view into the buffer, valid
until the next call; only a fragmented message is assembled in a copy. This is for output streams: at a
gigabyte per second every copy is measurable.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.errors import RemoteProtocolError
from holdfast.wire.rpc import MAX_MESSAGE_BYTES
from holdfast.wire.sizes import MAX_PARTS

BUFFER_BYTES: Final = 512 * 1024  # several output messages, and still in the processor's cache
MIN_SPACE_BYTES: Final = 128 * 1024  # room for one read; with less, the unread bytes are moved to the front

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_FIN, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_MAX_CONTROL_BYTES: Final = 125


class FrameMessage(NamedTuple):
    """`opcode` is TEXT or BINARY for a whole message, CLOSE, PING or PONG for a control frame."""

    opcode: int
    payload: memoryview


class FrameReader:
    """The receiving half of a client's connection after the upgrade."""

    def __init__(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0
        self._needed = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def space(self) -> memoryview:
        """Return where to put the next bytes; never empty."""
        kept = self._end - self._start
        wanted = max(BUFFER_BYTES, self._needed + MIN_SPACE_BYTES)
        if len(self._view) < wanted or (not kept and len(self._view) > BUFFER_BYTES):
            view = memoryview(bytearray(wanted))
            view[:kept] = self._view[self._start : self._end]
            self._view, self._start, self._end = view, 0, kept
        elif len(self._view) - self._end < MIN_SPACE_BYTES or not kept:
            self._view[:kept] = self._view[self._start : self._end]
            self._start, self._end = 0, kept
        return self._view[self._end :]

    def feed(self, count: int) -> Iterator[FrameMessage]:
        """Yield the messages that `count` more bytes complete; each is valid until the next is requested.

        Raises:
            RemoteProtocolError: these are not frames that a server may send, or a message is too large.
        """
        self._end += count
        while (message := self._frame()) is not None:
            opcode, final, payload = message
            if opcode >= CLOSE or (final and not self._parts):
                yield FrameMessage(opcode, payload)
            else:
                self._parts.append(bytes(payload))
                self._parts_bytes += len(payload)
                if final:
                    whole = b"".join(self._parts)
                    self._parts, self._parts_bytes = [], 0
                    yield FrameMessage(TEXT, memoryview(whole))

    def _frame(self) -> tuple[int, bool, memoryview] | None:
        """The next frame: its opcode, whether it is the last of its message, and its payload."""
        view, start = self._view, self._start
        have = self._end - start
        self._needed = 0
        if have < 2:
            return None
        first, second = view[start], view[start + 1]
        size, header = second & _LENGTH, 2
        if size == 126:
            header = 4
            if have < header:
                return None
            (size,) = struct.unpack_from("!H", view, start + 2)
        elif size == 127:
            header = 10
            if have < header:
                return None
            (size,) = struct.unpack_from("!Q", view, start + 2)
        opcode, final = first & _OPCODE, bool(first & _FIN)
        self._check(first, second, opcode, size, final=final)
        if have < header + size:
            self._needed = header + size
            return None
        begin = start + header
        self._start = begin + size
        return opcode, final, view[begin : begin + size]

    def _check(self, first: int, second: int, opcode: int, size: int, *, final: bool) -> None:
        if first & _RESERVED or second & _MASKED:
            raise RemoteProtocolError("a frame has bits set that were not agreed on")
        if opcode in (CLOSE, PING, PONG):
            if size > _MAX_CONTROL_BYTES or not final:
                raise RemoteProtocolError("a control frame is too long or in pieces")
        elif opcode not in (CONTINUATION, TEXT, BINARY) or (opcode == CONTINUATION) != bool(self._parts):
            raise RemoteProtocolError(f"a frame of kind {opcode} is out of place")
        elif self._parts_bytes + size > self._max_bytes or len(self._parts) >= MAX_PARTS:
            raise RemoteProtocolError(f"message exceeds {self._max_bytes} bytes or {MAX_PARTS} pieces")
