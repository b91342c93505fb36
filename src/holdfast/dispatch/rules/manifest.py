"""What is in a directory, and what changed between two looks at it. Pure module."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

MAX_DIFF: Final = 1 << 20  # bytes of text; the list of paths is kept whole
MAX_LISTED: Final = 1000  # paths by name; beyond that only their number
MAX_PATH: Final = 1000  # characters of each
CUT: Final = "\n[the rest of the diff is cut]\n"


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file. `text` is what it holds if that is text and short, or where a link leads."""

    kind: str  # file, link or other
    size: int
    mtime_ns: int
    mode: int
    text: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """A directory at one moment. Not `whole` when it holds more than is looked at."""

    entries: dict[str, ManifestEntry] = {}
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run changed: letters (A, M, D) with paths, and the text of it, both bounded."""

    count: int
    paths: tuple[str, ...] = ()
    diff: str = ""


def compare(before: Manifest, after: Manifest) -> Changes:
    """As a patch where both sides are known as text, otherwise in words."""
    found = list(_pair_up(before.entries, after.entries))
    size, parts = 0, []
    for path, old, new in found:
        part = _patch(path, old, new)
        size += len(part.encode())
        if size > MAX_DIFF:
            parts.append(CUT)
            break
        parts.append(part)
    letters = [f"{_letter(old, new)} {path[:MAX_PATH]}" for path, old, new in found]
    return Changes(len(found), tuple(letters[:MAX_LISTED]), "".join(parts))


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
    if any(side.text is None for side in sides):
        sizes = " to ".join(f"{side.size} bytes" for side in sides)
        return f"{head}# not text, or too long to be kept: {sizes}\n"
    lines = difflib.unified_diff(
        _lines(old), _lines(new), f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null"
    )
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _mode(entry: ManifestEntry) -> str:
    if entry.kind == "link":
        return "120000"
    return "100755" if entry.mode & 0o100 else "100644"


def _lines(entry: ManifestEntry | None) -> list[str]:
    return [] if entry is None or entry.text is None else entry.text.splitlines(keepends=True)
