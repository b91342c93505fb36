"""Our standard streams joined to those of a command: by pipes, or by a terminal of its own.

A command never gets our descriptors themselves: through `/proc/self/fd` it could open the file
behind one of them again, for writing and past every mount. So each stream is copied by a thread
of its own, which may block on a slow reader without holding up anything else.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import queue
import select
import termios
import threading
import tty
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, Protocol

from holdfast.errors import HoldfastError

STDIN, STDOUT, STDERR = 0, 1, 2
COPY_BYTES: Final = 64 * 1024  # one pipe's worth at a time


class Tail:
    """The end of everything that was written."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        with self._lock:
            self._data += data
            if len(self._data) > 2 * self._max_bytes:
                del self._data[: -self._max_bytes]

    def read(self) -> bytes:
        with self._lock:
            return bytes(self._data[-self._max_bytes :])


class Streams(Protocol):
    """The streams of one command, before and after its start."""

    theirs: tuple[int, int, int]
    tty: bool

    def join(self, tail: Tail, on_gone: Callable[[], None]) -> list["asyncio.Future[None]"]:
        """The command runs: copy from now on. The futures end with its outputs."""

    def resize(self) -> None:
        """Our terminal may have another size now."""

    def close(self) -> None:
        """Let go of their ends, and stop reading our standard input."""


def occupy_standard_descriptors() -> None:
    """Put the null device where a standard stream is closed, so that nothing else takes its number."""
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


@contextlib.contextmanager
def opened() -> Iterator[Streams]:
    """A terminal if we are on one, otherwise pipes. Our own terminal is as before afterwards."""
    if not on_terminal():
        streams = Pipes()
        try:
            yield streams
        finally:
            streams.close()
        return
    with raw() as settings:
        terminal = Terminal(settings)
        try:
            yield terminal
        finally:
            terminal.close()


def on_terminal() -> bool:
    """Is there somebody to type and to look?"""
    return os.isatty(STDIN) and os.isatty(STDOUT)


@contextlib.contextmanager
def raw() -> Iterator["list[int | list[bytes | int]]"]:
    """Our terminal passes every key on; its former settings, which it gets back."""
    saved = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield saved
    finally:
        with contextlib.suppress(termios.error):  # it may be gone
            termios.tcsetattr(STDIN, termios.TCSADRAIN, saved)


class _Joined:
    """What pipes and terminals have in common: a thread that feeds, until it is told to stop."""

    def __init__(self) -> None:
        self._stopped, self._stop = os.pipe()
        self._open: list[int] = []

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1

    def _feed(self, sink: int, *, close: bool) -> None:
        threading.Thread(target=self._copy_in, args=(sink, close), daemon=True).start()

    def _copy_in(self, sink: int, close: bool) -> None:
        waiting = select.poll()
        waiting.register(STDIN, select.POLLIN)
        waiting.register(self._stopped, select.POLLIN)
        with contextlib.suppress(OSError):  # the command reads no more, or there is no input
            while self._stopped not in (ready for ready, _ in waiting.poll()):
                data = os.read(STDIN, COPY_BYTES)
                if not data:
                    break
                write_all(sink, data)
        if close:
            os.close(sink)


class Pipes(_Joined):
    """Pipes, one for both outputs where ours are the same, so that their order is kept."""

    tty = False

    def __init__(self) -> None:
        super().__init__()
        read, self._input = os.pipe()
        self._outputs = [os.pipe()]
        if not _same(STDOUT, STDERR):
            self._outputs.append(os.pipe())
        self._open = [read, *(write for _, write in self._outputs)]
        self.theirs = (read, self._outputs[0][1], self._outputs[-1][1])

    def join(self, tail: Tail, on_gone: Callable[[], None]) -> list["asyncio.Future[None]"]:
        while self._open:
            os.close(self._open.pop())
        self._feed(self._input, close=True)
        sinks = zip(self._outputs, (STDOUT, STDERR), strict=False)
        return [_drain(source, sink, tail, lambda: None, close=True) for (source, _), sink in sinks]

    def resize(self) -> None:
        """Pipes have no size."""


class Terminal(_Joined):
    """A terminal for the command, with the settings and the size of ours."""

    tty = True

    def __init__(self, settings: "list[int | list[bytes | int]]") -> None:
        super().__init__()
        self._master, slave = os.openpty()
        self._open = [slave]
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self.theirs = (slave, slave, slave)
        self.resize()

    def join(self, tail: Tail, on_gone: Callable[[], None]) -> list["asyncio.Future[None]"]:
        while self._open:
            os.close(self._open.pop())
        self._feed(self._master, close=False)
        return [_drain(self._master, STDOUT, tail, on_gone, close=False)]

    def resize(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetwinsize(self._master, termios.tcgetwinsize(STDOUT))


def _drain(
    source: int, sink: int, tail: Tail, on_gone: Callable[[], None], *, close: bool
) -> "asyncio.Future[None]":
    """Copy until the source ends, or the sink; closing the source then tells the command."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def copy() -> None:
        try:
            while data := _read(source):
                tail.add(data)
                write_all(sink, data)
        except OSError:
            _tell(loop, on_gone)
        finally:
            if close:
                os.close(source)
            _tell(loop, lambda: None if ended.done() else ended.set_result(None))

    threading.Thread(target=copy, daemon=True).start()
    return ended


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, COPY_BYTES)
    except OSError:
        return b""  # a terminal that nobody writes to any more answers EIO instead of end of file


def write_all(fd: int, data: bytes) -> None:
    """Write to the last byte, however long that takes."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody else made a shared terminal or pipe non-blocking
            select.select([], [fd], [])


def _same(one: int, other: int) -> bool:
    a, b = os.fstat(one), os.fstat(other)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


# --- our own streams, for a command that is not on this machine


def peek() -> bytes | None:
    """What standard input has ready: nothing yet (None), its end (no bytes), or a first piece."""
    waiting = select.poll()
    waiting.register(STDIN, select.POLLIN)
    if os.isatty(STDIN) or not waiting.poll(0):
        return None
    try:
        return os.read(STDIN, COPY_BYTES)
    except OSError:
        return b""


def read_input(
    loop: asyncio.AbstractEventLoop,
    take: Callable[[bytes], Coroutine[None, None, None]],
    first: bytes | None,
) -> Callable[[], None]:
    """Hand on standard input until its end, each piece when the last one was taken; returns how to stop."""
    stopped, stop = os.pipe()

    def hand_on(data: bytes) -> bool:
        try:
            asyncio.run_coroutine_threadsafe(take(data), loop).result()
        except (HoldfastError, RuntimeError, asyncio.CancelledError, concurrent.futures.CancelledError):
            return False  # nobody takes any more
        return bool(data)

    def copy() -> None:
        waiting = select.poll()
        waiting.register(STDIN, select.POLLIN)
        waiting.register(stopped, select.POLLIN)
        with contextlib.suppress(OSError):
            more = first is None or (first != b"" and hand_on(first))
            while more and stopped not in (ready for ready, _ in waiting.poll()):
                more = hand_on(os.read(STDIN, COPY_BYTES))

    threading.Thread(target=copy, daemon=True).start()
    return lambda: os.close(stop)


class Writer:
    """Writes to our outputs in a thread that may block for ever without anybody waiting for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[int, bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    async def write(self, descriptor: int, data: bytes) -> None:
        """Raises: OSError: nobody reads any more."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((descriptor, data, written))
        await written

    def _write(self) -> None:
        while True:
            descriptor, data, written = self._queue.get()
            error: OSError | None = None
            try:
                write_all(descriptor, data)
            except OSError as exc:
                error = exc
            _tell(self._loop, functools.partial(_settle, written, error))


def _settle(written: "asyncio.Future[None]", error: OSError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
