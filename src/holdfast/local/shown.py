"""What somebody else wrote, made harmless to look at. Pure module.

A name or an output may hold bytes that are no text, and sequences that a terminal obeys: they move the
cursor, rename the window, fill the clipboard or answer on the keyboard. Shown, they are spelled out.
"""

import re
from typing import Final

_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)  # how Python keeps a byte that is no text
_SEQUENCES: Final = re.compile(  # that a terminal obeys and a reader has no use for
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?"
    r"|\x1b[ -/]{0,4}[0-~]"
)
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def count(number: int, one: str, many: str | None = None) -> str:
    """As it is said of one and of several.

    >>> count(1, "worker runs", "workers run"), count(0, "file")
    ('1 worker runs', '0 files')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def show_name(name: str) -> str:
    r"""A file name on one line; two names are never shown alike.

    >>> show_name("bad\udcff\n")
    'bad\\xff\\n'
    """
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(char if char.isprintable() and char != "\\" else _spell(char) for char in name)


def show_text(text: str) -> str:
    r"""Text of several lines: line ends and tabs stay, and so does a carriage return before a line end.

    >>> show_text("a\x1b[2J\r\n")
    'a\\x1b[2J\n'
    """
    lines = text.replace("\r\n", "\n")
    return "".join(char if char.isprintable() or char in "\n\t" else _spell(char) for char in lines)


def strip_sequences(text: str) -> str:
    r"""What a person would read on the terminal for which this was coloured.

    >>> strip_sequences("\x1b[31mred\x1b[0m \x1b]0;title\x07end")
    'red end'
    """
    return _SEQUENCES.sub("", text) if "\x1b" in text or "\x9b" in text else text


def cut_words(text: str, most: int) -> str:
    """One line of at most so many characters; what does not fit ends after a whole word, with an ellipsis."""
    line = " ".join(strip_sequences(text[: 4 * most]).split())
    if len(line) <= most:
        return line
    kept = line[: most - 1]
    whole = kept if line[most - 1] == " " else kept.rpartition(" ")[0] or kept
    return f"{whole.rstrip(' ,;:')}…"


def show_bytes(data: bytes) -> str:
    """Bytes that ought to be text."""
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
    """Whether a name can be written down in UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in name)
