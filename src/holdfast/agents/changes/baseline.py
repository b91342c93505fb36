"""Records a directory before a worker starts in it, and finds what is different there later.

The first look delays the start, so it is bounded in seconds as well as in files and bytes; the baseline says
if it is incomplete. It reads the most recently changed files. The rest is read while the worker runs
(`read_rest`), if still unchanged. Content is identified by its git object name. So if the directory is a git
work tree, most old content can be read from the repository's objects and need not be kept. Unchanged files
are recognised by their ctime, which the kernel keeps and no worker can set back.
"""

import asyncio
import functools
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.changes import changes, manifest
from holdfast.agents.changes.changes import Blob, IgnoreRules
from holdfast.agents.changes.git import Git, GitSession, Repository, find_repository, read_head
from holdfast.agents.changes.manifest import Changes, EntryKind, Manifest, ManifestEntry
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.local.shown import show_name
from holdfast.local.trees import TreeEntry, open_below

LOOK_S: Final = 0.5  # for the first look, which a start waits for: fifty thousand files
READ_S: Final = 0.05  # for reading contents before the start: a few thousand files
REST_S: Final = 10.0  # for the other contents, while the worker runs
MAX_LOOKED_AT: Final = 100_000  # files, in either look
MAX_HASHED: Final = 64 << 20  # bytes that are read
RACY_NS: Final = 50_000_000  # a file changed so shortly before the look may change again unnoticed


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was. `oid` names its content and `text` is the content, if they were read."""

    kind: EntryKind
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    oid: str = ""
    text: str | None = None


class KeptRepository(msgspec.Struct, frozen=True):
    """Where the repository is, and the commit that was checked out; "" if there was none or it is unknown."""

    top: str
    folder: str
    shared: str
    commit: str = ""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A directory at one moment, by paths as shown; not `whole` if it held more than was examined."""

    taken_ns: int
    whole: bool
    files: dict[str, KnownFile]
    repository: KeptRepository | None = None

    @property
    def digits(self) -> int:
        return len(self.repository.commit) or 40 if self.repository else 64


def take_baseline(folder: Path, *, look_s: float = LOOK_S, read_s: float = READ_S) -> Baseline:
    """Record everything below a directory, and read as much content as there is time for."""
    taken = Baseline(taken_ns=time.time_ns(), whole=True, files={}, repository=_find_repository(folder))
    until = time.monotonic() + look_s
    walk = changes.walk(folder, MAX_LOOKED_AT)
    in_time = True
    for found in walk:
        entry = changes.describe(found, lambda: None)
        if entry is not None:
            taken.files[show_name(found.path)] = _known(entry, found)
        if time.monotonic() > until:
            in_time = False
            break
    return read_rest(folder, msgspec.structs.replace(taken, whole=walk.whole and in_time), read_s=read_s)


def _known(entry: ManifestEntry, found: TreeEntry) -> KnownFile:
    return KnownFile(
        entry.kind, entry.size, entry.mtime_ns, found.status.st_ctime_ns, entry.mode, text=entry.text
    )


def _find_repository(folder: Path) -> KeptRepository | None:
    try:
        found = find_repository(str(folder))
    except (UsageError, NotFound):
        return None
    return KeptRepository(str(found.top), str(found.folder), str(found.shared), read_head(found))


def read_rest(folder: Path, taken: Baseline, *, read_s: float = REST_S) -> Baseline:
    """Return the baseline with the contents of unread files added, if the files are still unchanged.

    The newest come first, because files changed since a checkout are in no commit.
    """
    until = time.monotonic() + read_s
    files = dict(taken.files)
    left = MAX_HASHED - sum(known.size for known in files.values() if known.oid)
    texts = changes.MAX_TEXTS - sum(known.size for known in files.values() if known.oid and known.text)
    unread = [
        (known.mtime_ns, path) for path, known in files.items() if known.kind == "file" and not known.oid
    ]
    for _, shown in sorted(unread, reverse=True):
        if time.monotonic() > until:
            break
        known = files[shown]
        if known.size > left:
            continue
        left -= known.size
        data = _read_unchanged(folder, shown, known)
        if data is not None:
            text = changes.decode_text(data) if known.size <= texts else None
            texts -= known.size if text is not None else 0
            oid = changes.hash_blob(data, taken.digits)
            files[shown] = msgspec.structs.replace(known, oid=oid, text=text)
    return msgspec.structs.replace(taken, files=files)


def _read_unchanged(folder: Path, shown: str, known: KnownFile) -> bytes | None:
    """Return the content that a file had when it was recorded; None if that is no longer known.

    A file with an escaped name cannot be opened by its shown path; only its size and times are known.
    """
    try:
        with open_below(folder, shown) as file:
            data = file.read(known.size + 1)
            after = os.fstat(file.fileno())
    except OSError:
        return None
    same = (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (
        known.size,
        known.mtime_ns,
        known.ctime_ns,
    )
    return data if same and stat.S_ISREG(after.st_mode) and len(data) == known.size else None


# --- what is different now


@dataclass(slots=True)
class _Difference:
    """Differences by the kernel's path.

    `gone` is by shown path, because only that is known of those files.
    """

    before: dict[str, KnownFile] = field(default_factory=dict)
    after: dict[str, ManifestEntry] = field(default_factory=dict)
    gone: dict[str, KnownFile] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    files: "Counter[str]" = field(default_factory=Counter)
    whole: bool = True


async def since_baseline(git: Git, baseline: Baseline, folder: Path) -> Changes:
    """Return what differs between a directory now and its baseline.

    In a git work tree, files that are in no commit and that a .gitignore names do not count, but are listed.
    If git does not work, they are shown like the others, and the diff says so.
    """
    found = await asyncio.to_thread(_compare, folder, baseline)
    ignored: dict[str, int] = {}
    texts: dict[str, str | None] = {}
    notes: list[str] = []
    if baseline.repository is not None and (found.before or found.after or found.gone):
        try:
            async with git.open() as session:
                ignored = await _find_ignored(session, baseline.repository, folder, found)
                texts = await _read_old(session, baseline.repository, found)
        except HoldfastError as exc:
            notes.append(f"? git cannot be asked what is ignored, and what was there: {exc}")
    before = {show_name(path): _entry_of(known, texts) for path, known in found.before.items()}
    before |= {path: _entry_of(known, texts) for path, known in found.gone.items()}
    for path in ignored:
        before.pop(show_name(path), None)
    kept = {path: entry for path, entry in found.after.items() if path not in ignored}
    after = await asyncio.to_thread(changes.with_texts, folder, kept)
    listing = manifest.collapse(ignored, found.files)
    return manifest.compare(
        Manifest(before, whole=baseline.whole),
        Manifest(after, whole=found.whole),
        {show_name(path): held for path, held in listing.items()},
        notes=notes,
    )


def _compare(folder: Path, baseline: Baseline) -> _Difference:
    difference = _Difference()
    missing = dict(baseline.files)
    walk = changes.walk(folder, MAX_LOOKED_AT)
    for found in walk:
        if not found.is_folder:
            difference.files.update(manifest.folders_above(found.path))
            if found.name == ".gitignore":
                difference.rules.append(found.path)
        known = missing.pop(show_name(found.path), None)
        if known is not None and _is_untouched(found, known, baseline.taken_ns):
            continue
        entry = changes.describe(found, functools.partial(changes.check_readable, found))
        if known is None:
            if entry is None or _was_there(found, baseline):
                continue
            if not baseline.whole:
                known = KnownFile("unseen", 0, 0, 0, 0)
        if known is not None and entry is not None and _holds_the_same(found, entry, known):
            continue
        if known is not None:
            difference.before[found.path] = known
        if entry is not None:
            difference.after[found.path] = entry
    difference.whole = walk.whole
    if walk.whole:  # otherwise they may be among the files that were not reached
        difference.gone = missing
    return difference


def _is_untouched(found: TreeEntry, known: KnownFile, taken_ns: int) -> bool:
    status = found.status
    same = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, stat.S_IMODE(status.st_mode))
    return (
        known.kind == "file"
        and stat.S_ISREG(status.st_mode)
        and same == (known.size, known.mtime_ns, known.ctime_ns, known.mode)
        and known.ctime_ns < taken_ns - RACY_NS
    )


def _was_there(found: TreeEntry, baseline: Baseline) -> bool:
    """Return whether a file missed by an incomplete baseline is unchanged since."""
    return not baseline.whole and found.status.st_ctime_ns < baseline.taken_ns - RACY_NS


def _holds_the_same(found: TreeEntry, entry: ManifestEntry, known: KnownFile) -> bool:
    if (entry.kind, entry.size, entry.mode) != (known.kind, known.size, known.mode):
        return False
    if entry.kind != "file":
        return entry.text == known.text and (entry.kind == "link" or entry.mtime_ns == known.mtime_ns)
    return bool(known.oid) and changes.holds(found, known.oid, known.size)


async def _find_ignored(
    session: GitSession, kept: KeptRepository, folder: Path, found: _Difference
) -> dict[str, int]:
    """Return files in no commit that a .gitignore names, including one above the directory."""
    repository, base = _repository(kept), kept.commit or "0" * 40
    prefix = "" if folder == repository.top else f"{folder.relative_to(repository.top)}/"
    tracked = set[str]()
    if kept.commit:
        listed = await session.on_objects(
            repository, base, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base
        )
        tracked = {os.fsdecode(name) for name in listed.split(b"\0")}
    asked = {
        path: entry.size
        for path, entry in found.after.items()
        if prefix + path not in tracked and entry.kind != "repository"
    }
    above = [f"{place}.gitignore" for place in ["", *manifest.folders_above(prefix)[:-1]]] if prefix else []
    return await changes.find_ignored(
        session, IgnoreRules(repository, base, folder, found.rules, prefix, above), asked
    )


async def _read_old(session: GitSession, kept: KeptRepository, found: _Difference) -> dict[str, str | None]:
    repository, base = _repository(kept), kept.commit or "0" * 40
    wanted = [
        Blob("100644", known.oid, known.size)
        for known in (*found.before.values(), *found.gone.values())
        if known.oid and known.text is None
    ]
    return await changes.read_blobs(session, repository, base, wanted)


def _repository(kept: KeptRepository) -> Repository:
    return Repository(Path(kept.top), Path(kept.folder), Path(kept.shared))


def _entry_of(known: KnownFile, texts: dict[str, str | None]) -> ManifestEntry:
    text = known.text if known.text is not None else texts.get(known.oid) if known.oid else None
    return ManifestEntry(known.kind, known.size, known.mtime_ns, known.mode, text)
