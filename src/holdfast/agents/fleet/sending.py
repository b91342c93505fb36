"""Packs a directory of this machine for another one: a commit of its content, in a git bundle.

We read the files ourselves, by descriptor and without following links. Git gets them as a stream and never
sees the work tree (ADR 15). In a git work tree the new commit is on top of the checked-out one and holds the
uncommitted changes; elsewhere it has no parent. Ignored files (.gitignore), credentials, nested repositories,
and anything that is neither file nor link are left out and listed.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.changes import manifest
from holdfast.agents.changes.changes import TreeDifference, compare_with_commit
from holdfast.agents.changes.git import Git, GitSession, Repository, find_repository, mode_of, read_head
from holdfast.agents.changes.manifest import ManifestEntry
from holdfast.errors import NotFound, UsageError
from holdfast.local.shown import show_name
from holdfast.local.trees import open_below
from holdfast.sandbox.policy.credentials import credentials
from holdfast.sandbox.policy.paths import within

MAX_LOOSE: Final = 64 << 20  # uncommitted bytes: they pass through memory
MAX_BUNDLE: Final = 1 << 30  # bytes of history and files together: a quarter of an hour on a slow line
MAX_LEFT_OUT: Final = 100  # names that are kept
CARRIED: Final = "refs/heads/carried"
WHO: Final = "Holdfast <holdfast@localhost>"
BUNDLE: Final = "carried.bundle"
_NOBODY: Final = "0" * 40


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent: commit `sent`, on `base` if there is one. `below` is the worker's directory in it."""

    top: str
    below: str
    sent: str
    base: str = ""
    repository: list[str] | None = None  # its git directories
    left_out: list[str] = []

    def find_repository(self) -> Repository | None:
        if self.repository is None:
            return None
        folder, shared = self.repository
        return Repository(Path(self.top), Path(folder), Path(shared))


async def pack(git: Git, folder: Path, own: Path, *, alone: bool = False) -> tuple[Carried, Path]:
    """Pack a directory, or the whole work tree that it is in, as a bundle in `own`, a directory of ours.

    `alone`: ignore a work tree that begins above the directory.

    Raises:
        UsageError: it is too much, or git cannot pack it.
        OperationFailed: git fails.
    """
    repository = _find(folder, alone=alone)
    top = folder if repository is None else repository.top
    base = "" if repository is None else read_head(repository)
    if repository is not None and (repository.shared / "shallow").exists():
        raise UsageError(
            f"{top} is a shallow clone, and its history cannot be carried", remedy="git fetch --unshallow"
        )
    if len(base) > len(_NOBODY):
        raise UsageError(f"{top} names its objects by SHA-256, and such a repository is not carried")
    async with git.open(own) as session:
        found, ignored = await compare_with_commit(session, repository, top, base, ())
        if not found.whole:
            raise UsageError(f"{top} has more files than are looked at", remedy="work in a part of it")
        left_out = [
            f"{show_name(path)} (ignored: {held.files} files)" for path, held in _collapse(ignored, found)
        ]
        chosen = {path: entry for path, entry in found.after.items() if path not in ignored}
        secret = credentials(git.user, granted=())
        stream = await asyncio.to_thread(_write_stream, top, base, chosen, found, left_out, secret)
        sent = await _commit(session, repository, base, stream)
        bundle = own / BUNDLE
        await session.on_objects(repository, base or _NOBODY, "bundle", "create", "-q", str(bundle), CARRIED)
    size = os.stat(bundle).st_size
    if size > MAX_BUNDLE:
        raise UsageError(
            f"{top} is {size >> 20} MiB packed, and more than {MAX_BUNDLE >> 20} MiB are not carried",
            remedy="work in a smaller repository, or copy it over with `holdfast cp`",
        )
    where = None if repository is None else [str(repository.folder), str(repository.shared)]
    carried = Carried(
        top=str(top),
        below=_find_below(folder, top),
        sent=sent,
        base=base,
        repository=where,
        left_out=left_out[:MAX_LEFT_OUT],
    )
    return carried, bundle


def _find_below(folder: Path, top: Path) -> str:
    below = os.path.relpath(os.path.realpath(folder), os.path.realpath(top))
    return "" if below == "." else below


def _find(folder: Path, *, alone: bool) -> Repository | None:
    try:
        found = find_repository(str(folder))
        return None if alone and os.path.realpath(found.top) != os.path.realpath(folder) else found
    except (NotFound, UsageError):  # none, or not of our user: then only its files are packed
        return None


def _collapse(ignored: dict[str, int], found: TreeDifference) -> Iterable[tuple[str, manifest.IgnoredFiles]]:
    return sorted(manifest.collapse(ignored, found.files).items())


def _write_stream(
    top: Path,
    base: str,
    chosen: dict[str, ManifestEntry],
    found: TreeDifference,
    left_out: list[str],
    secret: list[str],
) -> bytes:
    """Write one commit as input for `git fast-import`. Skipped files are added to `left_out`.

    Raises:
        UsageError: it is too much.
    """
    parts = [f"commit {CARRIED}\ncommitter {WHO} 0 +0000\n".encode(), _data(b"Carried to another machine\n")]
    if base:
        parts.append(f"from {base}\n".encode())
    size, changed = 0, False
    for path in sorted({*found.before} - {*chosen}):
        parts.append(b"D " + quote(path) + b"\n")
        changed = True
    for path, entry in sorted(chosen.items()):
        if any(within(str(top / path), place) for place in secret):
            left_out.append(f"{show_name(path)} (a credential)")
            continue
        if entry.kind == "link":
            mode, data = "120000", os.fsencode(os.readlink(top / path))
        elif entry.kind == "file" and (read := _read(top, path, MAX_LOOSE - size)) is not None:
            mode, data = read
        else:
            left_out.append(f"{show_name(path)} ({entry.kind})")
            continue
        size += len(data)
        if size > MAX_LOOSE:
            raise UsageError(
                f"more than {MAX_LOOSE >> 20} MiB in {top} are in no commit, and that is not carried",
                remedy="commit it, or name what is not needed in a .gitignore",
            )
        parts += [f"M {mode} inline ".encode(), quote(path), b"\n", _data(data)]
        changed = True
    return b"".join(parts) if changed or not base else b""


def _read(top: Path, path: str, most: int) -> tuple[str, bytes] | None:
    try:
        with open_below(top, path) as file:
            return mode_of(os.fstat(file.fileno())), file.read(most + 1)
    except OSError:
        return None


def _data(data: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(data), data)


def quote(path: str) -> bytes:
    """Quote a path as fast-import expects it."""
    return b'"' + b"".join(_escape(byte) for byte in os.fsencode(path)) + b'"'


def _escape(byte: int) -> bytes:
    return b"\\%03o" % byte if byte < 0x20 or byte in b'"\\' else bytes([byte])


async def _commit(session: GitSession, repository: Repository | None, base: str, stream: bytes) -> str:
    """Return the commit to send: a new one, or the checked-out one if there are no changes."""
    if not stream:
        await session.on_objects(repository, base, "update-ref", CARRIED, base)
        return base
    await session.on_objects(repository, base or _NOBODY, "fast-import", "--quiet", input=stream)
    said = await session.on_objects(repository, base or _NOBODY, "rev-parse", CARRIED)
    return said.decode("ascii").strip()
