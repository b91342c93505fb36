"""The covers of commands, for the process that owns them: it hears of what appears at such a path.

All commands share one inotify instance, of which a user has few. A command costs some watches as long as
nothing appears; then it gets a guard of its own (`watcher/maskguard.py`), which hears for itself. A guard
that ends leaves its command open, which is then ended.

Standard library only, and loaded only for a command whose plan covers something.
"""

import errno
import os

from holdfast.light import TYPE_CHECKING, Callable, Final, NoReturn, signal
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.plan.covers import MAX_FOLDERS, covers_of, names_of
from holdfast.sandbox.plan.plan import Plan, StepKind
from holdfast.sandbox.watcher import listener

if TYPE_CHECKING:
    from holdfast.sandbox.kernel.dnotify import Dnotify
    from holdfast.sandbox.kernel.inotify import Inotify

WEAKER: Final = "masks"  # the word of a start that is not watched, or not in full


class MaskedCommand:
    """One command: from before it is set up until it has ended."""

    def __init__(self, view: Plan, commands: "MaskedCommands") -> None:
        """Raises OSError."""
        self.covers, self.whole = covers_of(view)
        self.appeared = False  # something did, so that a guard is needed
        self.uncovered = False  # and was not covered: the command is to end
        self.leader = self.guard = 0
        self.folders: set[int] = set()
        self._commands = commands
        self._namespaces: tuple[int, ...] = ()
        self._pins: dict[str, int] = {}
        self._ours, self.theirs = listener.pair()
        try:
            self._before = self._identify()
            for step in view.steps:
                if step.kind is StepKind.PIN:
                    self._pins[step.path] = _hold(step.path)
        except OSError:
            self.close()
            raise

    def _identify(self) -> list[tuple[int, int, int] | None]:
        """What is at each cover, and at each directory on the way to it."""
        paths = dict.fromkeys(os.path.join(*pair) for cover in self.covers for pair in names_of(cover.path))
        last = {cover.path for cover in self.covers}
        return [_identity(path, whole=path in last) for path in paths]

    def has_changed(self) -> bool:
        """Is something else at one of its covers, or on the way there, than before it began?"""
        return self._identify() != self._before

    def begin(self, leader: int) -> None:
        """The process around the command was forked, and has its end of the channel."""
        os.close(self.theirs)
        self.theirs, self.leader = -1, leader
        self._commands.known[leader] = self

    def take(self) -> None:
        """Its namespaces, once the start has been reported; without them nothing can be covered."""
        try:
            self._namespaces = tuple(listener.take(self._ours))
        except OSError:
            self.whole = False

    @property
    def enterable(self) -> bool:
        """Can there be a guard?"""
        return bool(self._namespaces)

    def become_guard(self, parent: int) -> NoReturn:
        """In a fork of the owner's."""
        try:
            signal.set_wakeup_fd(-1)
            from holdfast.sandbox.watcher import maskguard

            users, mounts = self._namespaces
            pinned = {path: fd for path, fd in self._pins.items() if fd >= 0}
            kernel.close_others({users, mounts, *pinned.values()})
            maskguard.become(self.covers, pinned, (users, mounts), parent)
        finally:
            os._exit(1)

    def close(self) -> None:
        """It has ended, or was not started."""
        self._commands.forget(self)
        if self.guard:
            os.kill(self.guard, signal.SIGKILL)  # not reaped yet, or it would not be known
            self.guard = 0
        for fd in (self._ours, self.theirs, *self._namespaces, *self._pins.values()):
            if fd >= 0:
                os.close(fd)
        self._ours, self.theirs, self._namespaces, self._pins = -1, -1, (), {}


class MaskedCommands:
    """All of one owner, which says how a descriptor is awaited and how a command is ended."""

    def __init__(
        self,
        await_: Callable[[int], None],
        end: Callable[[int], None],
        notifier: "Callable[[], Inotify | Dnotify]",
    ) -> None:
        self.known: dict[int, MaskedCommand] = {}  # leader pid -> command
        self._await, self._end = await_, end
        self._notifier = notifier
        self._inotify: Inotify | Dnotify | None = None
        self._awaited: dict[int, dict[bytes, set[MaskedCommand]]] = {}  # directory, name -> whose

    @property
    def fd(self) -> int:
        """What is to be awaited, and then `look` to be called; -1 as long as there is nothing."""
        return -1 if self._inotify is None else self._inotify.fd

    # --- one command

    def begin(self, view: Plan) -> MaskedCommand:
        """Hear of what appears where this plan covers something, before it does. Raises OSError."""
        command = MaskedCommand(view, self)
        try:
            if self._inotify is None:
                self._inotify = self._notifier()
                if self._inotify.fd >= 0:
                    self._await(self._inotify.fd)
        except OSError:
            command.whole = False  # no instance is left; the start says so
        else:
            self._watch(command, self._inotify)
        return command

    def _watch(self, command: MaskedCommand, inotify: "Inotify | Dnotify") -> None:
        numbers: dict[str, int] = {}
        for cover in command.covers:
            for folder, name in names_of(cover.path):
                number = numbers.get(folder)
                if number is None:
                    try:
                        if len(numbers) >= MAX_FOLDERS:
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                        number = numbers[folder] = inotify.watch(folder)
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

    def enter(self, leader: int) -> tuple[str, ...]:
        """The command runs: from now on it can have a guard. The word of what is weaker, if it is."""
        command = self.known.get(leader)
        if command is None:
            return ()
        command.take()
        self._guard(command)
        return () if command.whole else (WEAKER,)

    def forget(self, command: MaskedCommand) -> None:
        """No more about this one."""
        for number in command.folders:
            names = self._awaited.get(number, {})
            for name in [name for name, whose in names.items() if command in whose]:
                names[name].discard(command)
                if not names[name]:
                    del names[name]
            if not names and self._awaited.pop(number, None) is not None and self._inotify is not None:
                self._inotify.leave(number)
        command.folders = set()

    # --- what happens

    def look(self) -> None:
        """Something appeared: whoever has covers there gets a guard."""
        if self._inotify is None:
            return
        names, more = self._inotify.read()
        found: set[MaskedCommand] = set()
        for number, name in names:
            found |= self._awaited.get(number, {}).get(name, set())
        if more:
            all_ = {one for awaited in self._awaited.values() for whose in awaited.values() for one in whose}
            found |= {one for one in all_ if one.has_changed()}
        for command in found:
            command.appeared = True
            self._guard(command)

    def _guard(self, command: MaskedCommand) -> None:
        if not command.appeared or command.guard or not command.enterable:
            return
        owner = os.getpid()
        try:
            command.guard = os.fork()
        except OSError:
            self._give_up(command)
            return
        if not command.guard:
            command.become_guard(owner)
        self.forget(command)

    def _give_up(self, command: MaskedCommand) -> None:
        command.uncovered = True
        self._end(command.leader)

    def on_died(self, pid: int) -> str:
        """A child was reaped, perhaps a command or a guard. Why a command was ended, for its event."""
        command = self.known.pop(pid, None)
        if command is None:
            for other in self.known.values():
                if other.guard == pid:
                    other.guard = 0
                    self._give_up(other)
            return ""
        command.close()
        if not command.uncovered:
            return ""
        from holdfast.sandbox import limits

        return limits.encode_reached(limits.UNCOVERED)


def _identity(path: str, *, whole: bool) -> tuple[int, int, int] | None:
    """A number is given again to another file, but not with the same time of change."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns if whole else 0


def _hold(path: str) -> int:
    try:
        return kernel.open_path(path)
    except OSError:
        return -1  # then what is there when it is looked at is not what was pinned
