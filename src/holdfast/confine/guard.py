"""Keep Holdfast's own directories from every command, and protected names that do not exist yet.

Holdfast's directories hold keys, sockets and the store. With these a command could ask a daemon for more
than its policy gives. The files that a run needs lie below one of them, in a directory of its own, and may
be granted there.

A mount cannot protect a name such as `.git` that does not exist yet without leaving litter on the host. So
its absence is recorded before the command runs, and anything that appeared under that name is moved aside
once everything inside has ended. The user who runs git there next does not run the command's hooks.

The parent directory is held open from the plan to the end, and all work is done relative to that descriptor.
So when a command moves the directory away and puts a link to another repository in its place, we rename
nothing in that repository. If a name existed at the plan but was moved aside meanwhile, because another
command had made it, the name counts as absent from then on.

Other sandboxes (codex's) make empty directories of these names as mount points, and remove them at their
end. They do so in directories shared by all users too, such as /tmp. In shared directories an empty
directory therefore counts as absent: it makes no user run anything, and the command hardly made it.
"""

import os
import stat

from holdfast.errors import UsageError
from holdfast.home import find_homes
from holdfast.light import Final, Iterable, Mapping, Sequence, replace, suppress
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Access, At, BoundPolicy, BoundRule, Rule

SHARED: Final = ("board", "workers", "runs")  # many tasks or runs: grant one entry, never all
OURS: Final = ("daemons", "homes")
_ENDINGS: Final = (".key", ".sock", ".lock", ".log", ".json", ".db", ".db-wal", ".db-shm", ".db-journal")
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = ".set-aside-"
_SHARED_MODE: Final = stat.S_ISVTX | stat.S_IWOTH


def hide_homes(
    bound: BoundPolicy, environ: Mapping[str, str] = os.environ, found: Sequence[str] | None = None
) -> BoundPolicy:
    """The policy with this user's homes (or those already `found`) denied.

    Raises:
        UsageError: the policy grants one of them, or Holdfast's own files in it.
    """
    if not bound.restricted:
        return bound
    hidden = find_homes(environ) if found is None else found
    granted = [rule.path for rule in bound.rules if rule.access is not Access.DENY] if hidden else []
    return deny_homes(bound, hidden, {path: os.path.realpath(path) for path in granted})


def deny_homes(bound: BoundPolicy, homes: Sequence[str], real: Mapping[str, str]) -> BoundPolicy:
    """The policy with these directories denied; `real` maps each granted path to its real path.

    Raises:
        UsageError: the policy grants one of them, or Holdfast's own files in it.
    """
    if not bound.restricted or not homes:
        return bound
    for rule in bound.rules:
        if rule.access is not Access.DENY and rule.protects is None:
            _refuse_ours(rule.path, real.get(rule.path, rule.path), homes)
    named = {rule.path for rule in bound.rules if rule.access is Access.DENY}
    denied = (_deny(home) for home in homes if home not in named)
    return replace(bound, rules=(*bound.rules, *denied))


def _deny(home: str) -> BoundRule:
    return BoundRule(home, Access.DENY, Rule(At(home), Access.DENY, skip_missing=True), skip_missing=True)


def _refuse_ours(path: str, real: str, homes: Sequence[str]) -> None:
    for home in homes:
        if within(real, home) and _is_ours(real[len(home) :].strip("/")):
            raise UsageError(
                f"{path} is Holdfast's own, with the keys of its daemons: no confined command ever sees it",
                remedy="work in another directory, or allow only what is needed below it",
            )


def _is_ours(below: str) -> bool:
    """Whether this path below a home is one that no command may have."""
    first, _, rest = below.partition("/")
    if first in SHARED:
        return not rest
    return first in ("", *OURS) or first.endswith(_ENDINGS)


class HeldNames:
    """The protected names of one command. Directories stay open until `close`.

    Call `set_aside` when the command has ended.
    """

    def __init__(self, absent: Iterable[str], present: Iterable[str] = ()) -> None:
        self._folders: dict[str, int] = {}
        self._shared: set[int] = set()  # the descriptors of shared directories
        self._absent: list[tuple[str, int, str]] = []  # path, descriptor of its directory, rest of the path
        self._present: list[tuple[str, int, str, tuple[int, int]]] = []  # the same, and the inode at the time
        for path in absent:
            top, below = self._hold(path)
            if top is not None and not self._is_there(top, below):
                self._absent.append((path, top, below))
        for path in present:
            top, below = self._hold(path)
            if top is not None and "/" not in below:
                with suppress(OSError):  # it may be missing: some policies allow it to be made
                    was = _identify(below, top)
                    if self._is_there(top, below):
                        self._present.append((path, top, below, was))
                    else:
                        self._absent.append((path, top, below))

    def _hold(self, path: str) -> tuple[int | None, str]:
        """Open the nearest existing directory above; return its descriptor and the rest of the path."""
        folder, below = os.path.split(path)
        while True:
            known = self._folders.get(folder)
            if known is not None:
                return known, below
            try:
                self._folders[folder] = top = os.open(folder, _PLACE)
                if os.fstat(top).st_mode & _SHARED_MODE == _SHARED_MODE:
                    self._shared.add(top)
            except FileNotFoundError:
                folder, name = os.path.split(folder)
                below = f"{name}/{below}"
            except OSError:  # a link by now, or not a directory: none of our business
                return None, below

    def close(self) -> None:
        """Close the directories."""
        while self._folders:
            os.close(self._folders.popitem()[1])
        self._absent, self._present = [], []
        self._shared.clear()

    __del__ = close

    def _is_there(self, top: int, below: str) -> bool:
        """Whether the name exists and is more than another sandbox's mount point."""
        if not os.access(below, os.F_OK, dir_fd=top, follow_symlinks=False):
            return False
        return top not in self._shared or not _is_empty_directory(below, top)

    def have_appeared(self) -> bool:
        """Whether there is anything to move aside or to report."""
        return (
            any(self._is_there(top, below) for _, top, below in self._absent)
            or bool(self._find_replaced())
            or any(_changed(below, top, was) for _, top, below, was in self._present)
        )

    def set_aside(self) -> tuple[dict[str, str], dict[str, str]]:
        """Rename what appeared. Return old names to new names, and the reasons for names that remain."""
        moved: dict[str, str] = {}
        failed = self._find_replaced()
        due = list(self._absent)
        due += [
            (path, top, name)
            for path, top, name, was in self._present
            if _changed(name, top, was) and _was_set_aside(name, top, was)
        ]
        for path, top, below in due:
            if self._is_there(top, below):
                try:
                    moved[path] = _rename(path, top, below)
                except FileNotFoundError:  # the end of another command was faster
                    pass
                except OSError as exc:
                    failed[path] = exc.strerror or "it cannot be renamed"
        return moved, failed

    def _find_replaced(self) -> dict[str, str]:
        """Names that exist in a directory which is not the one that was planned with any more."""
        found = {}
        for path, _, below in self._absent:
            folder = path[: -len(below) - 1] or "/"
            if os.access(path, os.F_OK, follow_symlinks=False):
                try:
                    there = _identify(folder, None)
                except OSError:
                    continue
                held = os.fstat(self._folders[folder])
                if there != (held.st_dev, held.st_ino):
                    found[path] = f"{folder} was replaced meanwhile"
        return found


def _identify(name: str, folder: int | None) -> tuple[int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _is_empty_directory(name: str, folder: int) -> bool:
    """Whether it is one; a directory that we may not read counts as not empty."""
    try:
        reading = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        with os.scandir(reading) as entries:
            return next(entries, None) is None
    except OSError:
        return False
    finally:
        os.close(reading)


def _changed(name: str, folder: int, was: tuple[int, int]) -> bool:
    """Whether something else has this name now."""
    try:
        return _identify(name, folder) != was
    except OSError:
        return False


def _was_set_aside(name: str, folder: int, was: tuple[int, int]) -> bool:
    reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = [other for other in os.listdir(reading) if other.startswith(name + _ASIDE)]
    finally:
        os.close(reading)
    return any(not _changed(other, folder, was) for other in names)


def _rename(path: str, top: int, below: str) -> str:
    """Return the new path. Raises OSError if it cannot be renamed."""
    *folders, name = below.split("/")
    opened: list[int] = []
    try:
        above = top
        for number, folder in enumerate(folders):
            if stat.S_ISLNK(os.stat(folder, dir_fd=above, follow_symlinks=False).st_mode):
                name, path = folder, path.removesuffix("/" + "/".join([*folders[number + 1 :], name]))
                break  # a link on a path that did not exist before: the link is what appeared
            above = os.open(folder, _PLACE, dir_fd=above)
            opened.append(above)
        aside = f"{name}{_ASIDE}{os.urandom(4).hex()}"
        try:
            os.rename(name, aside, src_dir_fd=above, dst_dir_fd=above)
        except PermissionError:
            _rename_in_closed(above, name, aside)
        return f"{os.path.dirname(path)}/{aside}"
    finally:
        for fd in opened:
            os.close(fd)


def _rename_in_closed(folder: int, name: str, aside: str) -> None:
    """Rename in a directory that its owner (we are the owner) made read-only."""
    place, mode = f"/proc/self/fd/{folder}", stat.S_IMODE(os.fstat(folder).st_mode)
    os.chmod(place, mode | stat.S_IRWXU)
    try:
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.chmod(place, mode)
