"""Make text from other programs and users safe to display. Pure module.

A name or an output may hold bytes that are not text, and terminal control sequences: they move the cursor,
rename the window, fill the clipboard or inject keyboard input. These are shown escaped.
"""

import re
from typing import Final

_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)  # how Python keeps a byte that is not text
_SEQUENCES: Final = re.compile(  # terminal control sequences, of no use to a reader
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?"
    r"|\x1b[ -/]{0,4}[0-~]"
)
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def count(number: int, one: str, many: str | None = None) -> str:
    """Format a number with the singular or plural of its noun.

    >>> count(1, "worker runs", "workers run"), count(0, "file")
    ('1 worker runs', '0 files')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def show_name(name: str) -> str:
    r"""Show a file name on one line; two different names never look alike.

    >>> show_name("bad\udcff\n")
    'bad\\xff\\n'
    """
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(char if char.isprintable() and char != "\\" else _spell(char) for char in name)


def show_text(text: str) -> str:
    r"""Show text of several lines: line ends and tabs stay, and so does a carriage return before a line end.

    >>> show_text("a\x1b[2J\r\n")
    'a\\x1b[2J\n'
    """
    lines = text.replace("\r\n", "\n")
    return "".join(char if char.isprintable() or char in "\n\t" else _spell(char) for char in lines)


def strip_sequences(text: str) -> str:
    r"""Remove colours and other control sequences, which leaves what a person would read on the terminal.

    >>> strip_sequences("\x1b[31mred\x1b[0m \x1b]0;title\x07end")
    'red end'
    """
    return _SEQUENCES.sub("", text) if "\x1b" in text or "\x9b" in text else text


def cut_words(text: str, most: int) -> str:
    """Return one line of at most `most` characters; cut longer text after a whole word, with an ellipsis."""
    line = " ".join(strip_sequences(text[: 4 * most]).split())
    if len(line) <= most:
        return line
    kept = line[: most - 1]
    whole = kept if line[most - 1] == " " else kept.rpartition(" ")[0] or kept
    return f"{whole.rstrip(' ,;:')}…"


def show_bytes(data: bytes) -> str:
    """Show bytes that should be text."""
    return show_text(data.decode("utf-8", "surrogateescape"))


def _spell(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_text(name: str) -> bool:
    """Whether a name can be encoded in UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in name)
