"""What a worker wrote does not command the terminal of whoever reads it."""

import io
import logging
import sys
from typing import Final

import pytest

from holdfast.commands import output
from holdfast.commands.worker.connected import format_line
from holdfast.commands.worker.worker import logs
from holdfast.log import TextFormatter
from tests.support.rows import every_row

# A title, the clipboard, an answer on the keyboard, the screen, a bell, C1 forms, the direction of text.
HOSTILE: Final = (
    b"\x1b]0;title\x07",
    b"\x1b]52;c;ZXZpbA==\x07",
    b"\x1b[6n",
    b"\x1b[2J\x1b[H",
    b"\x07\x08\x08\x08",
    "\x9b31m".encode(),
    b"\x9b31m",
    "\u202egpj.exe".encode(),
    b"safe\revil",
)


class Terminal(io.TextIOWrapper):
    """A terminal that only writes down what it is sent."""

    def __init__(self, *, real: bool) -> None:
        super().__init__(io.BytesIO(), "utf-8", newline="")
        self._real = real

    def isatty(self) -> bool:
        return self._real

    def received(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


def shown(monkeypatch: pytest.MonkeyPatch, data: bytes, *, real: bool = True, raw: bool = False) -> bytes:
    terminal = Terminal(real=real)
    monkeypatch.setattr(sys, "stdout", terminal)
    try:
        output.show_data(data, raw=raw)
    finally:
        monkeypatch.undo()
    return terminal.received()


def obeyed(sent: bytes) -> bool:
    """Whether there is anything in it but text and line ends."""
    return not all(char.isprintable() or char == "\n" for char in sent.decode("utf-8"))


@every_row("data", HOSTILE, ids=repr)
def test_a_terminal_is_shown_what_it_would_obey(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        sent = shown(monkeypatch, b"before\n" + data + b"\nafter\n")
        assert not obeyed(sent)
        assert sent.startswith(b"before\n")
        assert sent.endswith(b"\nafter\n")


def test_a_pipe_and_whoever_asks_for_it_get_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(HOSTILE)
    assert shown(monkeypatch, data, real=False) == data
    assert shown(monkeypatch, data, raw=True) == data, "the control: this is what a terminal got"
    assert "raw" in {parameter.name for parameter in logs.params}


def test_a_log_for_people_is_one_line_for_each_event() -> None:
    """Another door: names of files, and what git says of them, are logged by our daemons."""
    record = logging.LogRecord("holdfast", logging.WARNING, "", 0, "odd", None, None)
    record.missing = "cannot read \x1b]0;x\x07\n12:00:00 error   forged"
    line = TextFormatter().format(record)
    assert line.isprintable()
    assert "\\x1b]0;x\\x07\\n12:00:00" in line


def test_a_line_about_a_worker_is_harmless() -> None:
    from holdfast.agents.evidence.evidence import WorkerState
    from holdfast.agents.supervisor.messages import WorkerReport

    report = WorkerReport(id="w-1", state=WorkerState("running"), about="\x1b]52;c;eA==\x07reading")
    assert "\x1b]52" not in format_line(report)
