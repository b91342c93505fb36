"""The workspace of a task: made outside the sandbox, kept between runs, and removed with its task.

    HOME/board/TASK        a scratch directory, or a git worktree on the branch holdfast/TASK
    HOME/board/TASK.json   what it is, and the commit that the work began from

The record is written first: after a kill, the next process learns from it what to make.
"""

import asyncio
import contextlib
import errno
import fnmatch
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.changes import changes, manifest
from holdfast.agents.changes.git import Git, find_repository
from holdfast.board.rules.rows import Task, WorkspaceKind
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext
from holdfast.errors import HoldfastError, NotFound, OperationFailed, UsageError
from holdfast.local.atomicfile import open_folder, replace_file, write_below
from holdfast.local.shown import is_text
from holdfast.local.trees import remove_tree

SWEEP_S: Final = 30.0  # between sweeps, which nothing depends on
MAX_COPIED: Final = 100  # files; a rule that matches more means a build, which is for `setup`
MAX_BYTES: Final = 16 << 20  # of all of them
MAX_LISTED: Final = 20_000  # names in the directories that the rules lead through
LEFT_OUT: Final = frozenset({".git", ".holdfast"})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_HIDDEN: Final = ".copy"  # temporary name below .holdfast, so that a half-written file is never seen


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a workspace."""

    task: str
    kind: WorkspaceKind
    repository: str = ""
    branch: str = ""
    base: str = ""
    copied: tuple[str, ...] = ()  # from the repository, by rule: not counted as the worker's changes
    kept: bool = False  # although its task is archived, because it contains work that exists nowhere else
    unfinished: bool = False  # a worktree that is still being made; no run has used it
    schema: int = 1


@dataclass(frozen=True, slots=True)
class Workspace:
    """`base` is the commit that the work began from, if it is a git tree of ours."""

    path: Path
    kind: WorkspaceKind
    base: str = ""
    copied: tuple[str, ...] = ()
    repository: str = ""


async def prepare(context: DispatchContext, task: Task, copy: Sequence[str] = ()) -> Workspace:
    """Return the workspace of a task, and make it if it is missing.

    `copy` are patterns of files that a worktree gets from its repository where it lacks them.

    Raises:
        UsageError, NotFound: the task names a place that cannot be one.
        OperationFailed: it cannot be made.
    """
    home = context.home
    if task.workspace_kind is WorkspaceKind.DIR:
        return Workspace(await asyncio.to_thread(_directory, home, task.workspace), task.workspace_kind)
    path = folder(home) / task.id
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = _read(home, task.id) or await _begin(context.git, home, task)
        if task.workspace_kind is WorkspaceKind.SCRATCH:
            path.mkdir(mode=0o700, exist_ok=True)
        else:
            if made.unfinished or not path.is_dir():
                made = await _check_out(context.git, home, made, path)
            if copy:
                made = await asyncio.to_thread(_with_copies, home, made, path, copy)
    except OSError as exc:
        raise OperationFailed(f"cannot make {path}: {exc.strerror}") from None
    return Workspace(path, task.workspace_kind, made.base, made.copied, made.repository)


def locate(home: Path, task: Task) -> Workspace:
    """Where the workspace of a task is, whether it exists or not."""
    if task.workspace_kind is WorkspaceKind.DIR:
        return Workspace(Path(os.path.realpath(task.workspace)), task.workspace_kind)
    made = _read(home, task.id)
    path = folder(home) / task.id
    told = (made.base, made.copied, made.repository) if made else ()
    return Workspace(path, task.workspace_kind, *told)


def folder(home: Path) -> Path:
    return home / "board"


def put(workspace: Path, data: bytes, *names: str) -> None:
    """Write a file into its `.holdfast`, atomically. Links left by earlier workers are not followed.

    Raises:
        OperationFailed: it cannot be written.
    """
    try:
        write_below(workspace, (".holdfast", *names), data)
    except OSError as exc:
        raise OperationFailed(f"cannot write {names[-1]} into {workspace}: {exc.strerror}") from None


def find_absent(workspace: Path, names: Sequence[str]) -> list[str]:
    """Those of these paths that do not exist in it; links are followed only if their target is inside."""
    top = os.path.realpath(workspace)

    def there(name: str) -> bool:
        path = os.path.realpath(os.path.join(top, name))
        return Path(path).is_relative_to(top) and os.path.lexists(path)

    return [name for name in names if "\0" in name or not there(name)]


def _directory(home: Path, name: str) -> Path:
    if not os.path.isabs(name):
        raise UsageError(f"the workspace `{name}` is not an absolute path")
    path = Path(os.path.realpath(name))
    if not path.is_dir():
        raise NotFound(f"the workspace {name} is not a directory")
    own = Path(os.path.realpath(home))
    if path == Path("/") or path.is_relative_to(own):
        raise UsageError(f"{name} cannot be given to a worker", remedy="give a directory of a project")
    return path


async def _begin(git: Git, home: Path, task: Task) -> Made:
    made = Made(task=task.id, kind=task.workspace_kind)
    if task.workspace_kind is WorkspaceKind.WORKTREE:
        repository = await asyncio.to_thread(find_repository, task.workspace)
        async with git.open() as session:
            base = await session.on_repository(repository, "rev-parse", "--verify", "HEAD^{commit}")
        made = Made(
            task=task.id,
            kind=made.kind,
            repository=task.workspace,
            branch=f"holdfast/{task.id}",
            base=base.strip(),
            unfinished=True,
        )
    write(home, made)
    return made


def _read(home: Path, task: str) -> Made | None:
    try:
        return decoding.decode((folder(home) / f"{task}.json").read_bytes(), Made)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write(home: Path, made: Made) -> None:
    """Replace a record atomically."""
    replace_file(folder(home) / f"{made.task}.json", msgspec.json.encode(made))


def records(home: Path) -> list[Made]:
    """The records of all workspaces made here; unreadable ones are skipped."""
    found = []
    for place in sorted(folder(home).glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(decoding.decode(place.read_bytes(), Made))
    return found


def forget(home: Path, task: str) -> None:
    (folder(home) / f"{task}.json").unlink(missing_ok=True)


async def give_back(git: Git, made: Made, path: Path) -> None:
    """Remove a worktree in which nothing has changed, and its branch.

    Raises:
        OperationFailed: git does not do it.
        OSError: something in it cannot be removed.
    """
    repository = await asyncio.to_thread(find_repository, made.repository)
    async with git.alone(repository), git.open() as session:
        await asyncio.to_thread(remove_tree, path)
        await session.on_repository(repository, "worktree", "prune")
        await session.on_repository(repository, "branch", "--quiet", "-D", made.branch)


async def _check_out(git: Git, home: Path, made: Made, path: Path) -> Made:
    """Create the worktree with its branch; git reads its files as objects only, and runs no filter."""
    repository = await asyncio.to_thread(find_repository, made.repository)
    async with git.alone(repository), git.open() as session:
        await asyncio.to_thread(_make_empty, path)
        await session.on_repository(repository, "worktree", "prune")
        known = await session.on_repository(
            repository, "for-each-ref", "--format=%(objectname)", f"refs/heads/{made.branch}"
        )
        words = [str(path), made.branch] if known else ["-b", made.branch, str(path), made.base]
        await session.on_repository(
            repository, "worktree", "add", "--no-checkout", "--quiet", *words, writes=[path]
        )
        own = find_repository(str(path))
        commit = known.strip() or made.base
        await session.on_objects(
            own,
            commit,
            "read-tree",
            "--reset",
            "-u",
            commit,
            tree=path,
            index=own.folder / "index",
            writes=[path, own.folder],
        )
    made = msgspec.structs.replace(made, unfinished=False)
    write(home, made)
    return made


def _make_empty(path: Path) -> None:
    if path.is_dir():  # left by a process that was killed while making it
        remove_tree(path)
    path.mkdir(mode=0o700)


def _with_copies(home: Path, made: Made, path: Path, patterns: Sequence[str]) -> Made:
    top = find_repository(made.repository).top
    names = find_missing(top, path, patterns)
    if names:  # recorded before they are copied: after a kill in between they do not count as work
        made = msgspec.structs.replace(made, copied=tuple(dict.fromkeys([*made.copied, *names])))
        write(home, made)
        copy_files(top, path, names)
    return made


def find_missing(repository: Path, worktree: Path, patterns: Sequence[str]) -> list[str]:
    """Files that git does not keep: those that the rules name and the worktree lacks, as relative paths.

    Both sides are walked by descriptor, and no link is followed on either: what a rule names lies in the
    repository, and what is written lies in the worktree.

    Raises:
        OperationFailed: there are more than may be copied, or the repository cannot be read.
    """
    found: set[str] = set()
    listed = [0]
    try:
        with open_folder(str(repository)) as top:
            for pattern in patterns:
                found |= set(_match(top, pattern.split("/"), "", listed))
    except OSError as exc:
        raise OperationFailed(f"cannot read {repository}: {exc.strerror}") from None
    names = sorted(name for name in found if is_text(name) and not os.path.lexists(worktree / name))
    if len(names) > MAX_COPIED:
        raise OperationFailed(f"`copy` names {len(names)} files", remedy=f"at most {MAX_COPIED} are copied")
    return names


def copy_files(repository: Path, worktree: Path, names: Sequence[str]) -> None:
    """Copy these files.

    Files that exist by now, and those reached only through a link, are left out. Nothing is overwritten.

    Raises:
        OperationFailed: they are too large, or cannot be written.
    """
    left = MAX_BYTES
    for name in names:
        try:
            left -= _copy_file(repository, worktree, name, left)
        except OSError as exc:
            raise OperationFailed(f"cannot copy {name} into {worktree}: {exc.strerror}") from None


def _match(folder: int, parts: Sequence[str], at: str, listed: list[int]) -> Iterator[str]:
    names = os.listdir(folder)
    listed[0] += len(names)
    if listed[0] > MAX_LISTED:
        raise OperationFailed("`copy` leads through too many files", remedy="name directories, not patterns")
    for name in fnmatch.filter(names, parts[0]):
        kind = stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode)
        if name in LEFT_OUT:
            continue
        if len(parts) == 1 and kind == stat.S_IFREG:
            yield at + name
        elif len(parts) > 1 and kind == stat.S_IFDIR:
            with open_folder(name, folder) as inner:
                yield from _match(inner, parts[1:], f"{at}{name}/", listed)


def _copy_file(repository: Path, worktree: Path, name: str, most: int) -> int:
    """Copy one file without overwriting; return the number of bytes."""
    *folders, last = name.split("/")
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(open_folder(str(repository)))
        for folder in folders:
            source = opened.enter_context(open_folder(folder, source))
        with open(os.open(last, _READ, dir_fd=source), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most + 1) if stat.S_ISREG(mode) else b""
        if len(data) > most:
            raise OperationFailed(f"`copy` names more than {MAX_BYTES} bytes", remedy="copy less")
        top = opened.enter_context(open_folder(str(worktree)))
        own = opened.enter_context(_open_or_make(".holdfast", top))
        try:
            place = top
            for folder in folders:
                place = opened.enter_context(_open_or_make(folder, place))
        except OSError as exc:
            if exc.errno in (errno.ENOTDIR, errno.ELOOP):  # a link leads out of the worktree
                return 0
            raise
        with open(os.open(_HIDDEN, _WRITE, 0o600, dir_fd=own), "wb") as written:
            written.write(data)
            os.fchmod(written.fileno(), stat.S_IMODE(mode) & 0o777)
        with contextlib.suppress(FileExistsError):
            os.link(_HIDDEN, last, src_dir_fd=own, dst_dir_fd=place)
        os.unlink(_HIDDEN, dir_fd=own)
    return len(data)


@contextlib.contextmanager
def _open_or_make(name: str, above: int) -> Iterator[int]:
    """Open a directory; make it if it does not exist."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=above)
    with open_folder(name, above) as fd:
        yield fd


log = logging.getLogger(__name__)


async def sweep(context: DispatchContext) -> None:
    """Remove the workspaces of archived tasks and log an event for each; work that exists nowhere else stays.

    Raises:
        HoldfastError: store or exec server do not answer; the rest is done by the next sweep.
    """
    for made in await asyncio.to_thread(records, context.home):
        if made.kept:
            continue
        try:
            task = await context.store.ask(Store.task, made.task)
        except NotFound:  # of another board
            continue
        if task.status is TaskStatus.ARCHIVED:
            try:
                await _remove_workspace(context, task, made)
            except HoldfastError:
                raise
            except Exception:  # an unexpected error here must not keep other workspaces from being removed
                log.exception("a workspace could not be removed", extra={"task_id": task.id})


async def _remove_workspace(context: DispatchContext, task: Task, made: Made) -> None:
    path = folder(context.home) / task.id
    listed = (
        sorted((await asyncio.to_thread(changes.look, path)).entries)[: manifest.MAX_LISTED]
        if path.is_dir()
        else []
    )
    try:
        if made.kind is WorkspaceKind.WORKTREE and path.is_dir():
            repository = await asyncio.to_thread(find_repository, made.repository)
            changed = await changes.since_commit(context.git, repository, path, made.base, made.copied)
            if changed.count:
                await _log_event(context, task, "workspace_kept", list(changed.paths))
                write(context.home, msgspec.structs.replace(made, kept=True))
                return
            await give_back(context.git, made, path)
        elif path.is_dir():
            await asyncio.to_thread(remove_tree, path)
    except (OSError, OperationFailed, UsageError, NotFound) as exc:
        log.warning("a workspace could not be removed", extra={"task_id": task.id, "missing": str(exc)[:200]})
        return
    await _log_event(context, task, "workspace_removed", listed)
    forget(context.home, task.id)


async def _log_event(context: DispatchContext, task: Task, kind: str, files: list[str]) -> None:
    """Log the event through the store, because the store's clock dates events."""
    await context.store.ask(
        lambda store: store.database.write(
            lambda tx: tx.log(task.board, kind, context.host, task=task.id, files=files)
        )
    )
