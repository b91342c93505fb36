"""The covers of commands, in their owner: it watches for new entries at covered paths.

All commands share one inotify instance, because a user can have only few. As long as nothing appears, a
command costs some watches. When something appears, the command gets a guard process of its own
(`watcher/maskguard.py`), which then watches by itself. If a guard ends, its command is uncovered and
therefore ended.

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

WEAKER: Final = "masks"  # the word of a start whose covers are not watched, or not all of them


class MaskedCommand:
    """The covers of one command: from before it is set up until it has ended."""

    def __init__(self, view: Plan, commands: "MaskedCommands") -> None:
        """Raises OSError."""
        self.covers, self.whole = covers_of(view)
        self.appeared = False  # something appeared, so a guard is needed
        self.uncovered = False  # and could not be covered: the command must end
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
        """The identity of every cover, and of every directory on the way to it."""
        paths = dict.fromkeys(os.path.join(*pair) for cover in self.covers for pair in names_of(cover.path))
        last = {cover.path for cover in self.covers}
        return [_identity(path, whole=path in last) for path in paths]

    def has_changed(self) -> bool:
        """Whether a cover, or a directory on the way to it, is another file than before the command began."""
        return self._identify() != self._before

    def begin(self, leader: int) -> None:
        """The process around the command was forked, and has its end of the channel."""
        os.close(self.theirs)
        self.theirs, self.leader = -1, leader
        self._commands.known[leader] = self

    def take(self) -> None:
        """Take its namespaces, once the start has been reported; without them nothing can be covered."""
        try:
            self._namespaces = tuple(listener.take(self._ours))
        except OSError:
            self.whole = False

    @property
    def enterable(self) -> bool:
        """Whether a guard can be made."""
        return bool(self._namespaces)

    def become_guard(self, parent: int) -> NoReturn:
        """Run as the guard, in a fork of the owner."""
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
        """The command has ended, or was not started: end the guard and close everything."""
        self._commands.forget(self)
        if self.guard:
            os.kill(self.guard, signal.SIGKILL)  # it is known, so it was not reaped yet
            self.guard = 0
        for fd in (self._ours, self.theirs, *self._namespaces, *self._pins.values()):
            if fd >= 0:
                os.close(fd)
        self._ours, self.theirs, self._namespaces, self._pins = -1, -1, (), {}


class MaskedCommands:
    """The covers of all commands of one owner.

    `await_` registers a descriptor with the owner's loop; `end` ends a command.
    """

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
        self._awaited: dict[int, dict[bytes, set[MaskedCommand]]] = {}  # directory, name -> commands

    @property
    def fd(self) -> int:
        """The descriptor to await before calling `look`; -1 as long as there is none."""
        return -1 if self._inotify is None else self._inotify.fd

    # --- one command

    def begin(self, view: Plan) -> MaskedCommand:
        """Watch for new entries at the paths that this plan covers, before any appear. Raises OSError."""
        command = MaskedCommand(view, self)
        try:
            if self._inotify is None:
                self._inotify = self._notifier()
                if self._inotify.fd >= 0:
                    self._await(self._inotify.fd)
        except OSError:
            command.whole = False  # no inotify instance is left; the start reports it
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
                            break  # the directory's own appearance is noticed
                        # A directory that we may not read, above the watched one, belongs to another user.
                        if exc.errno != errno.EACCES or os.path.join(folder, name) == cover.path:
                            command.whole = False
                        continue
                names = self._awaited.setdefault(number, {})
                names.setdefault(os.fsencode(name), set()).add(command)
                command.folders.add(number)

    def enter(self, leader: int) -> tuple[str, ...]:
        """The command runs and can have a guard now; return the word if not all covers are watched."""
        command = self.known.get(leader)
        if command is None:
            return ()
        command.take()
        self._guard(command)
        return () if command.whole else (WEAKER,)

    def forget(self, command: MaskedCommand) -> None:
        """Stop watching for this command."""
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
        """Something appeared: every command with covers there gets a guard."""
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
        """A child was reaped, perhaps a command or a guard; return why a command was ended, for its event."""
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
    """An inode number can be reused for another file, but not with the same time of change."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns if whole else 0


def _hold(path: str) -> int:
    try:
        return kernel.open_path(path)
    except OSError:
        return -1  # then what is found at a later check is not what was pinned
