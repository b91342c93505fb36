"""Standard streams that an event loop cannot wait for: a file, `/dev/null`, or a closed one.

A file is always ready, so the kernel refuses to watch it, and the loops raise, hang or abort. Input is read
through a pipe; output is written at once.
"""

import asyncio
import errno
import logging
import os
import select
import sys
import threading
from typing import Final

log = logging.getLogger(__name__)

BLOCK_BYTES: Final = 64 * 1024


def fill_closed() -> None:
    """Open `/dev/null` for standard streams that were closed when this process was started.

    Otherwise the next descriptor that is opened would take such a number, and output to the stream would go
    there.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # Python's value for a closed stream
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def can_wait(fd: int) -> bool:
    """Whether the kernel can notify an event loop when this is ready."""
    with select.epoll() as poll:
        try:
            poll.register(fd, select.EPOLLIN)
        except OSError as exc:
            if exc.errno != errno.EPERM:
                raise
            return False
    return True


def piped(fd: int) -> int:
    """Return the reading end of a pipe that gets the contents of `fd`, and its end. The reader closes it."""
    read, write = os.pipe2(os.O_CLOEXEC)
    threading.Thread(target=_pump, args=(fd, write), name="standard input", daemon=True).start()
    return read


def _pump(source: int, target: int) -> None:
    try:
        while block := os.read(source, BLOCK_BYTES):
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(target, rest) :]
    except BrokenPipeError:
        pass  # the reader has closed the pipe
    except OSError as exc:
        log.warning("standard input cannot be read", extra={"reason": str(exc)})
    finally:
        os.close(target)


class FileOutput(asyncio.WriteTransport):
    """A transport that writes into a file at once, without a buffer."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no buffer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as exc:
            log.warning("standard output cannot be written", extra={"reason": str(exc)})
            self._closed = True

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
