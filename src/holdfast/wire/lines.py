"""Newline framing for stdio and unix sockets: feed bytes, get messages. Pure module."""

from typing import Final

from holdfast.errors import RemoteProtocolError
from holdfast.wire.rpc import MAX_MESSAGE_BYTES

_CR: Final = 0x0D


class LineReader:
    """Splits a byte stream into messages; LF and CRLF end a line, blank lines are ignored."""

    def __init__(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages completed by `data`.

        Raises:
            RemoteProtocolError: a line is longer than allowed, finished or not.
        """
        self._buffer += data
        messages = []
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            messages.append(self._line(start, end))
            start = end + 1
            self._searched = start
        del self._buffer[:start]
        self._searched = len(self._buffer)
        # One byte of lookahead: a CR at the limit may be half of the terminator.
        over = len(self._buffer) - self._max_bytes
        if over > 1 or (over == 1 and self._buffer[-1] != _CR):
            raise RemoteProtocolError(f"line exceeds {self._max_bytes} bytes")
        return [message for message in messages if message.strip()]

    def finish(self) -> list[bytes]:
        """Return what came after the last newline, at end of file."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return [rest] if rest.strip() else []

    def _line(self, start: int, end: int) -> bytes:
        if end > start and self._buffer[end - 1] == _CR:
            end -= 1
        if end - start > self._max_bytes:
            raise RemoteProtocolError(f"line exceeds {self._max_bytes} bytes")
        return bytes(self._buffer[start:end])
