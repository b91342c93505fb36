"""Where a task is worked on: made outside the sandbox, kept between runs, and removed with its task.

    HOME/board/TASK        a scratch directory, or a git worktree on the branch holdfast/TASK
    HOME/board/TASK.json   what it is, and the commit that the work began from

The record is written first: whoever is killed in between finds out from it what to make.
"""

import asyncio
import contextlib
import errno
import fnmatch
import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from holdfast.board.rules.rows import Task, WorkspaceKind
from holdfast.board.rules.transitions import Status
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.rules import manifest
from holdfast.dispatch.run import changes
from holdfast.errors import NotFound, OperationFailed, UsageError
from holdfast.local.atomicfile import open_folder, replace_file, write_below
from holdfast.local.lock import wait_for_lock

SWEEP_S: Final = 30.0  # between sweeps; nobody waits for one
GIT_S: Final = 120.0  # a checkout of a large repository on a busy disk
MAX_SAID: Final = 300  # characters of git's own words in an error
MAX_COPIED: Final = 100  # files; a rule that means more means a build, which is for `setup`
MAX_BYTES: Final = 16 << 20  # of all of them
MAX_LISTED: Final = 20_000  # names in the directories that the rules lead through
LEFT_OUT: Final = frozenset({".git", ".holdfast"})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_HIDDEN: Final = ".copy"  # below .holdfast: half a file is never seen


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept about a workspace."""

    task: str
    kind: WorkspaceKind
    repository: str = ""
    branch: str = ""
    base: str = ""
    copied: tuple[str, ...] = ()  # from the repository, by rule: no work of anybody's
    kept: bool = False  # although its task is archived: there is work in it that is nowhere else
    schema: int = 1


@dataclass(frozen=True, slots=True)
class Workspace:
    """`base` is the commit that the work began from, if it is a git tree of ours."""

    path: Path
    kind: WorkspaceKind
    base: str = ""
    copied: tuple[str, ...] = ()


def prepare(home: Path, task: Task, copy: Sequence[str] = ()) -> Workspace:
    """The workspace of a task, which is made if it is not there.

    `copy` are patterns of files that a worktree gets from its repository where it lacks them.

    Raises:
        UsageError, NotFound: the task names a place that cannot be one.
        OperationFailed: it cannot be made.
    """
    if task.workspace_kind is WorkspaceKind.DIR:
        return Workspace(_directory(home, task.workspace), task.workspace_kind)
    path = folder(home) / task.id
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = _record(home, task)
        if task.workspace_kind is WorkspaceKind.SCRATCH:
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise OperationFailed(f"cannot make {path}: {exc.strerror}") from None
    if task.workspace_kind is WorkspaceKind.WORKTREE and not path.is_dir():
        _check_out(made, path)
    if task.workspace_kind is WorkspaceKind.WORKTREE and copy:
        made = _with_copies(home, made, path, copy)
    return Workspace(path, task.workspace_kind, made.base, made.copied)


def known(home: Path, task: Task) -> Workspace:
    """Where the workspace of a task is, made or not."""
    if task.workspace_kind is WorkspaceKind.DIR:
        return Workspace(Path(os.path.realpath(task.workspace)), task.workspace_kind)
    made = _read(home, task.id)
    path = folder(home) / task.id
    return Workspace(path, task.workspace_kind, *((made.base, made.copied) if made else ()))


def folder(home: Path) -> Path:
    return home / "board"


def put(workspace: Path, data: bytes, *names: str) -> None:
    """A file in its `.holdfast`, whole; whatever a worker of an earlier run left there is not followed.

    Raises:
        OperationFailed: it cannot be written.
    """
    try:
        write_below(workspace, (".holdfast", *names), data)
    except OSError as exc:
        raise OperationFailed(f"cannot write {names[-1]} into {workspace}: {exc.strerror}") from None


def absent(workspace: Path, names: Sequence[str]) -> list[str]:
    """Those of these paths that are not in it; a link that stays in it may lead there."""
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


def _record(home: Path, task: Task) -> Made:
    there = _read(home, task.id)
    if there is not None:
        return there
    made = Made(task=task.id, kind=task.workspace_kind)
    if task.workspace_kind is WorkspaceKind.WORKTREE:
        if not os.path.isabs(task.workspace):
            raise UsageError(f"the repository `{task.workspace}` is not an absolute path")
        base = _git(task.workspace, "rev-parse", "--verify", "HEAD^{commit}").strip()
        made = Made(
            task=task.id, kind=made.kind, repository=task.workspace, branch=f"holdfast/{task.id}", base=base
        )
    write(home, made)
    return made


def _read(home: Path, task: str) -> Made | None:
    try:
        return msgspec.json.decode((folder(home) / f"{task}.json").read_bytes(), type=Made)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write(home: Path, made: Made) -> None:
    """Replace a record, whole."""
    replace_file(folder(home) / f"{made.task}.json", msgspec.json.encode(made))


def records(home: Path) -> list[Made]:
    """Of all workspaces that are ours; one that cannot be read is left alone."""
    found = []
    for place in sorted(folder(home).glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(place.read_bytes(), type=Made))
    return found


def forget(home: Path, task: str) -> None:
    (folder(home) / f"{task}.json").unlink(missing_ok=True)


def give_back(made: Made, path: Path) -> None:
    """Remove a worktree in which nothing has changed, and its branch.

    Raises:
        OperationFailed: git does not do it.
    """
    with _alone(made.repository):
        _git(made.repository, "worktree", "remove", "--force", str(path))
        _git(made.repository, "branch", "--quiet", "-D", made.branch)


def _check_out(made: Made, path: Path) -> None:
    with _alone(made.repository):
        _git(made.repository, "worktree", "prune")
        known = _git(made.repository, "branch", "--list", made.branch).strip()
        words = [str(path), made.branch] if known else ["-b", made.branch, str(path), made.base]
        _git(made.repository, "worktree", "add", "--quiet", *words)


@contextlib.contextmanager
def _alone(repository: str) -> Iterator[None]:
    """Of all dispatchers on this host: one git fails over the worktree that another is just making.

    Raises:
        OperationFailed: others are at it for too long.
    """
    shared = _git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    try:
        fd = os.open(shared, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise OperationFailed(f"cannot open {shared}: {exc.strerror}") from None
    try:
        with contextlib.suppress(OSError):  # a file system without locks: whoever collides tries again later
            if not wait_for_lock(fd, within_s=GIT_S):
                raise OperationFailed(f"others make worktrees of {repository} for more than {GIT_S:.0f} s")
        yield
    finally:
        os.close(fd)


def _with_copies(home: Path, made: Made, path: Path, patterns: Sequence[str]) -> Made:
    top = Path(_git(made.repository, "rev-parse", "--show-toplevel").removesuffix("\n"))
    names = missing_copies(top, path, patterns)
    if names:  # written down before they are there: a kill in between makes no work of them
        made = msgspec.structs.replace(made, copied=tuple(dict.fromkeys([*made.copied, *names])))
        write(home, made)
        copy_files(top, path, names)
    return made


def _git(repository: str, *words: str) -> str:
    """Git on a repository of the user's own, before any worker has been there. No hook runs."""
    argv = ["git", "-C", repository, "-c", "core.hooksPath=/dev/null", *words]
    try:
        done = subprocess.run(  # noqa: S603 - git, and no shell
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_S,
            check=False,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": os.environ.get("HOME", "/"),
                "LC_ALL": "C",
            },
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise OperationFailed(f"git {words[0]} does not work: {type(exc).__name__}") from None
    if done.returncode:
        raise OperationFailed(f"git {words[0]} in {repository}: {done.stderr.strip()[-MAX_SAID:]}")
    return done.stdout


def missing_copies(repository: Path, worktree: Path, patterns: Sequence[str]) -> list[str]:
    """Files that git does not keep: what the rules name and the worktree lacks, as relative paths.

    Both sides are walked by descriptor, and no link is followed on either: what a rule names lies in the
    repository, and what is written lies in the worktree.

    Raises:
        OperationFailed: that is more than is copied, or the repository cannot be read.
    """
    found: set[str] = set()
    listed = [0]
    try:
        with open_folder(str(repository)) as top:
            for pattern in patterns:
                found |= set(_match(top, pattern.split("/"), "", listed))
    except OSError as exc:
        raise OperationFailed(f"cannot read {repository}: {exc.strerror}") from None
    names = sorted(name for name in found if not os.path.lexists(worktree / name))
    if len(names) > MAX_COPIED:
        raise OperationFailed(f"`copy` names {len(names)} files", remedy=f"at most {MAX_COPIED} are copied")
    return names


def copy_files(repository: Path, worktree: Path, names: Sequence[str]) -> None:
    """Copy these, except what is there by now, and what only a link leads to. Nothing is overwritten.

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
    """How many bytes; none of what is there already."""
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
            if exc.errno in (errno.ENOTDIR, errno.ELOOP):  # what lies behind a link is not the worktree's
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
    """A directory, which is made if there is nothing."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=above)
    with open_folder(name, above) as fd:
        yield fd


log = logging.getLogger(__name__)


async def sweep(context: DispatchContext) -> None:
    """Remove the workspaces of archived tasks, which is an event each; work that is nowhere else stays.

    Raises:
        HoldfastError: store or exec server do not answer; the rest is for the next time.
    """
    for made in await asyncio.to_thread(records, context.home):
        if made.kept:
            continue
        try:
            task = await context.store.ask(Store.task, made.task)
        except NotFound:  # of another board
            continue
        if task.status is Status.ARCHIVED:
            await _remove_workspace(context, task, made)


async def _remove_workspace(context: DispatchContext, task: Task, made: Made) -> None:
    path = folder(context.home) / task.id
    listed = (
        sorted((await asyncio.to_thread(changes.look, path)).entries)[: manifest.MAX_LISTED]
        if path.is_dir()
        else []
    )
    try:
        if made.kind is WorkspaceKind.WORKTREE and path.is_dir():
            search = context.environ.get("PATH", "/usr/bin:/bin")
            changed = await changes.since_commit(context.home, path, made.base, search, made.copied)
            if changed.count:
                await _log_event(context, task, "workspace_kept", list(changed.paths))
                write(context.home, msgspec.structs.replace(made, kept=True))
                return
            await asyncio.to_thread(give_back, made, path)
        elif path.is_dir():
            await asyncio.to_thread(shutil.rmtree, path)
    except (OSError, OperationFailed) as exc:
        log.warning("a workspace could not be removed", extra={"task_id": task.id, "missing": str(exc)[:200]})
        return
    await _log_event(context, task, "workspace_removed", listed)
    forget(context.home, task.id)


async def _log_event(context: DispatchContext, task: Task, kind: str, files: list[str]) -> None:
    """Events are the store's, and so is the clock that dates them."""
    await context.store.ask(
        lambda store: store.database.write(
            lambda tx: tx.log(task.board, kind, context.host, task=task.id, files=files)
        )
    )
