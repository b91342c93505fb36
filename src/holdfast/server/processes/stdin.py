"""One process's standard input: ordered, bounded, each write taken once.

`accepted` means queued. A write id that was accepted is acknowledged again without writing, so a
client that lost the answer may safely repeat the request.
"""

import asyncio
import errno
import os
from collections import OrderedDict, deque
from typing import Final

from holdfast.errors import OperationFailed

MAX_PENDING: Final = 128  # writes; more and the writer waits, which is the client's backpressure
MAX_REMEMBERED: Final = 4096  # write ids; a client has far fewer unanswered


class Stdin:
    """The write end of a pipe or terminal. Owns `fd` until `close`."""

    def __init__(self, fd: int, *, eof: bytes = b"") -> None:
        """`eof` is what means end of file on a terminal; a pipe is closed instead."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._eof = eof
        self._pending: deque[bytes] = deque()
        self._accepted: OrderedDict[str, None] = OrderedDict()
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._terminated = False
        self._ending = False
        self._watching = False

    @property
    def ended(self) -> bool:
        """True once end of file was asked for and no write can follow."""
        return self._ending

    def seen(self, write_id: str) -> bool:
        """Was this write accepted before?"""
        return write_id in self._accepted

    async def write(self, write_id: str, data: bytes) -> None:
        """Queue `data` unless this id was accepted before; waits while the queue is full.

        Raises:
            OperationFailed: the process was terminated.
        """
        async with self._turn:
            if self.seen(write_id):
                return
            while len(self._pending) >= MAX_PENDING and not self._terminated:
                self._room.clear()
                await self._room.wait()
            if self._terminated:
                raise OperationFailed("failed to write to process stdin")
            self._accepted[write_id] = None
            if len(self._accepted) > MAX_REMEMBERED:
                self._accepted.popitem(last=False)
            if data:
                self._pending.append(data)
                self._flush()

    def end(self) -> None:
        """End of file for the process once everything queued is written."""
        if self._eof:
            if len(self._pending) < MAX_PENDING:  # full of unread input: one end of file more changes nothing
                self._pending.append(self._eof)
        else:
            self._ending = True
        self._flush()

    def terminate(self) -> None:
        """The process is being killed: refuse new writes, drop what is queued."""
        self._terminated = True
        self._pending.clear()
        self._room.set()

    def close(self) -> None:
        """Give up the descriptor. Later writes are accepted and discarded."""
        if self._fd >= 0:
            self._unwatch()
            os.close(self._fd)
            self._fd = -1
        self._pending.clear()
        self._room.set()

    def _flush(self) -> None:
        while self._pending and self._fd >= 0:
            data = self._pending.popleft()
            try:
                written = os.write(self._fd, data)
            except BlockingIOError:
                written = 0
            except OSError as exc:
                if exc.errno not in (errno.EPIPE, errno.EIO, errno.EBADF):
                    raise
                self.close()  # nobody reads any more
                return
            if written < len(data):
                self._pending.appendleft(data[written:])
                self._watch()
                return
            self._room.set()
        if self._fd < 0:
            self._pending.clear()
            self._room.set()
            return
        self._unwatch()
        if self._ending:
            self.close()

    def _watch(self) -> None:
        if not self._watching:
            asyncio.get_running_loop().add_writer(self._fd, self._flush)
            self._watching = True

    def _unwatch(self) -> None:
        if self._watching:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._watching = False
