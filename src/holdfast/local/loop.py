"""An event loop that loads fast, with the few methods of asyncio's that relaying a command needs.

A method has the name and the meaning that it has in asyncio, so code for one loop runs on the other.
"""

import os
import select
import time

from holdfast.light import Any, Callable, Final, Protocol, signal

_IN: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_OUT: Final = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Timer:
    """What `call_later` returns."""

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when, self.call = when, call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class AnyLoop(Protocol):
    """This loop, or asyncio's."""

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...
    def remove_writer(self, fd: int) -> bool: ...
    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Cancellable: ...
    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None: ...


class Loop:
    """For a process with one thread. `run_until` calls all callbacks, one after another."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self._signals: dict[int, Callable[[], object]] = {}
        self._timers: list[Timer] = []
        self._wake, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.add_reader(self._wake, self._take_signals)

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:
        self._readers[fd] = lambda: callback(*args)
        self._register(fd)

    def remove_reader(self, fd: int) -> bool:
        known = self._readers.pop(fd, None) is not None
        self._register(fd)
        return known

    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:
        self._writers[fd] = lambda: callback(*args)
        self._register(fd)

    def remove_writer(self, fd: int) -> bool:
        known = self._writers.pop(fd, None) is not None
        self._register(fd)
        return known

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(time.monotonic() + delay, lambda: callback(*args))
        self._timers.append(timer)
        return timer

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        self._signals[sig] = lambda: callback(*args)
        signal.signal(sig, _notice)
        signal.siginterrupt(sig, False)

    def run_until(self, done: Callable[[], bool]) -> None:
        """Wait for registered events and call their callbacks, until `done`."""
        while not done():
            for fd, events in self._poll.poll(self._patience()):
                if events & _IN and fd in self._readers:
                    self._readers[fd]()
                if events & _OUT and fd in self._writers:
                    self._writers[fd]()
            now = time.monotonic()
            due = [timer for timer in self._timers if timer.when <= now]
            self._timers = [timer for timer in self._timers if timer.when > now and not timer.cancelled]
            for timer in due:
                if not timer.cancelled:
                    timer.call()

    def _patience(self) -> float | None:
        waiting = [timer.when for timer in self._timers if not timer.cancelled]
        return max(0.0, min(waiting) - time.monotonic()) * 1000 if waiting else None

    def _register(self, fd: int) -> None:
        events = (select.POLLIN if fd in self._readers else 0) | (
            select.POLLOUT if fd in self._writers else 0
        )
        if events:
            self._poll.register(fd, events)
        else:
            try:
                self._poll.unregister(fd)
            except KeyError:
                return

    def _take_signals(self) -> None:
        for sig in os.read(self._wake, 4096):
            if sig in self._signals:
                self._signals[sig]()


def _notice(signum: int, frame: object) -> None:
    """Do nothing: the wakeup pipe notifies the loop, but only of signals that have a Python handler."""
