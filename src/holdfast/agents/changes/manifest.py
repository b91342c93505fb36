"""What is in a directory, and what changed between two looks at it. Pure module."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from holdfast.agents.changes.linediff import patch_lines

MAX_DIFF: Final = 1 << 20  # bytes of text; the list of paths is kept whole
MAX_LISTED: Final = 1000  # paths by name; beyond that only their number
MAX_PATH: Final = 1000  # characters of each
MAX_BESIDE: Final = 100  # of them are kept for what is not shown, where all are asked for
CUT: Final = "\n[the rest of the diff is cut]\n"
NOT_WHOLE: Final = "? more files, or deeper directories, than are looked at: this is not all"
EntryKind: TypeAlias = Literal["file", "link", "other", "repository", "unreadable", "too deep", "unseen"]
# Of what nobody can show: behind its path, and in its place in a diff.
_KINDS: Final[Mapping[str, str]] = {
    "other": "neither a file nor a directory",
    "repository": "a nested git repository",
    "unreadable": "cannot be read",
    "too deep": "a directory too deep to be looked into",
    "unseen": "new or changed: nobody looked at it before",
}


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file. `text` is what it holds if that is text and short, or where a link leads."""

    kind: EntryKind
    size: int
    mtime_ns: int
    mode: int
    text: str | None = None


_NOTHING: Final = ManifestEntry("file", 0, 0, 0)


class Manifest(msgspec.Struct, frozen=True):
    """A directory at one moment, by paths as shown. Not `whole` when it holds more than is looked at."""

    entries: dict[str, ManifestEntry] = {}
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run changed: letters (A, M, D) with paths, and the text of it, both bounded.

    Behind them, and not counted: what is ignored (!) and that not everything was looked at (?).
    """

    count: int
    paths: tuple[str, ...] = ()
    diff: str = ""


class IgnoredFiles(NamedTuple):
    files: int
    size: int


def collapse(ignored: Mapping[str, int], files: Mapping[str, int]) -> dict[str, IgnoredFiles]:
    """Ignored files with their sizes, by the uppermost directory that holds nothing else.

    `files` says how many files there are below each directory, whose names end with a slash.
    """
    below: Counter[str] = Counter()
    above = {path: folders_above(path) for path in ignored}
    for folders in above.values():
        below.update(folders)
    found: dict[str, IgnoredFiles] = {}
    for path, size in ignored.items():
        place = next((folder for folder in above[path] if below[folder] == files.get(folder)), path)
        known = found.get(place, IgnoredFiles(0, 0))
        found[place] = IgnoredFiles(known.files + 1, known.size + size)
    return found


def folders_above(path: str) -> list[str]:
    """The directories that it is in, the uppermost first; each ends with a slash."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:number]) + "/" for number in range(1, len(parts) + 1)]


def compare(
    before: Manifest,
    after: Manifest,
    ignored: Mapping[str, IgnoredFiles] | None = None,
    notes: Sequence[str] = (),
) -> Changes:
    """As a patch where both sides are known as text, otherwise in words; `notes` stand before it."""
    found = [
        (path, old, new)
        for path, old, new in _pair_up(before.entries, after.entries)
        if new is not None or after.whole  # else it may be among what nobody looked at
    ]
    beside = [
        f"! {path[:MAX_PATH]} (ignored: {held.files} files, {held.size} bytes)"
        for path, held in sorted((ignored or {}).items())
    ]
    beside[:0] = notes
    if not (before.whole and after.whole):
        beside.insert(0, NOT_WHOLE)
    parts = [f"# {line}\n" for line in beside[:MAX_LISTED]]
    size = sum(len(part.encode()) for part in parts)
    for path, old, new in found:
        part = _patch(path, old, new)
        size += len(part.encode())
        if size > MAX_DIFF:
            parts.append(CUT)
            break
        parts.append(part)
    letters = [f"{_letter(old, new)} {path[:MAX_PATH]}{_kind(old, new)}" for path, old, new in found]
    beside = beside[: max(MAX_LISTED - len(letters), MAX_BESIDE)]
    return Changes(len(found), (*letters[: MAX_LISTED - len(beside)], *beside), "".join(parts))


def _kind(old: ManifestEntry | None, new: ManifestEntry | None) -> str:
    words = _KINDS.get((new or old or _NOTHING).kind)
    if words is None and old is not None and old.kind == "unseen":
        words = _KINDS[old.kind]
    return f" ({words})" if words else ""


def _pair_up(
    before: Mapping[str, ManifestEntry], after: Mapping[str, ManifestEntry]
) -> Iterator[tuple[str, ManifestEntry | None, ManifestEntry | None]]:
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new and not _is_only_touched(old, new):
            yield path, old, new


def _is_only_touched(old: ManifestEntry | None, new: ManifestEntry | None) -> bool:
    """The same content at another time."""
    if old is None or new is None or old.text is None:
        return False
    return (old.kind, old.mode, old.text) == (new.kind, new.mode, new.text)


def _letter(old: ManifestEntry | None, new: ManifestEntry | None) -> str:
    return "A" if old is None else "D" if new is None else "M"


def _patch(path: str, old: ManifestEntry | None, new: ManifestEntry | None) -> str:
    head = f"diff --git a/{path} b/{path}\n"
    if old is None and new is not None:
        head += f"new file mode {_mode(new)}\n"
    elif old is not None and new is None:
        head += f"deleted file mode {_mode(old)}\n"
    elif old is not None and new is not None and _mode(old) != _mode(new):
        head += f"old mode {_mode(old)}\nnew mode {_mode(new)}\n"
    sides = [side for side in (old, new) if side is not None]
    if strange := [_KINDS[side.kind] for side in sides if side.kind in _KINDS]:
        return f"{head}# {strange[-1]}\n"
    if any(side.text is None for side in sides):
        sizes = " to ".join(f"{side.size} bytes" for side in sides)
        return f"{head}# not text, or too long to be kept: {sizes}\n"
    body = list(patch_lines(_lines(old), _lines(new)))
    if body:
        from_name, to_name = f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null"
        head += f"--- {from_name}\n+++ {to_name}\n"
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in body
    )


def _mode(entry: ManifestEntry) -> str:
    if entry.kind == "link":
        return "120000"
    return "100755" if entry.mode & 0o100 else "100644"


def _lines(entry: ManifestEntry | None) -> list[str]:
    return [] if entry is None or entry.text is None else split_lines(entry.text)


def split_lines(text: str) -> list[str]:
    """As git does: only a line feed ends a line."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
