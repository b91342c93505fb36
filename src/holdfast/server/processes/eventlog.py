"""The bounded, sequenced record of one process: output, exit, close. Pure module.

One counter numbers output of both streams, the exit and the close, from 1 without gaps. Output is kept within
two bounds and evicted oldest first, whole chunks; exit and close are kept as numbers. A reader that requests
evicted output gets what is left and sees the gap.
"""

from collections import deque
from typing import Final, NamedTuple

MAX_BYTES: Final = 1024 * 1024  # per process: what a client can miss while it reconnects
MAX_CHUNKS: Final = 50_000  # keeps a reply below the limit of JSON values per message


class Chunk(NamedTuple):
    seq: int
    stream: str
    data: bytes


class EventPage(NamedTuple):
    """The result of one read."""

    chunks: list[Chunk]
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool
    denied: bool


class EventLog:
    """The record of events: append them, and read pages of them."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, max_chunks: int = MAX_CHUNKS) -> None:
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._next_seq = 1
        self.exit_code: int | None = None
        self.denied = False
        self.closed = False

    @property
    def held_bytes(self) -> int:
        """Number of bytes of output that are kept."""
        return self._bytes

    @property
    def exited(self) -> bool:
        return self.exit_code is not None

    def output(self, stream: str, data: bytes) -> int:
        """Record output; returns its number."""
        if self.closed:
            raise AssertionError("output after close")
        seq = self._take()
        self._chunks.append(Chunk(seq, stream, data))
        self._bytes += len(data)
        while self._bytes > self._max_bytes or len(self._chunks) > self._max_chunks:
            self._bytes -= len(self._chunks.popleft().data)
        return seq

    def exit(self, code: int, *, denied: bool = False) -> int:
        """Record the one exit; returns its number."""
        if self.exited:
            raise AssertionError("a process exits once")
        self.exit_code, self.denied = code, denied
        return self._take()

    def close(self) -> int:
        """Record the one close, after the exit; returns its number."""
        if self.closed or not self.exited:
            raise AssertionError("a process closes once, after it exited")
        self.closed = True
        return self._take()

    def read_retained(self) -> bytes:
        """All output that is still kept, in order, both streams together."""
        return b"".join(chunk.data for chunk in self._chunks)

    def ready(self, after_seq: int) -> bool:
        """Whether a reader that has consumed `after_seq` need not wait."""
        if self._chunks and self._chunks[-1].seq > after_seq:
            return True
        return self.closed or (self.exited and after_seq < self._next_seq - 1)

    def read(self, after_seq: int, max_bytes: int | None) -> EventPage:
        """Retained output after `after_seq`, at least one chunk, then up to `max_bytes`."""
        chunks: list[Chunk] = []
        total = 0
        for chunk in self._chunks:
            if chunk.seq <= after_seq:
                continue
            if chunks and max_bytes is not None and total + len(chunk.data) > max_bytes:
                break
            chunks.append(chunk)
            total += len(chunk.data)
            if max_bytes is not None and total >= max_bytes:
                break
        next_seq = self._next_seq if max_bytes is None or not chunks else chunks[-1].seq + 1
        return EventPage(chunks, next_seq, self.exited, self.exit_code, self.closed, self.denied)

    def _take(self) -> int:
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return seq
