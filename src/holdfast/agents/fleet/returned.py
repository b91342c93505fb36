"""Results from another machine: objects that git has checked, as a diff, as files, or as a branch.

The content comes from a worker and from a machine that may lie, so nothing in it is run, followed or trusted.
Git indexes the objects strictly in a directory of ours, and we create the commit for the tree here. Before we
apply changes, we check every path: files that changed here meanwhile are not overwritten, no link is created
or followed, and nothing is written where git, an agent or a tool would act on it.
"""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.agents.changes import manifest
from holdfast.agents.changes.changes import (
    Blob,
    compare_trees,
    entry_of,
    hash_blob,
    parse_tree,
    read_blobs,
    read_contents,
)
from holdfast.agents.changes.git import Git, GitSession, mode_of
from holdfast.agents.changes.manifest import Changes, Manifest
from holdfast.agents.fleet.sending import WHO, Carried
from holdfast.agents.fleet.there import Gathered
from holdfast.errors import InvalidRequest, OperationFailed, UsageError
from holdfast.local.atomicfile import open_below as open_folder_below
from holdfast.local.atomicfile import replace_at
from holdfast.local.shown import show_name
from holdfast.local.trees import open_below
from holdfast.sandbox.policy.policy import PROTECTED_NAMES

RETURNED: Final = "refs/heads/returned"
MAX_MESSAGE: Final = 200
_LINK: Final = "120000"
# Names that git, agents and tools act on; and `.holdfast`, which holds a worker's reports.
_OBEYED: Final = frozenset({".git", ".holdfast", *PROTECTED_NAMES})
_WHO: Final = dict(zip(("name", "email"), WHO.rstrip(">").split(" <"), strict=True))


@dataclass(frozen=True, slots=True)
class Applied:
    """Paths that were written or removed, and those that were left out, with the reason."""

    paths: tuple[str, ...]
    left_out: tuple[str, ...] = ()


async def receive(git: Git, carried: Carried, own: Path, gathered: Gathered, message: str) -> str:
    """Import what was gathered into our directory; return the commit that we create for it.

    Raises:
        OperationFailed: the objects are invalid.
    """
    repository = carried.find_repository()
    async with git.open(own, strange=True) as session:

        async def ask(*words: str, input: bytes | None = None) -> str:
            said = await session.on_objects(repository, carried.sent, *words, input=input)
            return said.decode("utf-8", "replace").strip()

        await ask("index-pack", "--strict", "--stdin", input=gathered.pack)
        tree = await ask("rev-parse", "--verify", f"{gathered.tree}^{{tree}}")
        who = [word for name, value in _WHO.items() for word in ("-c", f"user.{name}={value}")]
        commit = await ask(*who, "commit-tree", tree, "-p", carried.sent, "-m", message[:MAX_MESSAGE])
        await ask("update-ref", RETURNED, commit)
    return commit


async def compare(git: Git, carried: Carried, own: Path, commit: str) -> Changes:
    """Return what the worker changed, as a patch against what was sent.

    Raises:
        OperationFailed: git fails.
    """
    async with git.open(own, strange=True) as session:
        before, after = await _differ(session, carried, commit)
        blobs = (*before.values(), *after.values())
        texts = await read_blobs(session, carried.find_repository(), carried.sent, blobs)
    old, new = (
        Manifest({show_name(path): entry_of(blob, texts) for path, blob in tree.items()})
        for tree in (before, after)
    )
    return manifest.compare(old, new)


async def _differ(
    session: GitSession, carried: Carried, commit: str
) -> tuple[dict[str, Blob], dict[str, Blob]]:
    repository = carried.find_repository()
    words = ("ls-tree", "-r", "-l", "-z", "--full-tree")
    sent = parse_tree(await session.on_objects(repository, carried.sent, *words, carried.sent))
    return compare_trees(sent, parse_tree(await session.on_objects(repository, carried.sent, *words, commit)))


# --- into the directory that it came from


async def apply(git: Git, carried: Carried, own: Path, commit: str, *, resumed: bool = False) -> Applied:
    """Write what the worker changed into the directory that was carried; all of it, or nothing.

    `resumed`: an earlier attempt may have been killed, so a file that already equals the result does not
    count as changed by others.

    Raises:
        InvalidRequest: something that it changed has changed here too; nothing was written.
        OperationFailed: git fails.
    """
    async with git.open(own, strange=True) as session:
        before, after = await _differ(session, carried, commit)
        plan = _choose(before, after, carried.below)
        wanted = [blob.oid for blob in plan.write.values()]
        repository = carried.find_repository()
        held = await read_contents(session, repository, carried.sent, wanted) if wanted else {}
    return await asyncio.to_thread(_apply, Path(carried.top), before, plan, held, resumed=resumed)


@dataclass(slots=True)
class _Plan:
    write: dict[str, Blob] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def _choose(before: dict[str, Blob], after: dict[str, Blob], below: str) -> _Plan:
    """Choose what may be written: no link, nothing that git, an agent or a tool would act on, and nothing
    outside of the directory that the worker could write."""
    plan = _Plan()
    for path in sorted({*before, *after}):
        names = path.split("/")
        if below and not path.startswith(f"{below}/"):
            plan.left_out.append(f"{show_name(path)} (not in its directory)")
        elif any(name in ("", ".", "..") or name.casefold() in _OBEYED for name in names):
            plan.left_out.append(f"{show_name(path)} (a place that tools obey)")
        elif any(tree[path].mode == _LINK for tree in (before, after) if path in tree):
            plan.left_out.append(f"{show_name(path)} (a link)")
        elif path in after:
            plan.write[path] = after[path]
        else:
            plan.remove.append(path)
    return plan


def _apply(
    top: Path, before: dict[str, Blob], plan: _Plan, held: dict[str, bytes | None], *, resumed: bool
) -> Applied:
    paths = [*plan.remove, *plan.write]
    if resumed:
        plan = _leave_done(top, plan)
    if changed := [
        path for path in (*plan.remove, *plan.write) if not _is_as_sent(top, path, before.get(path), plan)
    ]:
        raise InvalidRequest(
            f"changed here too, and nothing was written: {', '.join(map(show_name, changed[:5]))}"
            + (f" and {len(changed) - 5} more" if len(changed) > 5 else ""),
            remedy="--branch NAME puts it on a branch, to be merged",
        )
    if missing := [path for path, blob in plan.write.items() if held[blob.oid] is None]:
        raise OperationFailed(f"the content of {show_name(missing[0])} did not come back")
    for path in plan.remove:
        *folders, name = path.split("/")
        with open_folder_below(top, tuple(folders)) as above:
            os.unlink(name, dir_fd=above)
        _remove_empty(top, folders)
    for path, blob in plan.write.items():
        *folders, name = path.split("/")
        with open_folder_below(top, tuple(folders), make=True) as above:
            mode = 0o777 if blob.mode == "100755" else 0o666  # the process's umask applies
            replace_at(above, name, held[blob.oid] or b"", durable=False, mode=mode)
    return Applied(tuple(map(show_name, paths)), tuple(plan.left_out))


def _leave_done(top: Path, plan: _Plan) -> _Plan:
    """Return the plan without paths that already equal the result."""

    def done(path: str) -> bool:
        return _is_as_sent(top, path, plan.write.get(path), plan)

    write = {path: blob for path, blob in plan.write.items() if not done(path)}
    return _Plan(write, [path for path in plan.remove if not done(path)], plan.left_out)


def _remove_empty(top: Path, folders: list[str]) -> None:
    """Remove directories that became empty, as git does."""
    for depth in range(len(folders), 0, -1):
        try:
            with open_folder_below(top, tuple(folders[: depth - 1])) as above:
                os.rmdir(folders[depth - 1], dir_fd=above)
        except OSError:
            return


def _is_as_sent(top: Path, path: str, sent: Blob | None, plan: _Plan) -> bool:
    """Return whether the path here is still as it was sent: that file with that content, or nothing."""
    try:
        with open_below(top, path) as file:
            status = os.fstat(file.fileno())
            if sent is None or mode_of(status) != sent.mode:
                return False
            return hash_blob(file.read(sent.size + 1), len(sent.oid)) == sent.oid
    except FileNotFoundError:
        return sent is None
    except NotADirectoryError:  # a file replaced by a directory; the file is checked separately
        return sent is None and any(path.startswith(f"{one}/") for one in plan.remove)
    except OSError:
        return False


# --- onto a branch


async def make_branch(git: Git, carried: Carried, own: Path, commit: str, name: str) -> None:
    """Make a branch at the returned commit in the repository that was carried.

    The branch includes the changes that were uncommitted here when the workspace was sent.

    Raises:
        UsageError: it was not a git work tree, or there is such a branch, or the name is invalid.
        OperationFailed: git fails.
    """
    repository = carried.find_repository()
    if repository is None or not carried.base:
        raise UsageError(f"{carried.top} is no git work tree with a commit", remedy="leave --branch out")
    async with git.open(own, strange=True) as session:
        asked = f"{commit}\n^{carried.base}\n".encode("ascii")
        objects = ("pack-objects", "-q", "--revs", "--stdout")
        pack = await session.on_objects(repository, carried.sent, *objects, input=asked)
        async with git.alone(repository):
            try:
                await session.on_repository(repository, "check-ref-format", "--branch", name)
            except OperationFailed:
                raise UsageError(f"`{name}` is no name for a branch") from None
            await session.on_repository(repository, "index-pack", "--strict", "--stdin", input=pack)
            try:
                await session.on_repository(
                    repository, "update-ref", f"refs/heads/{name}", commit, "0" * len(commit)
                )
            except OperationFailed as exc:
                raise UsageError(f"the branch {name} cannot be made: {exc}") from None
