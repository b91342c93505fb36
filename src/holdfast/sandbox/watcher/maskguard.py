"""The mask guard: covers a path again after a process outside has replaced what was covered.

The owner of a command forks it when for the first time something appeared at a path that the plan covers.
The guard enters the command's user namespace and mounts, and stays there until the command ends. It watches
every directory on the way to such a path, and covers what appears there: a denied path with a mask, a
protected path with itself, read-only. A denied link is covered together with its target, unless the target
is on another mount, where looking could hang.

Until then the command can access the new file; `docs/security.md` gives the length of this gap. If something
cannot be covered, this process ends, and the command with it.

The command cannot see the guard, which is among the host's processes, nor stop it. The guard has two
privileges, over the command's namespaces alone: to mount, and to look into directories that the command
closed to us.

Standard library only, and little of it: the owner forks it while the gap is open.
"""

import errno
import os
import signal
import stat
from collections.abc import Iterable
from typing import Final, NoReturn

from holdfast.sandbox.kernel import kernel, seccomp
from holdfast.sandbox.kernel.inotify import Inotify
from holdfast.sandbox.kernel.kernel import NO_DEV, NO_SUID, READ_ONLY
from holdfast.sandbox.kernel.view import MASK_SOURCE
from holdfast.sandbox.plan.covers import MAX_FOLDERS, Cover, names_of
from holdfast.sandbox.plan.plan import StepKind

NAME: Final = b"holdfast-masks"  # name in ps
_TRIES: Final = 1000  # against a process that replaces a path faster than it can be covered
_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
# linux/capability.h
_CAP_DAC_READ_SEARCH, _CAP_SYS_ADMIN = 2, 21


class Uncoverable(Exception):
    """The file at a path cannot be covered."""


class Guard:
    """The guard of one command, in its mounts. Every method's OSError or Uncoverable ends the guard."""

    def __init__(self, covers: tuple[Cover, ...], pinned: dict[str, tuple[int, int]]) -> None:
        self._covers, self._pinned = covers, pinned
        self._masks: dict[StepKind, int] = {}
        if not all(cover.read_only for cover in covers):
            for kind in (StepKind.MASK_DIRECTORY, StepKind.MASK_FILE):
                self._masks[kind] = kernel.open_path(f"{MASK_SOURCE}/{kind}")
        self._inotify = Inotify(blocking=True)
        self._awaited: dict[int, dict[bytes, set[Cover]]] = {}

    def tend(self, covers: Iterable[Cover]) -> None:
        """Cover these paths, and watch for new entries there from now on."""
        due = list(covers)
        for cover in due:  # first, because the path is open meanwhile
            self._put(cover)
        for cover in due:
            self._await(cover)
        for cover in due:
            self._put(cover)

    def hear(self) -> set[Cover]:
        """Wait until something appears; return the covers that may be affected."""
        names, more = self._inotify.read()
        if more:
            return set(self._covers)
        due: set[Cover] = set()
        for number, name in names:
            due |= self._awaited.get(number, {}).get(name, set())
        return due

    def _await(self, cover: Cover) -> None:
        if len(self._awaited) > 2 * MAX_FOLDERS:  # most are directories that are long gone
            self._inotify.close()
            self._inotify, self._awaited = Inotify(blocking=True), {}
            for other in self._covers:
                self._await(other)
        for folder, name in names_of(cover.path):
            try:
                number = self._inotify.watch(folder)
            except OSError as exc:
                if exc.errno in _GONE:
                    return
                if exc.errno == errno.EACCES and cover.path != os.path.join(folder, name):
                    continue  # as at the start: another user's, above the watched directory
                raise
            self._awaited.setdefault(number, {}).setdefault(os.fsencode(name), set()).add(cover)

    def _put(self, cover: Cover) -> None:
        for _ in range(_TRIES):
            try:
                if self._is_put(cover):
                    return
            except OSError as exc:
                if exc.errno not in _GONE:  # if gone: it was replaced again while we looked
                    raise
        raise Uncoverable(cover.path)

    def _is_put(self, cover: Cover) -> bool:
        """Whether it was covered already; if not, cover it now."""
        if not all(map(self._is_pinned, cover.pins)):
            return False
        found = _find_uncovered(cover.path)
        if found is None:
            return True
        try:
            return self._cover(cover, found)
        finally:
            os.close(found)

    def _cover(self, cover: Cover, found: int) -> bool:
        mode = os.fstat(found).st_mode
        if cover.read_only:
            if stat.S_ISLNK(mode):
                raise Uncoverable(cover.path)  # a link: whether its target can be written is unknown
            if os.fstatvfs(found).f_flag & os.ST_RDONLY:
                return True
            _put_copy(found, found, READ_ONLY | NO_SUID | NO_DEV)
            return False
        link = os.readlink(b"", dir_fd=found) if stat.S_ISLNK(mode) else None
        self._mask(found, mode)
        if link is not None:
            self._mask_led(os.fsdecode(link), cover)
        return False

    def _mask(self, target: int, mode: int) -> None:
        kind = StepKind.MASK_DIRECTORY if stat.S_ISDIR(mode) else StepKind.MASK_FILE
        _put_copy(self._masks[kind], target, 0)

    def _mask_led(self, link: str, cover: Cover) -> None:
        """Mask the target of a denied link too, unless the cover itself lies below the target."""
        above = kernel.open_path(os.path.dirname(cover.path))
        try:
            led = kernel.open_led(link, above)
        except OSError as exc:
            if exc.errno in (*_GONE, errno.ELOOP):
                return  # the link leads nowhere
            raise
        finally:
            os.close(above)
        try:
            there = os.fstat(led)
            around = [os.stat(folder, follow_symlinks=False) for folder, _ in names_of(cover.path)]
            if not any(os.path.samestat(there, folder) for folder in around):
                self._mask(led, there.st_mode)
        finally:
            os.close(led)

    def _is_pinned(self, path: str) -> bool:
        """Whether a directory that the command must not move is pinned; if not, pin it now.

        The directory pinned at the start is a mount point below the view.
        """
        found = _find_uncovered(path)
        if found is None:
            return True
        try:
            there = os.fstat(found)
            if stat.S_ISLNK(there.st_mode):
                raise Uncoverable(path)
            if not stat.S_ISDIR(there.st_mode) or self._pinned.get(path) == (there.st_dev, there.st_ino):
                return True
            _put_copy(found, found, 0)
            return False
        finally:
            os.close(found)


def _find_uncovered(path: str) -> int | None:
    """A descriptor of the file (or link) at a path; None if nothing is there or it is a mount point."""
    above = -1
    try:
        above = kernel.open_path(os.path.dirname(path))
        return kernel.open_uncovered(os.path.basename(path), above)
    except OSError as exc:
        if exc.errno in _GONE or (exc.errno == errno.EXDEV and above >= 0):
            return None
        raise
    finally:
        if above >= 0:
            os.close(above)


def _put_copy(source: int, target: int, attributes: int) -> None:
    tree = kernel.copy_tree(source)
    try:
        if attributes:
            kernel.set_attributes_below(tree, attributes)
        kernel.put_tree(tree, target)
    finally:
        os.close(tree)


def become(
    covers: tuple[Cover, ...], pinned: dict[str, int], namespaces: tuple[int, int], parent: int
) -> NoReturn:
    """Run as the guard in these user and mount namespaces, in a fork of the command's owner.

    `pinned` are descriptors of the directories that the view has pinned.
    """
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() == parent:
            with open("/proc/self/comm", "wb") as name:
                name.write(NAME)
            users, mounts = namespaces
            if not os.path.samestat(os.fstat(users), os.stat("/proc/self/ns/user")):
                kernel.enter(users, kernel.CLONE_NEWUSER)
            kernel.enter(mounts, kernel.CLONE_NEWNS)
            identities = {path: (os.fstat(fd).st_dev, os.fstat(fd).st_ino) for path, fd in pinned.items()}
            guard = Guard(covers, identities)
            kernel.forbid_inspection()
            kernel.keep_capabilities(
                (_CAP_DAC_READ_SEARCH, _CAP_SYS_ADMIN), use=(_CAP_DAC_READ_SEARCH, _CAP_SYS_ADMIN)
            )
            guard.tend(covers)
            kernel.refuse_new_privileges()
            kernel.install_filter(seccomp.no_programs(os.uname().machine))
            while True:
                guard.tend(guard.hear())
    finally:
        os._exit(1)  # for any reason: the owner then ends the command
