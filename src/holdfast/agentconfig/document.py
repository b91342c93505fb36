r"""A TOML text as statements with their positions; it is parsed, never serialised. Pure module.

Codex reads TOML 1.1 (inline tables across lines, a comma before their end, `\e`, `\xHH`, times without
seconds), which no parser of Python's standard library does. A file with several writers has to keep every
byte that we did not intend to change. So this scanner parses strings, arrays and inline tables far enough to
find where each statement begins and ends and which key it sets. Numbers, dates and duplicate keys are left to
the real parser.
"""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from holdfast.errors import UsageError

Key: TypeAlias = tuple[str, ...]
Plain: TypeAlias = "bool | str | int | tuple[Plain, ...] | None"

BOM: Final = "\ufeff"
MAX_DEPTH: Final = 80  # nested arrays and inline tables, as in Codex's own parser

_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]|\r(?!\n)")
_SPACE: Final = re.compile(r"[ \t]*")
_GAP: Final = re.compile(r"(?:[ \t]|\r?\n|#[^\n]*)*")
_LINE_END: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")  # a comment takes the \r of \r\n with it
_BLANK_END: Final = re.compile(r"[ \t]*\r?(?:\n|\Z)")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BASIC: Final = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_LITERAL: Final = re.compile(r"'[^'\n]*'")
_BARE_VALUE: Final = re.compile(
    r"true\b|false\b|[+-]?(?:inf|nan)\b|\d{4}-\d\d-\d\d[ ]\d\d:[0-9:.]+(?:[Zz]|[+-]\d\d:\d\d)?"
    r"|[+-]?\d[0-9A-Za-z_.:+-]*"
)
_INTEGER: Final = re.compile(r"[+-]?(?:0|[1-9]\d*(?:_\d+)*)")
_ESCAPE: Final = re.compile(
    r'\\(?:(?P<short>[btnfre"\\])|x(?P<x>[0-9A-Fa-f]{2})|u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8})'
    r"|(?P<fold>[ \t]*\r?\n[ \t\r\n]*)|(?P<bad>.?))",
    re.DOTALL,
)
_LONG_STOP: Final = {'"': re.compile(r'\\.|"""', re.DOTALL), "'": re.compile("'''")}
_SHORT: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


class Unparsable(UsageError):
    """The text is not TOML; nothing may be edited in it. Lines and columns count from 1."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(
            f"line {line}, column {column}: {reason}", remedy="correct the file by hand, then try again"
        )
        self.line = line
        self.column = column
        self.reason = reason


class Shape(enum.Enum):
    """The kind of a value."""

    STRING = enum.auto()
    BARE = enum.auto()  # a truth value, a number, a date
    ARRAY = enum.auto()
    TABLE = enum.auto()  # inline


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its position; `string`, `items` or `entries` is set according to its shape."""

    shape: Shape
    start: int
    end: int
    string: str = ""
    items: "tuple[Node, ...]" = ()
    entries: "tuple[tuple[Key, Node], ...]" = ()


class LineKind(enum.Enum):
    """The kind of one line, or of several that belong together."""

    TABLE = enum.auto()
    TABLES = enum.auto()  # an element of an array of tables
    ASSIGNMENT = enum.auto()
    COMMENT = enum.auto()
    BLANK = enum.auto()


@dataclass(frozen=True, slots=True)
class Item:
    """Whole lines, line ends included. `path` is the decoded key from the root."""

    kind: LineKind
    start: int
    end: int
    table: Key  # the header above it; of a header, itself
    path: Key = ()
    key: Key = ()  # as written, below `table`
    value: Node | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A scanned text. The items follow each other without a gap, after the byte-order mark."""

    text: str
    items: tuple[Item, ...]

    @property
    def top(self) -> int:
        """Where the content begins."""
        return len(BOM) if self.text.startswith(BOM) else 0

    @property
    def newline(self) -> str:
        """The line end of the first line that has one."""
        at = self.text.find("\n")
        return "\r\n" if at > 0 and self.text[at - 1] == "\r" else "\n"

    def source(self, item: Item | Node) -> str:
        """The text of an item or a value."""
        return self.text[item.start : item.end]

    def line(self, item: Item) -> int:
        """The number of its first line."""
        return self.text.count("\n", 0, item.start) + 1

    def plain(self, node: Node) -> Plain:
        """The decoded value; None for kinds that we never need (floats, dates, inline tables)."""
        match node.shape:
            case Shape.STRING:
                return node.string
            case Shape.ARRAY:
                return tuple(self.plain(item) for item in node.items)
            case Shape.TABLE:
                return None
            case Shape.BARE:
                text = self.source(node)
                if text in ("true", "false"):
                    return text == "true"
                return int(text.replace("_", "")) if _INTEGER.fullmatch(text) and len(text) < 20 else None


def scan(text: str) -> Document:
    """The statements, comments and blank lines of this text, in order.

    Raises:
        Unparsable: a string, array, header or assignment is malformed.
    """
    if found := _FORBIDDEN.search(text):
        _fail(text, found.start(), "a control character, or a carriage return that ends no line")
    return Document(text, tuple(_Scanner(text).items()))


def _fail(text: str, at: int, reason: str) -> NoReturn:
    before = text[:at]
    line_start = before.rfind("\n") + 1
    column = at - line_start + 1 - (line_start == 0 and text.startswith(BOM))
    raise Unparsable(before.count("\n") + 1, column, reason)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(BOM) if text.startswith(BOM) else 0

    def items(self) -> Iterator[Item]:
        table: Key = ()
        while self._at < len(self._text):
            item = self._item(table)
            if item.kind in (LineKind.TABLE, LineKind.TABLES):
                table = item.path
            yield item

    def _item(self, table: Key) -> Item:
        text, start = self._text, self._at
        if blank := _BLANK_END.match(text, start):
            self._at = blank.end()
            return Item(LineKind.BLANK, start, self._at, table)
        self._space()
        if text.startswith("#", self._at):
            self._line_end()
            return Item(LineKind.COMMENT, start, self._at, table)
        if text.startswith("[", self._at):
            brackets = 2 if text.startswith("[[", self._at) else 1
            self._at += brackets
            path = self._key()
            self._expect("]" * brackets)
            self._line_end()
            return Item(LineKind.TABLES if brackets == 2 else LineKind.TABLE, start, self._at, path, path)
        key = self._key()
        self._expect("=")
        self._space()
        value = self._value(0)
        self._line_end()
        return Item(LineKind.ASSIGNMENT, start, self._at, table, table + key, key, value)

    def _key(self) -> Key:
        parts = []
        while True:
            self._space()
            text, at = self._text, self._at
            if found := _BARE_KEY.match(text, at):
                parts.append(found[0])
            elif found := _LITERAL.match(text, at):
                parts.append(found[0][1:-1])
            elif found := _BASIC.match(text, at):
                parts.append(self._decode(found[0][1:-1], at))
            else:
                _fail(text, at, "a key was expected")
            self._at = found.end()
            self._space()
            if not text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1

    def _value(self, depth: int) -> Node:
        text, start = self._text, self._at
        if depth > MAX_DEPTH:
            _fail(text, start, "values are nested too deeply")
        if text.startswith(('"""', "'''"), start):
            return self._long_string(text[start])
        if text.startswith("[", start):
            return self._array(depth)
        if text.startswith("{", start):
            return self._inline_table(depth)
        if found := _LITERAL.match(text, start):
            string = found[0][1:-1]
        elif found := _BASIC.match(text, start):
            string = self._decode(found[0][1:-1], start)
        elif found := _BARE_VALUE.match(text, start):
            self._at = found.end()
            return Node(Shape.BARE, start, self._at)
        else:
            _fail(text, start, "a value was expected")
        self._at = found.end()
        return Node(Shape.STRING, start, self._at, string)

    def _long_string(self, quote: str) -> Node:
        text, start = self._text, self._at
        at, end = start + 3, -1
        while end < 0:
            found = _LONG_STOP[quote].search(text, at)
            if not found:
                _fail(text, start, "a string does not end")
            at = found.end()
            end = -1 if found[0].startswith("\\") else found.start()
        end += next(extra for extra in (2, 1, 0) if text.startswith(quote * extra, end + 3))
        self._at = end + 3
        body = re.sub(r"\A\r?\n", "", text[start + 3 : end])
        return Node(Shape.STRING, start, self._at, self._decode(body, start) if quote == '"' else body)

    def _array(self, depth: int) -> Node:
        start = self._at
        self._at += 1
        items = []
        self._gap()
        while not self._skip("]"):
            items.append(self._value(depth + 1))
            self._gap()
            if not self._skip(",") and not self._text.startswith("]", self._at):
                _fail(self._text, self._at, "an array goes on with a comma or ends")
            self._gap()
        return Node(Shape.ARRAY, start, self._at, items=tuple(items))

    def _inline_table(self, depth: int) -> Node:
        start = self._at
        self._at += 1
        entries = []
        self._gap()
        while not self._skip("}"):
            key = self._key()
            self._expect("=")
            self._gap()
            entries.append((key, self._value(depth + 1)))
            self._gap()
            if not self._skip(",") and not self._text.startswith("}", self._at):
                _fail(self._text, self._at, "an inline table goes on with a comma or ends")
            self._gap()
        return Node(Shape.TABLE, start, self._at, entries=tuple(entries))

    def _decode(self, body: str, at: int) -> str:
        def replacement(found: re.Match[str]) -> str:
            if found["bad"] is not None:
                _fail(self._text, at, "an unknown escape in a string")
            if found["fold"] is not None:
                return ""
            if found["short"]:
                return _SHORT[found["short"]]
            code = int(found["x"] or found["u"] or found["U"], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                _fail(self._text, at, "an escape that is no character")
            return chr(code)

        return _ESCAPE.sub(replacement, body) if "\\" in body else body

    def _space(self) -> None:
        if found := _SPACE.match(self._text, self._at):
            self._at = found.end()

    def _gap(self) -> None:
        if found := _GAP.match(self._text, self._at):
            self._at = found.end()

    def _skip(self, char: str) -> bool:
        if not self._text.startswith(char, self._at):
            return False
        self._at += len(char)
        return True

    def _expect(self, sign: str) -> None:
        self._space()
        if not self._skip(sign):
            _fail(self._text, self._at, f"{sign!r} was expected")

    def _line_end(self) -> None:
        self._space()
        found = _LINE_END.match(self._text, self._at) or _BLANK_END.match(self._text, self._at)
        if not found:
            _fail(self._text, self._at, "the line goes on after its statement")
        self._at = found.end()
