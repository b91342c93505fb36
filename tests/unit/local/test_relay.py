"""The course of a command: for whom a signal is, before, while and after it runs."""

import signal
from collections.abc import Callable
from typing import Any

from holdfast.local.loop import Timer
from holdfast.local.relay import GRACE_S, Course, Tail


class FakeLoop:
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.signals: dict[int, Callable[[], object]] = {}
        self.later: list[tuple[float, Callable[[], object]]] = []

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        self.signals[sig] = lambda: callback(*args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        self.later.append((delay, callback))
        return Timer(delay, callback)

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...
    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...
    def remove_reader(self, fd: int) -> bool:
        return False

    def remove_writer(self, fd: int) -> bool:
        return False


class Command:
    def __init__(self) -> None:
        self.got: list[int] = []

    def pass_on(self, signum: int) -> None:
        self.got.append(signum)

    def kill(self) -> None:
        self.got.append(signal.SIGKILL)


def course() -> tuple[Course, FakeLoop, Command]:
    loop, command = FakeLoop(), Command()
    return Course(loop, command), loop, command


def test_before_the_start_a_signal_is_for_us() -> None:
    one, loop, command = course()
    loop.signals[signal.SIGTERM]()
    assert (one.over, one.stopped_by, command.got) == (True, signal.SIGTERM, [])


def test_one_that_came_while_it_started_is_for_the_command() -> None:
    one, loop, command = course()
    loop.signals[signal.SIGINT]()
    one.begin()
    assert (one.over, one.stopped_by, command.got) == (False, None, [signal.SIGINT])


def test_while_it_runs_a_signal_is_for_the_command_and_an_end_is_enforced_after_a_while() -> None:
    one, loop, command = course()
    one.begin()
    loop.signals[signal.SIGUSR1]()
    assert (command.got, loop.later) == ([signal.SIGUSR1], [])
    loop.signals[signal.SIGTERM]()
    [(delay, enforce)] = loop.later
    assert delay == GRACE_S
    enforce()
    assert command.got == [signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL]
    assert not one.over


def test_after_its_end_nothing_is_enforced_and_a_signal_ends_the_waiting() -> None:
    one, loop, command = course()
    one.begin()
    loop.signals[signal.SIGHUP]()
    one.end()
    [(_, enforce)] = loop.later
    enforce()
    assert (one.over, command.got) == (False, [signal.SIGHUP])
    loop.signals[signal.SIGINT]()
    assert (one.over, command.got) == (True, [signal.SIGHUP])


def test_a_tail_is_the_end_of_what_was_written() -> None:
    tail = Tail(4)
    for piece in (b"abc", b"defghij", b"k"):
        tail.add(piece)
    assert tail.read() == b"hijk"
