"""Inspect the file system once: where a bound policy's paths lead, and what exists; create missing grants."""

import errno
import os
import stat

from holdfast.errors import SandboxUnavailable, UsageError, from_os_error
from holdfast.light import Final, Iterable, Iterator, Mapping, NamedTuple
from holdfast.sandbox.plan.planner import Crossing, DiskSnapshot, FoundKind, GitDir, PatternMatch, Sight
from holdfast.sandbox.policy.paths import absolute, is_file_to_make, join, name, parent
from holdfast.sandbox.policy.policy import BoundGlob, BoundPolicy, Where

MAX_LINKS: Final = 40  # as many as the kernel follows
MAX_MATCHES: Final = 8192  # more masks than this would make every start slow
MAX_SCANNED: Final = 1_000_000  # entries; a scan of a whole disk would delay the command for minutes
_MAX_POINTER_BYTES: Final = 8192  # twice the longest path


def locate(cwd: str, workspace_roots: Iterable[str], environ: Mapping[str, str]) -> Where:
    """The meaning of the symbolic places for a run in `cwd` with this environment."""
    return Where(
        cwd=cwd,
        workspace_roots=tuple(workspace_roots),
        tmpdir=environ.get("TMPDIR") or None,
        slash_tmp=os.path.isdir("/tmp"),  # noqa: S108
    )


def make_granted(asked: str) -> None:
    """Create a granted path that does not exist, with access for its owner only.

    A missing path cannot be made writable by itself.

    Raises:
        OSError: it cannot be created; the parent directory of a file must exist.
    """
    if is_file_to_make(asked):
        os.close(os.open(asked, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    else:
        os.makedirs(asked, 0o700, exist_ok=True)


class DiskEntry(NamedTuple):
    """One name on the disk; if there is an errno, the other fields have no meaning."""

    mode: int = 0
    names: int = 1
    target: str | None = None
    errno: int = 0


def look(bound: BoundPolicy, cwd: str | None = None) -> DiskSnapshot:
    """Everything that the plan for `bound` needs; the command starts in `cwd`, or in the policy's directory.

    Raises:
        UsageError: a pattern would scan the whole disk.
        SandboxUnavailable: a pattern matches too much or cannot be searched for.
        OperationFailed: the disk fails.
    """
    return glance(bound, cwd)[0]


def glance(bound: BoundPolicy, cwd: str | None = None) -> tuple[DiskSnapshot, dict[str, DiskEntry] | None]:
    """Like `look`; also return every name on the way, or None if more than names was read.

    As long as these names are `is_unchanged`, another look would give the same result.
    """
    known: dict[str, DiskEntry] = {}
    start = trace(absolute(cwd or bound.cwd, bound.cwd), known).real
    if bound.full_write:
        return DiskSnapshot(start), known
    paths = dict.fromkeys(
        (
            *(rule.path for rule in bound.rules),
            *(rule.protects for rule in bound.rules if rule.protects is not None),
            *(glob.pattern.root for glob in bound.globs),
        )
    )
    sights: dict[str, Sight] = {}
    for path in sorted(paths):  # the paths of one policy share most of their way
        above = sights.get(parent(path))
        straight = above is not None and above.found is FoundKind.DIRECTORY and above.real == parent(path)
        sights[path] = trace(path, known, since=parent(path) if straight else "/")
    pointers = [rule.path for rule in bound.rules if rule.protects is not None and name(rule.path) == ".git"]
    gitdirs = tuple(found for path in pointers for found in _git_directories(path, sights[path]))
    sights |= {gitdir.path: trace(gitdir.path) for gitdir in gitdirs}
    seen = DiskSnapshot(start, sights, tuple(_matches(bound, sights)), gitdirs)
    only_names = not bound.globs and all(sights[path].found is not FoundKind.FILE for path in pointers)
    return seen, known if only_names else None


def is_unchanged(entries: Mapping[str, DiskEntry]) -> bool:
    """Whether every one of these names is still the same. Called before every confined file operation."""
    for path, entry in entries.items():
        if entry.errno == errno.ENOENT:  # most names are missing; os.access avoids the cost of an exception
            if os.access(path, os.F_OK, follow_symlinks=False):
                return False
            continue
        try:
            status = os.lstat(path)
        except OSError as exc:
            if exc.errno != entry.errno:
                return False
            continue
        kind = stat.S_IFMT(status.st_mode)
        if kind != entry.mode or entry.errno:
            return False
        if kind != stat.S_IFDIR and _entry(path) != entry:
            return False
    return True


def _entry(path: str) -> DiskEntry:
    try:
        status = os.lstat(path)
        target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    except OSError as exc:
        return DiskEntry(errno=exc.errno or errno.EIO)
    directory = stat.S_ISDIR(status.st_mode)
    return DiskEntry(stat.S_IFMT(status.st_mode), 1 if directory else status.st_nlink, target)


def trace(path: str, known: dict[str, DiskEntry] | None = None, *, since: str = "/") -> Sight:
    """Follow an absolute path link by link.

    Names in `known` are not read again; up to the directory `since` there is no link.

    Raises:
        UsageError: it goes through too many links.
    """
    known = {} if known is None else known
    real, links = since, list[Crossing]()
    todo = path[len(since) :].split("/")[::-1]
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            real = parent(real)
            continue
        here = join(real, part)
        entry = known.get(here)
        if entry is None:
            entry = known[here] = _entry(here)
        if entry.target is not None:
            links.append(Crossing(here, entry.target))
            if len(links) > MAX_LINKS:
                raise UsageError(f"`{path}` goes through too many symbolic links")
            todo += entry.target.split("/")[::-1]
            real = "/" if entry.target.startswith("/") else real
        elif stat.S_ISDIR(entry.mode):
            real = here
        elif todo or entry.errno:
            found = _why_not(entry.errno) if entry.errno else FoundKind.MISSING
            whole = absolute("/".join([here, *todo[::-1]]), "") if todo else here
            return Sight(whole, found, tuple(links))
        else:
            return Sight(here, FoundKind.FILE, tuple(links), entry.names)
    return Sight(real, FoundKind.DIRECTORY, tuple(links))


def _why_not(code: int) -> FoundKind:
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return FoundKind.MISSING
    if code in (errno.EACCES, errno.EPERM):
        return FoundKind.OUT_OF_SIGHT
    raise from_os_error(OSError(code, os.strerror(code)))


def _git_directories(pointer: str, sight: Sight) -> Iterator[GitDir]:
    """The directories with hooks and settings if `.git` is a file: its own, and its common directory."""
    if sight.found is not FoundKind.FILE:
        return
    text = _first_line(sight.real)
    if text is None or not text.startswith("gitdir:"):
        return
    own = absolute(text.removeprefix("gitdir:").strip() or ".", parent(sight.real))
    yield GitDir(pointer, own)
    common = _first_line(join(own, "commondir"))
    if common:
        yield GitDir(pointer, absolute(common, own))


def _first_line(path: str) -> str | None:
    """The first line of a regular file; None if there is no such file or it cannot be read."""
    try:
        # Non-blocking: it may be a FIFO without a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
            data = os.read(fd, _MAX_POINTER_BYTES) if regular else b""
        finally:
            os.close(fd)
    except OSError:
        return None
    line = os.fsdecode(data.partition(b"\n")[0].rstrip())
    return None if "\0" in line else line


def _matches(bound: BoundPolicy, sights: Mapping[str, Sight]) -> Iterator[PatternMatch]:
    """The current matches of the deny patterns. Patterns with the same root share one scan."""
    by_root: dict[str, list[BoundGlob]] = {}
    for glob in bound.globs:
        if glob.pattern.root == "/" and glob.pattern.tail:
            raise UsageError(
                f"unreadable glob {glob.pattern} cannot be safely expanded; "
                "use a pattern with a non-root directory prefix"
            )
        by_root.setdefault(glob.pattern.root, []).append(glob)
    count = 0
    for root, globs in by_root.items():
        for match in _matches_below(root, sights[root], globs, bound.glob_depth):
            count += 1
            if count > MAX_MATCHES:
                raise SandboxUnavailable(
                    f"the deny patterns below {root} match more than {MAX_MATCHES} paths",
                    remedy="deny the directory that holds them, or use a narrower pattern",
                )
            yield match


def _matches_below(
    root: str, sight: Sight, globs: list[BoundGlob], max_depth: int | None
) -> Iterator[PatternMatch]:
    exact = next((glob for glob in globs if not glob.pattern.tail), None)
    if exact is not None:
        yield PatternMatch(exact, sight.real, sight)
        return
    if sight.found is not FoundKind.DIRECTORY:
        return
    limits = [glob.pattern.max_depth for glob in globs]
    deepest = min((limit for limit in (_largest(limits), max_depth) if limit is not None), default=None)
    scanned = 0
    waiting = [("", sight.real, 1)]
    while waiting:
        below, directory, level = waiting.pop()
        for entry in _entries(directory):
            scanned += 1
            if scanned > MAX_SCANNED:
                raise SandboxUnavailable(
                    f"the deny patterns below {root} would scan more than {MAX_SCANNED} entries",
                    remedy="use a pattern with a deeper directory, or limit the depth of the scan",
                )
            path = f"{below}{entry.name}"
            glob = next((glob for glob in globs if glob.pattern.regex.fullmatch(path)), None)
            if glob is not None:
                yield PatternMatch(glob, entry.path, trace(entry.path))
            elif (deepest is None or level < deepest) and entry.is_dir(follow_symlinks=False):
                waiting.append((f"{path}/", entry.path, level + 1))


def _largest(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


def _entries(directory: str) -> list[os.DirEntry[str]]:
    """Its entries. A directory that we may not read counts as empty, unless the command could change that."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []  # removed meanwhile
    except PermissionError:
        if os.lstat(directory).st_uid != os.geteuid():
            return []
        raise SandboxUnavailable(
            f"cannot search {directory} for what a deny pattern matches",
            remedy=f"make {directory} readable for its owner, or deny it",
        ) from None
    except OSError as exc:
        raise from_os_error(exc) from exc
