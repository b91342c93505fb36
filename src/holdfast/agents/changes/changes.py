"""Finds what a worker left in its workspace, from outside and without trusting its content.

Directories are read by descriptor and no link is followed. Git provides the content of a commit (`git.py`).
We read the files themselves, so nothing that a worker can write decides what is seen: no index, no attribute,
no exclusion and no nested repository. Entries that cannot be shown are listed with their kind.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.changes import manifest
from holdfast.agents.changes.git import Git, GitSession, Repository, mode_of
from holdfast.agents.changes.manifest import Changes, EntryKind, Manifest, ManifestEntry
from holdfast.errors import OperationFailed
from holdfast.local.shown import show_name
from holdfast.local.trees import TreeEntry, TreeWalk, read_below, read_regular

MAX_ENTRIES: Final = 20_000  # files of one look; beyond it the manifest is not whole
MAX_IN_TREE: Final = 500_000  # files of a worktree; beyond it the result is not whole
MAX_GLANCED: Final = 10_000  # entries of a glance, which then takes tens of milliseconds
MAX_TEXT: Final = 128 * 1024  # bytes of one file that is kept to compare with
MAX_TEXTS: Final = 4 << 20  # bytes of all of them
MAX_RULES: Final = 64 * 1024  # bytes of one .gitignore or .gitattributes
MAX_CONVERTED: Final = 4 << 20  # bytes of a file for which git computes the object that it would store
_GIT: Final = ".git"
_OWN: Final = ".holdfast"
# Rewritten on every run of the same tests.
_BYPRODUCTS: Final = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules"})


def look(folder: Path) -> Manifest:
    """Return everything below a directory except our own files. A missing directory is empty."""
    entries: dict[str, ManifestEntry] = {}
    budget = MAX_TEXTS
    walked = walk(folder, MAX_ENTRIES)
    for found in walked:
        entry = describe(found, functools.partial(_read_text, found, budget))
        if entry is not None:
            budget -= entry.size if entry.text is not None else 0
            entries[show_name(found.path)] = entry
    return Manifest(entries, whole=walked.whole)


def walk(folder: Path, most: int) -> TreeWalk:
    """Walk a tree with byproducts of tools last in each directory.

    So these are what is missed in a tree that is too large.
    """
    return TreeWalk(
        folder,
        most=most,
        enter=lambda path: path != _OWN and os.path.basename(path) != _GIT,
        order=lambda name: (name in _BYPRODUCTS, name),
    )


def glance(folder: Path) -> tuple[int, int] | None:
    """Return the number of files below a directory and their bytes, without byproducts of tools.

    None if there are too many to be checked often.
    """
    left_out = _BYPRODUCTS | {_GIT, _OWN}
    walk = TreeWalk(folder, most=MAX_GLANCED, enter=lambda path: os.path.basename(path) not in left_out)
    sizes = [found.status.st_size for found in walk if not found.is_folder]
    return (len(sizes), sum(sizes)) if walk.whole else None


def describe(found: TreeEntry, read: Callable[[], str | None]) -> ManifestEntry | None:
    """Return the manifest entry for something in a tree; None for entered directories and our own."""
    if found.path in (_GIT, _OWN):  # at the top of the workspace, where no worker changes them
        return None
    kind, mode = stat.S_IFMT(found.status.st_mode), stat.S_IMODE(found.status.st_mode)
    size, changed = found.status.st_size, found.status.st_mtime_ns
    if found.name == _GIT:
        return ManifestEntry("repository", size if kind != stat.S_IFDIR else 0, changed, mode)
    if kind == stat.S_IFDIR:
        return ManifestEntry(found.problem, 0, changed, mode) if found.problem else None
    try:
        if kind == stat.S_IFLNK:
            return ManifestEntry("link", 0, 0, 0, show_name(os.readlink(found.name, dir_fd=found.folder)))
        if kind != stat.S_IFREG:
            return ManifestEntry("other", 0, 0, mode)
        return ManifestEntry("file", size, changed, mode, read())
    except FileNotFoundError:
        return None
    except OSError:
        return ManifestEntry("unreadable", size, changed, mode)


def _read_text(found: TreeEntry, left: int) -> str | None:
    """Return the text of a file, None if it is too long.

    Raises OSError for an unreadable file in any case.
    """
    check_readable(found)
    if found.status.st_size > min(MAX_TEXT, left):
        return None
    return decode_text(read_regular(found.name, found.folder, MAX_TEXT + 1))


def decode_text(data: bytes | None) -> str | None:
    """Return the data as text; None if it is not text, or too long to be kept."""
    if data is None or len(data) > MAX_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# --- against a commit


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a commit."""

    mode: str
    oid: str
    size: int


@dataclass(slots=True)
class TreeDifference:
    """Differences from the commit, by the kernel's path; neither texts nor ignore rules are applied yet."""

    before: dict[str, Blob] = field(default_factory=dict)
    after: dict[str, ManifestEntry] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)  # paths of .gitignore files
    files: "Counter[str]" = field(default_factory=Counter)  # number of files below each directory
    whole: bool = True


async def since_commit(
    git: Git, repository: Repository, workspace: Path, base: str, leave_out: Sequence[str] = ()
) -> Changes:
    """Return what differs between a git tree now and a commit, whether it is committed or not.

    New files that `leave_out` names do not count. New files that a .gitignore names do not count either, but
    are listed.

    Raises:
        OperationFailed: git fails.
        HoldfastError: the exec server does not answer.
    """
    async with git.open() as session:
        found, ignored = await compare_with_commit(session, repository, workspace, base, leave_out)
        texts = await read_blobs(session, repository, base, found.before.values())
    before = {show_name(path): entry_of(blob, texts) for path, blob in found.before.items()}
    kept = {path: _as_git_keeps(entry) for path, entry in found.after.items() if path not in ignored}
    after = await asyncio.to_thread(with_texts, workspace, kept)
    listing = manifest.collapse(ignored, found.files)
    return manifest.compare(
        Manifest(before), Manifest(after, whole=found.whole), {show_name(k): n for k, n in listing.items()}
    )


async def compare_with_commit(
    session: GitSession, repository: Repository | None, workspace: Path, base: str, leave_out: Sequence[str]
) -> tuple[TreeDifference, dict[str, int]]:
    """Return the differences from a commit, and the new files that a .gitignore names.

    Without a `base` everything is new.

    Raises:
        OperationFailed: git fails.
    """
    listed = b""
    if base:
        listed = await session.on_objects(repository, base, "ls-tree", "-r", "-l", "-z", "--full-tree", base)
    blobs = parse_tree(listed)
    found = await asyncio.to_thread(_compare_tree, workspace, blobs, len(base) or 40)
    for name in leave_out:
        if name not in blobs:
            found.after.pop(name, None)
    tree = session.own / "tree"
    tree.mkdir(exist_ok=True)
    await _drop_converted(session, repository, base, workspace, tree, blobs, found)
    new = {
        path: entry.size
        for path, entry in found.after.items()
        if path not in blobs and entry.kind != "repository"
    }
    rules = IgnoreRules(repository, base or "0" * 40, workspace, found.rules)
    return found, await find_ignored(session, rules, new)


def parse_tree(listed: bytes) -> dict[str, Blob]:
    """Parse the output of `ls-tree -r -l -z`, without entries that are not files (submodules)."""
    found = {}
    for line in listed.split(b"\0"):
        head, tab, path = line.partition(b"\t")
        parts = head.split()
        if tab and len(parts) == 4 and parts[1] == b"blob" and parts[3].isdigit():
            found[os.fsdecode(path)] = Blob(parts[0].decode("ascii"), parts[2].decode("ascii"), int(parts[3]))
    return found


def _compare_tree(workspace: Path, blobs: dict[str, Blob], digits: int) -> TreeDifference:
    difference = TreeDifference()
    missing = {path: blob for path, blob in blobs.items() if not path.startswith(f"{_OWN}/")}
    walked = walk(workspace, MAX_IN_TREE)
    for found in walked:
        old = missing.pop(found.path, None)
        if not found.is_folder:
            difference.files.update(manifest.folders_above(found.path))
            if found.name == ".gitignore":
                difference.rules.append(found.path)
        if old is not None and _is_same(found, old, digits):
            continue
        entry = describe(found, functools.partial(check_readable, found))
        if old is not None:
            difference.before[found.path] = old
        if entry is not None:
            difference.after[found.path] = entry
    difference.whole = walked.whole
    if walked.whole:  # otherwise they may be among the files that were not reached
        difference.before |= missing
    return difference


def check_readable(found: TreeEntry) -> None:
    if not os.access(found.name, os.R_OK, dir_fd=found.folder, effective_ids=True, follow_symlinks=False):
        raise PermissionError


def _is_same(found: TreeEntry, old: Blob, digits: int) -> bool:
    """Compare by content; the size is compared first, so no more is read than the commit holds."""
    status = found.status
    if mode_of(status) != old.mode or not (stat.S_ISLNK(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return False
    if stat.S_ISREG(status.st_mode):
        return status.st_size == old.size and holds(found, old.oid, old.size)
    try:
        target = os.fsencode(os.readlink(found.name, dir_fd=found.folder))
    except OSError:
        return False
    return hash_blob(target, digits) == old.oid


def holds(found: TreeEntry, oid: str, size: int) -> bool:
    """Return whether a file has the content with this object name; at most `size` + 1 bytes are read."""
    try:
        data = read_regular(found.name, found.folder, size + 1)
    except OSError:
        return False
    return data is not None and hash_blob(data, len(oid)) == oid


def hash_blob(data: bytes, digits: int) -> str:
    digest = hashlib.sha1 if digits == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data).hexdigest()


async def _drop_converted(
    session: GitSession,
    repository: Repository | None,
    base: str,
    workspace: Path,
    tree: Path,
    blobs: dict[str, Blob],
    found: TreeDifference,
) -> None:
    """Remove files that differ only by the conversions of the commit's attributes: line ends, encodings.

    Attributes in the workspace do not count.
    """
    attributes = [path for path in blobs if os.path.basename(path) == ".gitattributes"]
    asked = [
        path
        for path, blob in found.before.items()
        if (entry := found.after.get(path)) is not None
        and entry.kind == "file"
        and max(entry.size, blob.size) <= MAX_CONVERTED
        and "\n" not in path
        and os.path.basename(path) != ".gitattributes"
    ]
    if not attributes or not asked:
        return
    rules = await read_blobs(session, repository, base, [blobs[path] for path in attributes])
    for path in attributes:
        _copy(tree, path, (rules.get(blobs[path].oid) or "").encode())
    there = await asyncio.to_thread(_copy_all, workspace, tree, asked, MAX_CONVERTED)
    said = await session.on_objects(
        repository, base, "hash-object", "--stdin-paths", input=b"".join(os.fsencode(f"{p}\n") for p in there)
    )
    for path, oid in zip(there, said.decode("ascii").split(), strict=True):
        if oid == found.before[path].oid:
            del found.before[path], found.after[path]


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Where .gitignore files are: `below` or `above` the workspace, which is `prefix` in its repository."""

    repository: Repository | None
    base: str
    workspace: Path
    below: Sequence[str]
    prefix: str = ""
    above: Sequence[str] = ()


async def find_ignored(session: GitSession, rules: IgnoreRules, asked: Mapping[str, int]) -> dict[str, int]:
    """Return which of these files a .gitignore names, with their sizes.

    Git sees copies of the .gitignores.
    """
    if not asked or not (rules.below or rules.above):
        return {}
    tree = session.own / "tree"
    await asyncio.to_thread(_copy_all, rules.workspace, tree / rules.prefix, rules.below, MAX_RULES)
    if rules.repository is not None:
        await asyncio.to_thread(_copy_all, rules.repository.top, tree, rules.above, MAX_RULES)
    start = f"./{rules.prefix}"  # so that no name begins with a colon
    try:
        said = await session.on_objects(
            rules.repository,
            rules.base,
            *("check-ignore", "--no-index", "-z", "--stdin"),
            input=b"".join(os.fsencode(f"{start}{path}\0") for path in asked),
        )
    except OperationFailed:  # also if none is ignored; then all are shown
        return {}
    paths = (os.fsdecode(line).removeprefix(start) for line in said.split(b"\0"))
    return {path: asked[path] for path in paths if path in asked}


def _copy_all(workspace: Path, tree: Path, paths: Iterable[str], most: int) -> list[str]:
    """Copy files of a workspace into a private tree of ours; return those that could be copied."""
    copied = []
    for path in paths:
        with contextlib.suppress(OSError):
            data = read_below(workspace, path, most + 1)
            if data is not None and len(data) <= most:
                _copy(tree, path, data)
                copied.append(path)
    return copied


def _copy(tree: Path, path: str, data: bytes) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_bytes(data)


async def read_blobs(
    session: GitSession, repository: Repository | None, base: str, blobs: Iterable[Blob]
) -> dict[str, str | None]:
    """Return the texts of blobs, within bounds; None for an object that does not match its name."""
    wanted, left = set[str](), MAX_TEXTS
    for blob in blobs:
        if blob.size <= min(MAX_TEXT, left) and blob.oid not in wanted:
            wanted.add(blob.oid)
            left -= blob.size
    if not wanted:
        return {}
    held = await read_contents(session, repository, base, wanted)
    return {oid: None if data is None else decode_text(data) for oid, data in held.items()}


async def read_contents(
    session: GitSession, repository: Repository | None, base: str, oids: Iterable[str]
) -> dict[str, bytes | None]:
    """Return the contents of objects; None for one that is missing or does not match its name.

    Raises:
        OperationFailed: git fails, or it is too much.
    """
    wanted = sorted({*oids})
    said = await session.on_objects(
        repository,
        base,
        "cat-file",
        "--batch",
        input="".join(f"{oid}\n" for oid in wanted).encode("ascii"),
    )
    held: dict[str, bytes | None] = {}
    at = 0
    for oid in wanted:
        end = said.index(b"\n", at)
        head = said[at:end].split()
        size = int(head[2]) if len(head) == 3 else -1  # a missing object has only this line
        data, at = said[end + 1 : end + 1 + max(size, 0)], end + 2 + size
        held[oid] = data if hash_blob(data, len(oid)) == oid else None
    return held


def compare_trees(
    before: Mapping[str, Blob], after: Mapping[str, Blob]
) -> tuple[dict[str, Blob], dict[str, Blob]]:
    """Return the entries that differ between two trees: as they were, and as they are."""
    paths = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    old, new = ({path: tree[path] for path in paths if path in tree} for tree in (before, after))
    return old, new


def entry_of(blob: Blob, texts: dict[str, str | None]) -> ManifestEntry:
    kind: EntryKind = "link" if blob.mode == "120000" else "file"
    mode = 0 if kind == "link" else int(blob.mode[-3:], 8)
    return ManifestEntry(kind, 0 if kind == "link" else blob.size, 0, mode, texts.get(blob.oid))


def _as_git_keeps(entry: ManifestEntry) -> ManifestEntry:
    mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644  # git keeps only the executable bit
    return msgspec.structs.replace(entry, mode=mode) if entry.kind == "file" else entry


def with_texts(workspace: Path, entries: Mapping[str, ManifestEntry]) -> dict[str, ManifestEntry]:
    """Return files of a workspace by shown path, with their content if it is short text."""
    shown: dict[str, ManifestEntry] = {}
    left = MAX_TEXTS
    for path, entry in sorted(entries.items()):
        text = entry.text
        if entry.kind == "file" and entry.size <= min(MAX_TEXT, left):
            with contextlib.suppress(OSError):
                text = decode_text(read_below(workspace, path, MAX_TEXT + 1))
            left -= entry.size
        shown[show_name(path)] = msgspec.structs.replace(entry, text=text)
    return shown
