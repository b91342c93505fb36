"""Takes our blocks out of a text and puts back what we had taken out of the user's content. Pure module.

Applying settings is this and then writing anew, so a file that only we touched goes back to the very
bytes it had before, and applying twice is applying once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.agentconfig import render
from holdfast.agentconfig.conflict import Conflict, ConflictKind
from holdfast.agentconfig.document import Document, Item, LineKind, Unparsable, scan
from holdfast.agentconfig.settings import Key, is_owned

Edit = tuple[int, int, str]  # start, end, what stands there instead


def splice(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits; of two at one place the first given comes first."""
    parts, at = [], 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[0]):
        parts += [text[at:start], replacement]
        at = end
    return "".join([*parts, text[at:]])


@dataclass(frozen=True, slots=True)
class Stripped:
    """The user's own content, and what was noticed on the way to it."""

    text: str
    conflicts: tuple[Conflict, ...]


def strip(text: str) -> Stripped:
    """The text without anything of ours.

    Raises:
        Unparsable: it is not TOML.
    """
    document = scan(text)
    blocks = _Blocks(document)
    if blocks.edits:
        document = scan(splice(text, blocks.edits))
    records = _Records(document)
    return Stripped(splice(document.text, records.edits), (*blocks.conflicts, *records.conflicts))


@dataclass
class _Blocks:
    document: Document
    edits: list[Edit] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)

    def __post_init__(self) -> None:
        opened: tuple[int, render.Begin] | None = None
        for at, item in enumerate(self.document.items):
            if item.kind is not LineKind.COMMENT:
                continue
            comment = self.document.source(item)
            if begin := render.as_begin(comment):
                self._unpaired(opened)
                opened = at, begin
            elif name := render.as_end(comment):
                if opened and opened[1].name == name:
                    self._pair(*opened, at)
                else:
                    self._unpaired(opened)
                    self._delete(item)
                    self._note(ConflictKind.UNPAIRED, item, f"an end mark of {name} without its begin")
                opened = None
        self._unpaired(opened)

    def _pair(self, first: int, begin: render.Begin, last: int) -> None:
        items = self.document.items
        body = items[first + 1 : last]
        start, end = self._extent(first, last)
        current = begin.version == render.FORMAT
        if current and begin.digest == render.digest("".join(map(self.document.source, body))):
            self.edits.append((start, end, ""))
            return
        kind = ConflictKind.EDITED if current else ConflictKind.OLD_FORMAT
        self._note(kind, items[first], f"the block {begin.name} is not as it was written")
        self.edits += [(start, items[first].end, ""), (items[last].start, end, "")]
        for item in body:
            if item.kind in (LineKind.TABLE, LineKind.TABLES):
                return  # never our own: what follows belongs to the user
            if _is_ours(item):
                self._delete(item)

    def _extent(self, first: int, last: int) -> tuple[int, int]:
        """From the begin mark to the end mark, with the one line end that was added around them."""
        items, text = self.document.items, self.document.text
        start, end = items[first].start, items[last].end
        in_table = any(item.kind in (LineKind.TABLE, LineKind.TABLES) for item in items[:first])
        if in_table and not text.endswith("\n", start, end):
            start -= 2 if text.endswith("\r\n", 0, start) else 1  # the header had no line end either
        elif not in_table and last + 1 < len(items):
            following = items[last + 1]
            if self.document.source(following) in ("\n", "\r\n"):
                end = following.end
        return start, end

    def _unpaired(self, opened: tuple[int, render.Begin] | None) -> None:
        """Take the mark and the lines right below that only we can have written."""
        if opened is None:
            return
        at, begin = opened
        item = self.document.items[at]
        self._note(ConflictKind.UNPAIRED, item, f"a begin mark of {begin.name} without its end")
        self._delete(item)
        for item in self.document.items[at + 1 :]:
            if not _is_ours(item) or not self.document.source(item).startswith(f"{render.key(item.key)} = "):
                return
            self._delete(item)

    def _delete(self, item: Item) -> None:
        self.edits.append((item.start, item.end, ""))

    def _note(self, kind: ConflictKind, item: Item, detail: str) -> None:
        self.conflicts.append(Conflict(kind, (), self.document.line(item), detail))


def _is_ours(item: Item) -> bool:
    """An owned key, also where it was written below a table and so missed its place."""
    return item.kind is LineKind.ASSIGNMENT and (is_owned(item.path) or is_owned(item.key))


@dataclass
class _Records:
    document: Document
    taken: "_Taken" = field(default_factory=lambda: _Taken())
    edits: list[Edit] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)

    def __post_init__(self) -> None:
        items = self.document.items
        for item in items:
            self.taken.add(item)
        table: Key | None = ()
        for at, item in enumerate(items):
            if item.kind in (LineKind.TABLE, LineKind.TABLES):
                table = item.path
            elif item.kind is LineKind.COMMENT and (count := render.as_record(self.document.source(item))):
                table = self._restore(item, items[at + 1 : at + 1 + count], count, table)

    def _restore(self, item: Item, below: Sequence[Item], count: int, table: Key | None) -> Key | None:
        """Put this record back if it still fits; the table that is open after it, None if that is gone."""
        lines = [self.document.source(line) for line in below]
        source = "".join(line.removeprefix(render.OUT) for line in lines)
        whole = len(lines) == count and all(line.startswith(render.OUT) for line in lines)
        statement = _statement(source) if whole else None
        if statement is None:
            self._note(ConflictKind.DAMAGED, item, "what was taken out here can no longer be read")
            return table
        opens = statement.kind is not LineKind.ASSIGNMENT
        if not opens:
            statement = replace(statement, path=(*(table or ()), *statement.key))
        if (opens or table is not None) and not self.taken.clashes(statement):
            self.edits.append((item.start, below[-1].end, source))
            return statement.path if opens else table
        self._note(ConflictKind.STALE, item, "what was taken out here has been set again since")
        self.edits.append((item.start, below[-1].end, ""))
        return None if opens else table

    def _note(self, kind: ConflictKind, item: Item, detail: str) -> None:
        self.conflicts.append(Conflict(kind, (), self.document.line(item), detail))


def _statement(source: str) -> Item | None:
    try:
        items = scan(source).items
    except Unparsable:
        return None
    alone = len(items) == 1 and items[0].kind not in (LineKind.COMMENT, LineKind.BLANK)
    return items[0] if alone else None


class _Taken:
    """Keys and tables that are there, so that nothing is put back twice."""

    def __init__(self) -> None:
        self._leaves: set[Key] = set()
        self._tables: set[Key] = set()
        self._above: set[Key] = set()  # every table that something is below of

    def add(self, item: Item) -> None:
        if item.kind is LineKind.ASSIGNMENT:
            self._leaves.add(item.path)
        elif item.kind in (LineKind.TABLE, LineKind.TABLES):
            self._tables.add(item.path)
        self._above.update(item.path[:length] for length in range(1, len(item.path)))

    def clashes(self, item: Item) -> bool:
        path = item.path
        if any(path[:length] in self._leaves for length in range(1, len(path) + 1)):
            return True
        if item.kind is LineKind.ASSIGNMENT:
            return path in self._above or path in self._tables
        return path in self._tables and item.kind is LineKind.TABLE
