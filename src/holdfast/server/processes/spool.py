"""Output that a child wrote while it could not be sent, in order, on disk.

A child that waits for a slow reader may give up its output: some programs end if they cannot write. So output
can be read as it comes, and what does not fit into the connection is kept here.
"""

import os
import tempfile
from collections import deque
from typing import IO, Final

MAX_SPOOL_BYTES: Final = 1 << 30  # of one process; beyond it the child must wait


class OutputSpool:
    """A FIFO of output chunks.

    It never fails: data that cannot be written to disk is kept in memory, and the spool is full.
    """

    def __init__(self) -> None:
        self._chunks: deque[tuple[str, int, bytes | None]] = deque()  # stream, size, data not on disk
        self._file: IO[bytes] | None = None
        self._read = self._written = 0  # positions in the file
        self._refused = False

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @property
    def full(self) -> bool:
        return self._refused or self._written >= MAX_SPOOL_BYTES

    def add(self, stream: str, data: bytes) -> None:
        kept: bytes | None = None
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
            _write_whole(self._file.fileno(), data, self._written)
            self._written += len(data)
        except OSError:
            kept, self._refused = data, True
        self._chunks.append((stream, len(data), kept))

    def take(self) -> tuple[str, bytes]:
        """Return the oldest chunk."""
        stream, size, kept = self._chunks.popleft()
        if kept is None and self._file is not None:
            kept = os.pread(self._file.fileno(), size, self._read)
            self._read += size
        if not self._chunks:
            self._start_over()
        return stream, kept or b""

    def close(self) -> None:
        self._chunks.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _start_over(self) -> None:
        self._read = self._written = 0
        self._refused = False
        if self._file is not None:
            os.ftruncate(self._file.fileno(), 0)


def _write_whole(fd: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, place)
        view, place = view[written:], place + written
