"""Standard streams that no event loop can wait for: a file, `/dev/null`, or none at all.

A file is always ready, so the kernel refuses to watch it, and the loops raise, hang or abort. Input is
brought through a pipe; output is written at once.
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
    """Put `/dev/null` in the place of standard streams that whoever started us had closed.

    Otherwise the next descriptor that is opened is one of them, and what is written to it goes there.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # what Python makes of a closed one
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def can_wait(fd: int) -> bool:
    """Whether the kernel can tell a loop when this is ready."""
    with select.epoll() as poll:
        try:
            poll.register(fd, select.EPOLLIN)
        except OSError as exc:
            if exc.errno != errno.EPERM:
                raise
            return False
    return True


def piped(fd: int) -> int:
    """The reading end of a pipe that gets what `fd` holds, and its end. Whoever stops reading closes it."""
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
        pass  # nobody reads any more
    except OSError as exc:
        log.warning("standard input cannot be read", extra={"reason": str(exc)})
    finally:
        os.close(target)


class FileOutput(asyncio.WriteTransport):
    """A transport that writes into a file as it is told to: nothing is ever kept back."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

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
