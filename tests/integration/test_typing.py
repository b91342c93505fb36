"""Text typed into real programs on real terminals: it arrives whole, or it is said that it did not."""

import os
import select
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents.terminal.escapes import EscapeReader
from holdfast.agents.terminal.keys import MAX_LINE, Delivery, Outcome, Shown, WaitFor, Write, encode_paste
from holdfast.agents.terminal.screen import Screen
from holdfast.agents.worker import procwatch
from tests.support import watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
ROWS, COLUMNS = 24, 80
READ_LINE: Final = (
    "import sys; line = sys.stdin.readline(); print('got', len(line), flush=True); sys.stdin.read()"
)


class Worker:
    """The other side of a program's terminal, as a supervisor sees it."""

    def __init__(self, pid: int, master: int) -> None:
        self.pid, self._master = pid, master
        self.reader, self.screen = EscapeReader(), Screen(ROWS, COLUMNS)

    def pump(self, wait_s: float) -> str:
        """What the screen shows, after more output or some time."""
        if select.select([self._master], [], [], wait_s)[0]:
            data = os.read(self._master, 65536)
            self.reader.feed(data)
            self.screen.feed(data)
        return "\n".join(self.screen.look(time.monotonic()).lines)

    def look(self) -> procwatch.ProcessSnapshot:
        return procwatch.look(self.pid)

    def until_it_waits(self) -> None:
        deadline = time.monotonic() + watched.WAIT_S
        while not self.look().waiting:
            assert time.monotonic() < deadline
            self.pump(0.02)

    def until_it_takes_pastes(self) -> None:
        """It says so before it waits, but what it says may still be on its way."""
        deadline = time.monotonic() + watched.WAIT_S
        while not self.reader.bracketed_paste:
            assert time.monotonic() < deadline
            self.pump(0.02)

    def until_shown(self, text: str) -> None:
        deadline = time.monotonic() + watched.WAIT_S
        while text not in (shown := self.pump(0.02)):
            assert time.monotonic() < deadline, shown

    def send(self, data: bytes) -> Outcome:
        delivery = Delivery(data)
        while True:
            terminal = self.look().terminal
            assert terminal is not None
            now = time.monotonic()
            shown = Shown(self.screen.look(now).digest, unread=terminal.unread)
            match delivery.step(now, shown):
                case Write(data=piece):
                    os.write(self._master, piece)
                case WaitFor(until=until):
                    self.pump(min(0.05, max(0.0, until - now)))
                case Outcome() as outcome:
                    return outcome


def test_a_paste_reaches_a_line_editor_and_is_submitted(tmp_path: Path) -> None:
    shell = watched.Case(("bash", "--norc", "-i"))
    with watched.started(shell, tmp_path) as (child, master):
        worker = Worker(child.pid, master)
        worker.until_it_waits()
        worker.until_it_takes_pastes()
        text = encode_paste("echo sum=$((40+2))", bracketed=True, canonical=False)
        assert worker.send(text) is Outcome.SUBMITTED
        worker.until_shown("sum=42")


def test_what_nobody_reads_was_typed_and_not_submitted(tmp_path: Path) -> None:
    with watched.started(watched.Case(("sleep", "600")), tmp_path) as (child, master):
        assert Worker(child.pid, master).send(b"hello") is Outcome.TYPED


@pytest.mark.parametrize("more", [0, 1000], ids=["fits", "does not fit"])
def test_a_line_is_as_long_as_the_terminal_keeps(tmp_path: Path, more: int) -> None:
    program = watched.Case((sys.executable, "-I", "-c", READ_LINE))
    with watched.started(program, tmp_path) as (child, master):
        worker = Worker(child.pid, master)
        worker.until_it_waits()
        for _ in range((MAX_LINE + more) // 5):
            os.write(master, b"12345")
            worker.pump(0)
        os.write(master, b"\r")
        worker.until_shown(f"got {MAX_LINE + 1}")
