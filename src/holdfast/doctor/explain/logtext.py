"""The bytes of any log as lines to look at: encodings, terminal escapes, JSON within a line. Pure module.

Whatever comes in, what is kept between two calls is bounded. A stream of JSON messages becomes one line per
member, with the text in it as the program wrote it, so that it reads like a terminal's.
"""

import codecs
import re
from typing import Final

MAX_OPEN_CHARS: Final = 256 * 1024  # a line without end is cut here; a JSON message with a tool's output fits
MAX_LINE_CHARS: Final = 2000  # of one line handed out; longer ones come in pieces
MAX_NESTED: Final = 3  # JSON in JSON in JSON: what agents write of each other's output

_ESCAPES: Final = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)")
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt]))")
_PLAIN: Final = {"b": "", "f": "\n", "n": "\n", "r": "\n", "t": "\t"}
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LONGEST_MARK: Final = 3  # bytes of a byte-order mark


class LogText:
    """Feed it bytes in any pieces; it hands out lines."""

    def __init__(self) -> None:
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._open = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """The lines that are complete now; with `final` also the last one."""
        text = (self._open + self._decoded(data, final)).replace("\r\n", "\n").replace("\r", "\n")
        *whole, self._open = text.split("\n")
        if final or len(self._open) > MAX_OPEN_CHARS:
            whole.append(self._open)
            self._open = ""
        return [piece for line in whole for piece in _pieces(line)]

    def _decoded(self, data: bytes, final: bool) -> str:
        if self._decoder is None:
            self._head += data
            if len(self._head) < _LONGEST_MARK and not final:
                return ""
            name = "utf-16" if self._head.startswith(_UTF_16) else "utf-8-sig"
            self._decoder = codecs.getincrementaldecoder(name)("replace")
            data, self._head = self._head, b""
        # Without a mark, UTF-16 of plain letters is those letters with zeros between.
        return self._decoder.decode(data, final).replace("\0", "")


def _pieces(line: str) -> list[str]:
    if '{"' in line:
        line = _opened(line)
    line = _ESCAPES.sub("", line)
    return [part[at : at + MAX_LINE_CHARS] for part in line.split("\n") for at in _starts(part)]


def _starts(part: str) -> range:
    return range(0, max(len(part), 1), MAX_LINE_CHARS)


def _opened(line: str) -> str:
    """One line per member of the object, and the strings as they were before they became JSON."""
    for _ in range(MAX_NESTED):
        line = line.replace(',"', ',\n"')
        if '\\"' not in line and "\\n" not in line:
            break
        line = _ESCAPED.sub(_unescaped, line)
    return line


def _unescaped(hit: re.Match[str]) -> str:
    number, letter = hit.groups()
    return chr(int(number, 16)) if number else _PLAIN.get(letter, letter)
