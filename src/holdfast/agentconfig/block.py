"""The managed block: owned keys written into a file that the user or other programs own too. Pure module.

Root keys are in blocks at the very top, where no table can absorb them; nested keys are dotted. A table that
the user opened with a header cannot be extended from the root (that is a duplicate key), so its keys are in a
block of their own right below that header. The user's value of an owned key becomes a comment, and `remove`
restores it. A statement of the user is either left alone or taken out whole. An inline table that conflicts
is taken out, and its other keys are moved into our block as dotted keys.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.agentconfig.document import Document, Item, LineKind, Node, Shape, Unparsable, scan
from holdfast.agentconfig.removal import (
    ConfigConflict,
    ConflictKind,
    Edit,
    Intent,
    ReservedName,
    migrate,
    splice,
    strip,
)
from holdfast.agentconfig.settings import (
    BLOCKS,
    PROFILE,
    Key,
    Setting,
    Settings,
    block_of,
    render_block,
    render_key,
    render_record,
    render_value,
    settings,
)

_BLOCK_OF_TABLE: Final = {
    "sandbox_workspace_write": "sandbox",
    "permissions": "sandbox",
    "projects": "trust",
    "features": "features",
    "shell_environment_policy": "environment",
}
MODE: Final = ("sandbox_mode",)
DEFAULT_PROFILE: Final = ("default_permissions",)
APPROVAL: Final = ("approval_policy",)
OLD_PROFILE: Final = ("profile",)
ROOTS: Final = ("sandbox_workspace_write", "writable_roots")

_MODES: Final = ("read-only", "workspace-write", "danger-full-access")
_BUILT_IN: Final = (":read-only", ":workspace", ":danger-full-access")
_LEVELS: Final = {name: level for names in (_MODES, _BUILT_IN) for level, name in enumerate(names)}
_LEVELS_OF_OLD_NAMES: Final = {":danger-no-sandbox": 2}  # 0.126 to 0.130
_LEVEL_OF_OURS: Final = 1  # our own profile writes to a workspace

_WINDOWS_PATH: Final = re.compile(r"(?:\\\\\?\\)?(?:[A-Za-z]:[\\/]|\\\\)")

_REASONS: Final = {
    ConflictKind.REPLACED: "the block decides {}",
    ConflictKind.REWRITTEN: "the block decides inside {} and holds its other keys",
    ConflictKind.RIVAL: "the block speaks the other vocabulary, {} would silence it",
    ConflictKind.PROFILE: "Codex does not start with {}",
    ConflictKind.UNSUPPORTED: "Codex does not start with this {}",
    ConflictKind.LEGACY: "an older program set {}, the block decides it now",
}


@dataclass(frozen=True, slots=True)
class Applied:
    """The new text and how it was made.

    `settings` are the values that are now in force: the given ones, or the user's where those are stricter,
    with the user's writable roots before ours.
    """

    text: str
    conflicts: tuple[ConfigConflict, ...]
    intents: tuple[Intent, ...]
    changed: bool
    settings: Settings


def apply(text: str, settings: Settings, *, config_dir: str) -> Applied:
    """Put these settings in force in this text; applying again changes nothing.

    `config_dir` is the directory of the file, for relative writable roots. A stricter mode of the user is
    kept.

    Raises:
        Unparsable: the text is not TOML.
        ReservedName: the user has a permission profile of our name, and the settings need it.
    """
    stripped = strip(text)
    migrated = migrate(stripped.text)
    document = scan(migrated.text)
    resolution = Resolution(document, settings, config_dir=config_dir, foreign=migrated.foreign)
    written = splice(document.text, [*_blocks(document, resolution), *_comment_out(document, resolution)])
    return Applied(
        text=written,
        conflicts=(*stripped.conflicts, *migrated.conflicts, *resolution.conflicts),
        intents=tuple(resolution.intents),
        changed=written != text,
        settings=resolution.settings,
    )


def _comment_out(document: Document, resolution: "Resolution") -> list[Edit]:
    edits = []
    for item, reason in resolution.out:
        source = document.source(item)
        edits.append((item.start, item.end, render_record(source, reason, _newline(document, item))))
    return edits


def _blocks(document: Document, resolution: "Resolution") -> list[Edit]:
    """Insertions: at the top, and below the headers whose tables must not be opened again."""
    headers: dict[Key, Item] = {}
    for item in document.items:
        if item.kind is LineKind.TABLE:
            headers.setdefault(item.path, item)
    places: dict[Key, dict[str, list[str]]] = {}
    lines = [(item.key, block_of(item.key), render_value(item.value)) for item in resolution.settings.items]
    lines += [(key, _BLOCK_OF_TABLE[key[0]], source) for key, source in resolution.carried]
    for key, name, value in lines:
        place = next((key[:length] for length in range(len(key) - 1, 0, -1) if key[:length] in headers), ())
        body = places.setdefault(place, {}).setdefault(name, [])
        body.append(f"{render_key(key[len(place) :])} = {value}")
    return [_insertion(document, headers.get(place), bodies) for place, bodies in places.items()]


def _insertion(document: Document, header: Item | None, bodies: dict[str, list[str]]) -> Edit:
    newline = _newline(document, header) if header else document.newline
    text = "".join(render_block(name, bodies[name], newline) for name in BLOCKS if name in bodies)
    if header is None:
        follows = len(document.text) > document.top
        return document.top, document.top, text + (newline if follows else "")
    if not document.source(header).endswith("\n"):
        text = newline + text.removesuffix(newline)
    return header.end, header.end, text


def _newline(document: Document, item: Item) -> str:
    source = document.source(item)
    if source.endswith("\n"):
        return "\r\n" if source.endswith("\r\n") else "\n"
    return document.newline


class Resolution:
    """The user's content and the requested settings, reconciled; a `foreign` part was set by another program.

    It holds the items to take out, each with a reason, the values to carry over as written, and the settings
    to write.

    Raises:
        ReservedName: a profile of the user has our name.
        Unparsable: the text has an array of tables where one of our tables belongs.
    """

    def __init__(
        self, document: Document, wish: Settings, *, config_dir: str, foreign: Sequence[tuple[int, int]] = ()
    ) -> None:
        wish = _in_their_spelling(document, wish)
        self.out: list[tuple[Item, str]] = []
        self.carried: list[tuple[Key, str]] = []
        self.conflicts: list[ConfigConflict] = []
        self.intents: list[Intent] = []
        self._document = document
        self._foreign = foreign
        keys = {item.key for item in wish.items}
        self._above = {key[:length] for key in keys for length in range(1, len(key))}
        self._needs_profile = ("permissions", PROFILE) in self._above
        rivals = {MODE, DEFAULT_PROFILE}
        self._rivals = rivals - keys if rivals & keys else set()
        spellings = {twin for key in keys for twin in _twins(document, key)}
        self._away = keys | self._rivals | spellings | {OLD_PROFILE}
        self._read()
        self.settings = self._merge_roots(self._keep_stricter(wish), config_dir)

    def _read(self) -> None:
        gone = False  # whether the header above was taken out; then everything below it goes too
        for item in self._document.items:
            if item.kind in (LineKind.TABLE, LineKind.TABLES):
                self._check_name(item, item.path)
                if item.kind is LineKind.TABLES and item.path in self._above:
                    line = self._document.line(item)
                    raise Unparsable(line, 1, f"{render_key(item.path)} is an array of tables")
                gone = self._is_away(item.path)
                if gone:
                    self._take(item, ConflictKind.REPLACED)
            elif item.kind is LineKind.ASSIGNMENT and item.value is not None:
                self._check_name(item, item.path)
                if gone:
                    self._take(item, ConflictKind.REPLACED)
                else:
                    self._assignment(item, item.value)

    def _keep_stricter(self, wish: Settings) -> Settings:
        """Use the user's mode where it allows less than ours."""
        theirs = self._root_text(DEFAULT_PROFILE) or self._root_text(MODE)  # within one file, Codex's order
        if theirs is None:
            return wish
        level = (_LEVELS | _LEVELS_OF_OLD_NAMES).get(theirs.value if isinstance(theirs.value, str) else "")
        for key, names in ((MODE, _MODES), (DEFAULT_PROFILE, _BUILT_IN)):
            ours = wish.get(*key)
            if isinstance(ours, str) and level is not None and level < _LEVELS.get(ours, _LEVEL_OF_OURS):
                self._note(ConflictKind.STRICTER, key, theirs.line, names[level])
                return wish.replace(key, names[level])
        return wish

    def _merge_roots(self, wish: Settings, config_dir: str) -> Settings:
        """Put the user's writable roots before ours, all absolute."""
        ours = wish.get(*ROOTS)
        if not isinstance(ours, tuple):
            return wish
        roots: dict[str, None] = {}
        for intent in self.intents:
            if intent.key != ROOTS or not isinstance(intent.value, tuple):
                continue
            for root in intent.value:
                if isinstance(root, str):
                    full = absolute(root, config_dir)
                    roots[full] = None
                    if full != root and not _is_absolute(root):
                        self._note(ConflictKind.RELATIVE_ROOT, ROOTS, intent.line, full)
            self._note(ConflictKind.MERGED, ROOTS, intent.line, "kept before ours")
        roots |= dict.fromkeys(absolute(root, config_dir) for root in ours)
        return wish.replace(ROOTS, tuple(roots))

    def _assignment(self, item: Item, value: Node) -> None:
        path = item.path
        if path in self._above:
            if value.shape is Shape.TABLE:
                self._carry(item, path, value)
                self._take(item, ConflictKind.REWRITTEN)
            else:
                self._take(item, ConflictKind.REPLACED)
        elif path == APPROVAL and value.string == "untrusted":
            self._intend(item, path, value)
            self._take(item, ConflictKind.UNSUPPORTED)
        elif self._is_away(path):
            self._intend(item, path, value)
            self._take(item, self._kind(path))

    def _carry(self, item: Item, above: Key, table: Node) -> None:
        for key, value in table.entries:
            path = above + key
            self._check_name(item, path)
            if path in self._above and value.shape is Shape.TABLE:
                self._carry(item, path, value)
            elif path in self._above or self._is_away(path):
                self._intend(item, path, value)
            else:
                self.carried.append((path, self._document.source(value)))

    def _kind(self, path: Key) -> ConflictKind:
        if path == OLD_PROFILE:
            return ConflictKind.PROFILE
        return ConflictKind.RIVAL if path in self._rivals else ConflictKind.REPLACED

    def _is_away(self, path: Key) -> bool:
        """Whether this key, or a table above it, is a value of ours."""
        return any(path[:length] in self._away for length in range(1, len(path) + 1))

    def _is_foreign(self, item: Item) -> bool:
        return any(start <= item.start < end for start, end in self._foreign)

    def _take(self, item: Item, kind: ConflictKind) -> None:
        if self._is_foreign(item):
            kind = ConflictKind.LEGACY
        reason = _REASONS[kind].format(render_key(item.path))
        self.out.append((item, reason))
        self._note(kind, item.path, self._document.line(item), reason)

    def _intend(self, item: Item, path: Key, value: Node) -> None:
        if self._is_foreign(item):
            return
        secret = path[:2] == ("shell_environment_policy", "set")
        plain = None if secret else self._document.plain(value)
        self.intents.append(Intent(path, plain, self._document.line(item)))

    def _note(self, kind: ConflictKind, key: Key, line: int, detail: str) -> None:
        self.conflicts.append(ConfigConflict(kind, key, line, detail))

    def _root_text(self, key: Key) -> Intent | None:
        return next((intent for intent in self.intents if intent.key == key), None)

    def _check_name(self, item: Item, path: Key) -> None:
        if self._needs_profile and path[:2] == ("permissions", PROFILE):
            raise ReservedName(self._document.line(item))


def absolute(path: str, base: str) -> str:
    """Resolve a path as Codex does in its file: against the file's directory, dots by name only."""
    if _is_absolute(path):
        return path
    separator = "\\" if _WINDOWS_PATH.match(base) else "/"
    parts: list[str] = []
    for part in re.split(r"[\\/]" if separator == "\\" else "/", f"{base}{separator}{path}"):
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part not in ("", ".", "..") or not parts:
            parts.append(part)
    return separator.join(parts) if len(parts) > 1 else parts[0] + separator


def _is_absolute(path: str) -> bool:
    """Whether a path is absolute; `~` counts, because Codex expands it itself."""
    return path.startswith(("/", "~")) or _WINDOWS_PATH.match(path) is not None


def _names_of_projects(document: Document) -> Iterator[str]:
    for item in document.items:
        if item.path[:1] != ("projects",):
            continue
        yield from item.path[1:2]
        if item.path == ("projects",) and item.value is not None:
            yield from (key[0] for key, _ in item.value.entries)


def _same_root(one: str, other: str) -> bool:
    """Whether two spellings name the same directory of Windows."""
    if not (_WINDOWS_PATH.match(one) and _WINDOWS_PATH.match(other)):
        return False
    return _folded(one) == _folded(other)


def _folded(path: str) -> str:
    return path.removeprefix("\\\\?\\").replace("\\", "/").rstrip("/").casefold()


def _twins(document: Document, key: Key) -> list[Key]:
    """Other spellings of a project's key in this document."""
    if key[0] != "projects":
        return []
    names = dict.fromkeys(_names_of_projects(document))
    return [("projects", name, *key[2:]) for name in names if name != key[1] and _same_root(name, key[1])]


def _in_their_spelling(document: Document, wish: Settings) -> Settings:
    """The wish with the document's first spelling of each project, so that no second table is made."""
    names = set(_names_of_projects(document))
    chosen: dict[Key, Setting] = {}
    for item in wish.items:
        key = item.key
        if key[0] == "projects" and key[1] not in names:
            key = next(iter(_twins(document, key)), key)
        chosen.setdefault(key, Setting(key, item.value))
    return settings(chosen.values())
