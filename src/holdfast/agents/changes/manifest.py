"""The content of a directory, and the changes between two looks at it as a patch. Pure module."""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

# --- the differing lines, in time that grows with the number of lines
#
# Lines that occur exactly once on both sides, in the same order, are anchors. The lines between two anchors
# are compared one by one if they are few, and otherwise replaced as a whole. So no text takes long to
# compare, and every difference is in the patch.

MAX_PAIRS: Final = 10_000  # pairs of lines between two anchors that are compared: a millisecond or so
MAX_ALL_PAIRS: Final = 400_000  # pairs compared in one text
AROUND: Final = 3  # unchanged lines that are shown

Hunk = list[tuple[str, int, int, int, int]]


def patch_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the hunks of a unified diff, without its header."""
    for hunk in _hunks(old, new):
        (_, from_old, _, from_new, _), (_, _, to_old, _, to_new) = hunk[0], hunk[-1]
        yield f"@@ -{_range(from_old, to_old)} +{_range(from_new, to_new)} @@\n"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


class _Matched(SequenceMatcher[str]):
    """A SequenceMatcher with matching blocks that we found ourselves."""

    def __init__(self, blocks: list[Match]) -> None:
        super().__init__(None, (), ())
        self._blocks = blocks

    def get_matching_blocks(self) -> list[Match]:
        return self._blocks


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterable[Hunk]:
    return _Matched([*_match(old, new), Match(len(old), len(new), 0)]).get_grouped_opcodes(AROUND)


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def _match(old: Sequence[str], new: Sequence[str]) -> list[Match]:
    """Return runs of equal lines, in the order of both sides."""
    found: list[Match] = []
    left = MAX_ALL_PAIRS
    i = j = 0
    for anchor in (*_anchors(old, new), (len(old), len(new))):
        if anchor[0] < i or anchor[1] < j:  # already part of a previous run
            continue
        head = _count_equal(old, new, i, j, min(anchor[0] - i, anchor[1] - j))
        _add(found, i, j, head)
        i, j = i + head, j + head
        end_old, end_new = anchor
        while end_old > i and end_new > j and old[end_old - 1] == new[end_new - 1]:
            end_old, end_new = end_old - 1, end_new - 1
        pairs = (end_old - i) * (end_new - j)
        if 0 < pairs <= min(MAX_PAIRS, left):
            left -= pairs
            between = SequenceMatcher(None, old[i:end_old], new[j:end_new], autojunk=False)
            for block in between.get_matching_blocks()[:-1]:
                _add(found, i + block.a, j + block.b, block.size)
        more = _count_equal(old, new, *anchor, min(len(old) - anchor[0], len(new) - anchor[1]))
        _add(found, end_old, end_new, anchor[0] - end_old + more)
        i, j = anchor[0] + more, anchor[1] + more
    return found


def _count_equal(old: Sequence[str], new: Sequence[str], i: int, j: int, most: int) -> int:
    return next((at for at in range(most) if old[i + at] != new[j + at]), most)


def _add(found: list[Match], i: int, j: int, size: int) -> None:
    if not size:
        return
    if found and (found[-1].a + found[-1].size, found[-1].b + found[-1].size) == (i, j):
        found[-1] = Match(found[-1].a, found[-1].b, found[-1].size + size)
    else:
        found.append(Match(i, j, size))


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return lines unique on both sides: the longest sequence of them that is increasing on both."""
    once_old, once_new = Counter(old), Counter(new)
    place = {line: number for number, line in enumerate(new) if once_new[line] == 1}
    pairs = [
        (number, place[line]) for number, line in enumerate(old) if once_old[line] == 1 and line in place
    ]
    ends: list[int] = []  # for the best sequence of each length: the place in `new` of its end ...
    last: list[int] = []  # ... and the index of that pair
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect.bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [number]
    row = []
    at = last[-1] if last else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]


# --- a directory at two times

MAX_DIFF: Final = 1 << 20  # bytes of text; the list of paths is kept whole
MAX_LISTED: Final = 1000  # paths by name; beyond that only their number
MAX_PATH: Final = 1000  # characters of each
MAX_BESIDE: Final = 100  # of them are reserved for ignored files and notes
CUT: Final = "\n[the rest of the diff is cut]\n"
NOT_WHOLE: Final = "? more files, or deeper directories, than are looked at: this is not all"
EntryKind: TypeAlias = Literal["file", "link", "other", "repository", "unreadable", "too deep", "unseen"]
# Descriptions of entries that cannot be shown: after the path, and instead of a diff.
_KINDS: Final[Mapping[str, str]] = {
    "other": "neither a file nor a directory",
    "repository": "a nested git repository",
    "unreadable": "cannot be read",
    "too deep": "a directory too deep to be looked into",
    "unseen": "new or changed: it was not recorded before",
}


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file. `text` is its content if that is short text, or the target of a link."""

    kind: EntryKind
    size: int
    mtime_ns: int
    mode: int
    text: str | None = None


_NOTHING: Final = ManifestEntry("file", 0, 0, 0)


class Manifest(msgspec.Struct, frozen=True):
    """A directory at one moment, by paths as shown. Not `whole` if it holds more than was examined."""

    entries: dict[str, ManifestEntry] = {}
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a run: letters (A, M, D) with paths, and the diff, both bounded.

    After them come, uncounted, ignored files (!) and notes such as that not everything was examined (?).
    """

    count: int
    paths: tuple[str, ...] = ()
    diff: str = ""


class IgnoredFiles(NamedTuple):
    files: int
    size: int


def collapse(ignored: Mapping[str, int], files: Mapping[str, int]) -> dict[str, IgnoredFiles]:
    """Group ignored files, with sizes, by the topmost directory that holds nothing else.

    `files` is the number of files below each directory; the names of directories end with a slash.
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
    """Return the directories above a path, topmost first; each ends with a slash."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:number]) + "/" for number in range(1, len(parts) + 1)]


def compare(
    before: Manifest,
    after: Manifest,
    ignored: Mapping[str, IgnoredFiles] | None = None,
    notes: Sequence[str] = (),
) -> Changes:
    """Return the changes as a patch if both sides are known as text, otherwise in words, after `notes`."""
    found = [
        (path, old, new)
        for path, old, new in _pair_up(before.entries, after.entries)
        if new is not None or after.whole  # otherwise it may be among the files that were not reached
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
    """Return whether only the modification time differs."""
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
    """Split as git does: only a line feed ends a line."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
