"""Renders terminal bytes into the screen that a person would see, and tracks when it last changed.

pyte keeps the cells. We parse the sequences ourselves and pass them to pyte with bounded parameters. pyte's
own parser loses the rest of a read at sequences that agent CLIs send every day, prints strings it does not
know, has no alternate screen and keeps every saved cursor for ever. Colours are ignored: no sign depends on
them.

Bytes are buffered and drawn only on `look`. With a few looks per second that is cheap, however many reads
there were.
"""

import codecs
import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple

import pyte
from pyte.screens import Char, Cursor, StaticDefaultDict
from wcwidth import wcwidth

from holdfast.agents.terminal.escapes import Piece, SequenceKind, Splitter

MAX_PENDING: Final = 256 * 1024  # bytes kept between two looks: they take 0.2 s to draw, and fill 50 screens
MAX_COUNT: Final = 9999  # largest value of a parameter: pyte loops over some

_CONTROLS: Final = re.compile("([\x00-\x1f\x7f-\x9f])")
_RESUME: Final = re.compile(rb"[\x1b\n]")
_PLAIN: Final = {chr(code): Char(chr(code)) for code in range(0x20, 0x7F)}
_ALTERNATE: Final = frozenset((47, 1047, 1049))


class ScreenSnapshot(NamedTuple):
    lines: tuple[str, ...]  # every row, without trailing blanks
    digest: bytes
    changed_at: float  # when this content was first seen
    row: int  # of the cursor, from 1
    column: int


class _Cells(pyte.Screen):
    """pyte's cells with an alternate screen, scrolling, and one saved cursor."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self._main: tuple[dict[int, StaticDefaultDict[int, Char]], Cursor] | None = None

    def save_cursor(self) -> None:
        super().save_cursor()
        del self.savepoints[:-1]

    def restore_cursor(self) -> None:
        super().restore_cursor()
        self.save_cursor()

    def show(self, text: str) -> None:
        """Draw the text without the characters that make pyte drop the rest."""
        if text.isascii() and text.isprintable():
            self._show_plain(text)
        else:
            self.draw("".join(char for char in text if wcwidth(char) > 0 or unicodedata.combining(char)))

    def _show_plain(self, text: str) -> None:
        """Draw characters of one cell, a line at a time: five times as fast as `draw`."""
        cursor = self.cursor
        while text:
            if cursor.x == self.columns:
                if pyte.modes.DECAWM in self.mode:
                    self.next_line()
                else:
                    cursor.x, text = self.columns - 1, text[-1]
            part = text[: self.columns - cursor.x]
            text = text[len(part) :]
            self.buffer[cursor.y].update(enumerate(map(_PLAIN.__getitem__, part), cursor.x))
            self.dirty.add(cursor.y)
            cursor.x += len(part)

    def next_line(self) -> None:
        self.carriage_return()
        self.index()

    def erase_display(self, how: int) -> None:
        """Erase from the cursor on (0), up to it (1), or everything (2 and 3)."""
        here = self.cursor.y
        rows = {0: range(here + 1, self.lines), 1: range(here)}.get(how, range(self.lines))
        for row in rows:
            self.buffer.pop(row, None)
        self.dirty.update(rows)
        self.erase_line(how)

    def erase_line(self, how: int) -> None:
        here = self.cursor.x
        line = self.buffer[self.cursor.y]
        for x in {0: range(here, self.columns), 1: range(here + 1)}.get(how, range(self.columns)):
            line.pop(x, None)
        self.dirty.add(self.cursor.y)

    def scroll(self, count: int, *, down: bool) -> None:
        """Move the lines between the margins; the cursor stays where it is."""
        at = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        (self.insert_lines if down else self.delete_lines)(count)
        self.cursor.x, self.cursor.y = at

    def margin(self, top: int, bottom: int) -> None:
        self.margins = None
        self.set_margins(top or 1, bottom or self.lines)
        self.cursor_position()

    def switch(self, *, alternate: bool) -> None:
        if alternate and self._main is None:
            self._main = dict(self.buffer), self.cursor
            self.buffer.clear()
            self.cursor = Cursor(self.cursor.x, self.cursor.y)
        elif not alternate and self._main is not None:
            cells, self.cursor = self._main
            self._main = None
            self.buffer.clear()
            self.buffer.update(cells)
        self.dirty.update(range(self.lines))

    def restart(self) -> None:
        self._main = None
        self.reset()

    def rendered(self, row: int) -> str:
        line = self.buffer.get(row)
        return "" if line is None else "".join(line[x].data for x in range(self.columns)).rstrip()


_CONTROL: Final[dict[str, Callable[[_Cells], None]]] = {
    "\b": _Cells.backspace,
    "\t": _Cells.tab,
    "\n": _Cells.linefeed,
    "\v": _Cells.linefeed,
    "\f": _Cells.linefeed,
    "\r": _Cells.carriage_return,
}
_ESCAPE: Final[dict[bytes, Callable[[_Cells], None]]] = {
    b"D": _Cells.index,
    b"E": _Cells.next_line,
    b"M": _Cells.reverse_index,
    b"H": _Cells.set_tab_stop,
    b"7": _Cells.save_cursor,
    b"8": _Cells.restore_cursor,
    b"c": _Cells.restart,
}
_CSI: Final[dict[bytes, Callable[[_Cells, int], None]]] = {
    b"@": _Cells.insert_characters,
    b"A": _Cells.cursor_up,
    b"B": _Cells.cursor_down,
    b"C": _Cells.cursor_forward,
    b"D": _Cells.cursor_back,
    b"E": _Cells.cursor_down1,
    b"F": _Cells.cursor_up1,
    b"G": _Cells.cursor_to_column,
    b"J": _Cells.erase_display,
    b"K": _Cells.erase_line,
    b"L": _Cells.insert_lines,
    b"M": _Cells.delete_lines,
    b"P": _Cells.delete_characters,
    b"S": lambda cells, count: cells.scroll(count, down=False),
    b"T": lambda cells, count: cells.scroll(count, down=True),
    b"X": _Cells.erase_characters,
    b"`": _Cells.cursor_to_column,
    b"a": _Cells.cursor_forward,
    b"d": _Cells.cursor_to_line,
    b"e": _Cells.cursor_down,
    b"g": _Cells.clear_tab_stop,
    b"s": lambda cells, _: cells.save_cursor(),
    b"u": lambda cells, _: cells.restore_cursor(),
}
_CSI_PAIR: Final[dict[bytes, Callable[[_Cells, int, int], None]]] = {
    b"H": _Cells.cursor_position,
    b"f": _Cells.cursor_position,
    b"r": _Cells.margin,
}


class Screen:
    """The screen of one worker. Never raises, whatever it is fed."""

    def __init__(self, rows: int, columns: int) -> None:
        self._cells = _Cells(columns, rows)
        self._splitter = Splitter()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = bytearray()
        self._lines = [""] * rows
        self._look = ScreenSnapshot(tuple(self._lines), b"", 0.0, 1, 1)
        self.skipped = 0  # bytes that were never drawn

    def feed(self, data: bytes) -> None:
        """Buffer output of the program; nothing is drawn yet."""
        self._pending += data
        excess = len(self._pending) - MAX_PENDING
        if excess > 0:
            # Drop half of the buffer at once, so that a flood does not move the rest at every read.
            resume = _RESUME.search(self._pending, excess + MAX_PENDING // 2)
            drop = resume.start() if resume else len(self._pending)
            self.skipped += drop
            del self._pending[:drop]

    def look(self, now: float) -> ScreenSnapshot:
        """Draw the output since the last look and return the present screen."""
        if not self._pending and self._look.digest:
            return self._look
        data = bytes(self._pending)
        self._pending.clear()
        for piece in self._splitter.feed(data):
            self._draw(piece)
        cells = self._cells
        for row in cells.dirty:
            self._lines[row] = cells.rendered(row)
        cells.dirty.clear()
        lines = tuple(self._lines)
        digest = hashlib.blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=16).digest()
        changed_at = self._look.changed_at if digest == self._look.digest else now
        column = min(cells.cursor.x, cells.columns - 1) + 1
        self._look = ScreenSnapshot(lines, digest, changed_at, cells.cursor.y + 1, column)
        return self._look

    def _draw(self, piece: Piece) -> None:
        if piece.kind is SequenceKind.TEXT:
            self._text(self._decoder.decode(piece.body))
        elif piece.kind is SequenceKind.CSI:
            self._csi(piece.body)
        elif piece.kind is SequenceKind.ESCAPE and (act := _ESCAPE.get(piece.body)) is not None:
            act(self._cells)

    def _text(self, text: str) -> None:
        for part in _CONTROLS.split(text):
            act = _CONTROL.get(part)
            if act is not None:
                act(self._cells)
            elif part:
                self._cells.show(part)

    def _csi(self, body: bytes) -> None:
        final = body[-1:]
        if final in b"hl":
            return self._mode(body)
        if not re.fullmatch(rb"[0-9;]*", body[:-1]):
            return None  # a private sequence or one with sub-parameters: none of these move or draw
        numbers = [min(int(number or b"0"), MAX_COUNT) for number in body[:-1].split(b";")[:2]]
        if (act := _CSI.get(final)) is not None:
            act(self._cells, numbers[0])
        elif (pair := _CSI_PAIR.get(final)) is not None:
            pair(self._cells, numbers[0], numbers[1] if len(numbers) > 1 else 0)
        return None

    def _mode(self, body: bytes) -> None:
        on = body[-1:] == b"h"
        for number in body[1:-1].split(b";"):
            if body[:1] == b"?" and number == b"7":
                (self._cells.set_mode if on else self._cells.reset_mode)(7, private=True)
            elif body[:1] == b"?" and number.isdigit() and int(number) in _ALTERNATE:
                self._cells.switch(alternate=on)
