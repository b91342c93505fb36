"""The covers of commands, for the process that owns them: it hears of what appears at such a path.

All commands share one inotify instance, of which a user has few. A command costs some watches as long as
nothing appears; then it gets a guard of its own (`watcher/maskguard.py`), which hears for itself.

Standard library only, and loaded only for a command whose plan covers something.
"""

import errno
import os
import signal
from typing import NoReturn

from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.inotify import Inotify
from holdfast.sandbox.plan.covers import MAX_FOLDERS, covers_of, names_of
from holdfast.sandbox.plan.plan import Plan, StepKind
from holdfast.sandbox.watcher import listener

WEAKER = "masks"  # the word of a start that is not watched, or not in full


class MaskedCommand:
    """One command: from before it is set up until it has ended."""

    def __init__(self, view: Plan) -> None:
        """Raises OSError."""
        self.covers, self.whole = covers_of(view)
        self.appeared = False  # something did, so that a guard is needed
        self.uncovered = False  # and was not covered: the command is to end
        self.guard = 0
        self.folders: set[int] = set()
        self._namespaces: tuple[int, ...] = ()
        self._pins: dict[str, int] = {}
        self._ours, self.theirs = listener.pair()
        for step in view.steps:
            if step.kind is StepKind.PIN:
                self._pins[step.path] = _hold(step.path)

    def give(self) -> None:
        """The process around the command has its end of the channel."""
        os.close(self.theirs)
        self.theirs = -1

    def take(self) -> None:
        """Its namespaces, once the start has been reported; without them nothing can be covered."""
        try:
            self._namespaces = tuple(listener.take(self._ours))
        except OSError:
            self.whole = False

    def become_guard(self, parent: int) -> NoReturn:
        """In a fork of the owner's."""
        signal.set_wakeup_fd(-1)
        from holdfast.sandbox.watcher import broker, maskguard

        users, mounts = self._namespaces
        broker.close_others({users, mounts, *(fd for fd in self._pins.values() if fd >= 0)})
        maskguard.become(
            self.covers, {path: fd for path, fd in self._pins.items() if fd >= 0}, (users, mounts), parent
        )

    @property
    def enterable(self) -> bool:
        """Can there be a guard?"""
        return bool(self._namespaces)

    def close(self) -> None:
        """It has ended, or was not started."""
        if self.guard:
            os.kill(self.guard, signal.SIGKILL)  # not reaped yet, or it would not be known
            self.guard = 0
        for fd in (self._ours, self.theirs, *self._namespaces, *self._pins.values()):
            if fd >= 0:
                os.close(fd)
        self._ours, self.theirs, self._namespaces, self._pins = -1, -1, (), {}


class MaskWatch:
    """The directories on the ways to all covers, and who is interested in which name there."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._inotify = Inotify(blocking=False)
        self._awaited: dict[int, dict[bytes, set[MaskedCommand]]] = {}

    @property
    def fd(self) -> int:
        return self._inotify.fd

    def add(self, command: MaskedCommand) -> None:
        """Hear of what appears where it has covers; it is not `whole` where that cannot be."""
        known: dict[str, int] = {}
        for cover in command.covers:
            for folder, name in names_of(cover.path):
                number = known.get(folder)
                if number is None:
                    try:
                        if len(known) >= MAX_FOLDERS:
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                        number = known[folder] = self._inotify.watch(folder)
                    except OSError as exc:
                        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
                            break  # it is heard of when it appears
                        # Above what is looked at a directory that we may not read is somebody else's.
                        if exc.errno != errno.EACCES or os.path.join(folder, name) == cover.path:
                            command.whole = False
                        continue
                names = self._awaited.setdefault(number, {})
                names.setdefault(os.fsencode(name), set()).add(command)
                command.folders.add(number)

    def read(self) -> set[MaskedCommand]:
        """Commands at whose covers something may have appeared."""
        appeared = self._inotify.read()
        found: set[MaskedCommand] = set()
        for number, name in appeared.names:
            found |= self._awaited.get(number, {}).get(name, set())
        if appeared.all:
            found.update(*(who for names in self._awaited.values() for who in names.values()))
        return found

    def remove(self, command: MaskedCommand) -> None:
        """No more about this one."""
        for number in command.folders:
            names = self._awaited.get(number, {})
            for name in [name for name, who in names.items() if command in who]:
                names[name].discard(command)
                if not names[name]:
                    del names[name]
            if not names and self._awaited.pop(number, None) is not None:
                self._inotify.leave(number)
        command.folders = set()


def _hold(path: str) -> int:
    try:
        return kernel.open_path(path)
    except OSError:
        return -1  # then what is there when it is looked at is not what was pinned
