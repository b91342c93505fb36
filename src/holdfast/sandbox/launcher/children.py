"""The commands that a process started: set up, signalled, reaped, and ended with everything below them.

The owner is the launcher of a server, or `holdfast exec` itself. It has one thread, is a child subreaper, and
alone reaps and signals what it started. Standard library only, and little of it: callers wait for these
imports too. Modules that not every start needs are imported where they are needed.
"""

import errno
import os
import time

from holdfast.light import TYPE_CHECKING, Callable, Final, NamedTuple, NoReturn, Sequence, signal
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import PARENT, SESSION, StageFailed, processes
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.orders import (
    MAX_REPORT,
    ConfinementKind,
    Event,
    Order,
    decode_report,
    is_complete,
)

if TYPE_CHECKING:
    import _socket as socket

    from holdfast.sandbox.kernel.dnotify import Dnotify
    from holdfast.sandbox.kernel.inotify import Inotify
    from holdfast.sandbox.launcher.limited import LimitedCommand
    from holdfast.sandbox.launcher.masked import MaskedCommand, MaskedCommands
    from holdfast.sandbox.launcher.spare import Spare

_SHUTDOWN_S: Final = 5.0  # how long a final kill may take before we give up on unkillable processes
_END: Final = signal.SIGPWR  # same as `landlocked.END`
_EMPTY_S: Final = 0.02  # delay before another attempt to remove a group that a dying process is in
# Our own processes around a command: PID 1 or the keeper; with bubblewrap the supervisor, bwrap, the shim.
_AROUND, _AROUND_BWRAP = 1, 3


class _Group(NamedTuple):
    """What a start made, known by its leader's pid: a process group; on a terminal, a whole session."""

    leader: int
    id: int
    owner: int
    tty: bool
    kept: bool  # the leader ends everything below it when it gets `_END`
    forwards: bool  # other members are bubblewrap's and would die of a signal meant for the command
    bare: bool  # the leader is the command itself, without a process of ours around it

    def signal(self, signum: int) -> bool:
        """Signal every member; return False if none is left. Signal 0 only checks."""
        if self.bare:
            from holdfast.sandbox.backends import confined

            signum = confined.stopping(signum)
        if self.kept and signum == signal.SIGKILL:
            signum = _END  # if it were killed itself, it could not end processes that left its group
        if self.forwards and signum not in (0, signal.SIGKILL):
            _kill(self.leader, signum)
            return True
        reached = _kill_group(self.leader, signum)
        if self.tty and signum in (0, signal.SIGKILL):
            # Job control puts background jobs into groups of their own, which a hang-up does not reach.
            for pid in processes(SESSION, self.leader):
                reached = True
                _kill(pid, signum)
        return reached


def group_of(leader: int, request: Order) -> _Group:
    tty, kept, forwards = (bool(request.flags & kind) for kind in (orders.TTY, orders.LANDLOCK, orders.BWRAP))
    return _Group(leader, request.id, request.owner, tty, kept, forwards, bare=not request.plan)


class _SettingUp(NamedTuple):
    """A confined start; its command does not run yet."""

    group: _Group
    kind: ConfinementKind | None  # of the process around it, if that process is ours
    report: bytes = b""  # the report so far


class Children:
    """The processes that were started. A subclass awaits status pipes and reports events."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._running: dict[int, _Group] = {}  # leader pid -> group; the leader is not reaped yet
        self._lingering: dict[int, _Group] = {}  # leader reaped, but other members are alive
        self._setting_up: dict[int, _SettingUp] = {}  # status pipe -> confined start
        self._channels: dict[int, socket.socket] = {}  # status pipe -> source of listening sockets
        self._limited: dict[int, LimitedCommand] = {}  # leader pid -> its limits
        self._emptying: list[LimitedCommand] = []  # ended, but a process may still be in their groups
        self._look_due = 0.0  # when to check their limits next
        self._brokered: dict[int, _Brokered] = {}  # status pipe -> source of the listener
        self._listeners: dict[int, _Brokered] = {}  # listener of a command, until its first call on a socket
        self._masks: MaskedCommands | None = None  # commands whose plans cover something
        self._spares: dict[ConfinementKind, Spare] = {}
        kernel.adopt_orphans()

    def _report(self, event: Event, fds: Sequence[int] = ()) -> None:
        """Report a start with its listening sockets, or an end; the sockets are closed afterwards."""
        raise NotImplementedError

    def _await(self, fd: int) -> None:
        """Have `_on_readable` called whenever this descriptor is readable."""
        raise NotImplementedError

    def _forget(self, fd: int) -> None:
        """Stop awaiting this descriptor, which is about to be closed."""
        raise NotImplementedError

    def _is_ours(self, fd: int) -> bool:
        """Whether this descriptor is still awaited."""
        masks = -1 if self._masks is None else self._masks.fd
        return fd in self._setting_up or fd in self._listeners or fd == masks

    def _on_readable(self, fd: int) -> None:
        if fd in self._setting_up:
            self._set_up(fd)
        elif self._masks is not None and fd == self._masks.fd:
            self._masks.look()
        else:
            self._fork_broker(fd)

    def _fork_watcher(self, fd: int, request: Order) -> int:
        """Fork a watcher: starting an interpreter for it would take longer than many commands run."""
        from holdfast.sandbox.watcher import watcher

        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            watcher.become(fd)
        self._running[pid] = group_of(pid, request)
        return pid

    def _on_confined(self, kind: ConfinementKind) -> None:
        """Called when a confined start of this kind has succeeded."""

    def _start(self, request: Order, fds: list[int]) -> None:
        try:
            if request.limits and not request.plan:
                request = kept(request)
            if request.plan:
                self._start_confined(request, fds)
                return
            pid = self._spawn_unconfined(request, fds)
        except OSError as exc:
            self._report(Event(orders.STARTED, request.id, 0, exc.errno or errno.EIO))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._running[pid] = group_of(pid, request)
        self._report(Event(orders.STARTED, request.id, pid))

    def _spawn_unconfined(self, request: Order, fds: list[int]) -> int:
        """Start an unconfined command; return its pid. Raises OSError if it cannot be started.

        posix_spawn shares our memory with the child until exec, which is several times faster than a fork
        that copies it. It has no option for the working directory, so we change our own for a moment.
        """
        from holdfast.sandbox.backends import confined

        command = confined.command_of(request, fds)
        os.chdir(request.cwd)
        try:
            return confined.spawn(command)
        finally:
            os.chdir("/")

    def _spawn_confined(
        self,
        kind: ConfinementKind,
        view: plan.Plan,
        request: Order,
        fds: list[int],
        report: int,
        listeners: int,
        masks: int,
        enter: Callable[[], None] | None,
    ) -> int:
        """The pid of the process around the command; a spare is used if there is one and no limit."""
        spare = None if enter else self._spares.pop(kind, None)
        if spare is not None:
            try:
                spare.use(request, fds, status_fd=report, listeners_fd=listeners, masks_fd=masks)
            except OSError:
                pass  # the spare was killed; it is reaped like every other child
            else:
                return spare.pid
        from holdfast.sandbox.backends import confined

        return confined.start(
            kind,
            view,
            confined.command_of(request, fds),
            status_fd=report,
            listeners_fd=listeners,
            masks_fd=masks,
            channel=confined.Channel(fds[-1], bool(request.flags & orders.WATCH)),
            enter=enter,
        )

    def _start_confined(self, request: Order, fds: list[int]) -> None:
        """Fork the processes around a confined command; the outcome arrives on a pipe."""
        view = plan.decode(request.plan)
        own = not request.flags & (orders.BWRAP | orders.LANDLOCK)
        kind = ConfinementKind(bool(request.flags & orders.USER_NAMESPACE), view.network_off) if own else None
        channel = _pair() if view.listens else None
        listeners = channel[1].fileno() if channel else -1
        limited = self._limit(request) if request.limits or _needs_group(request) else None
        brokered: _Brokered | None = None
        masked: MaskedCommand | None = None
        try:
            brokered = _Brokered(view) if own and not request.flags & orders.WATCH else None
            masked = self._cover(view) if own and view.covers else None
            status, report = os.pipe2(os.O_CLOEXEC)
        except OSError:  # for example, no descriptors are left
            self._give_up(limited, brokered, masked)
            for end in channel or ():
                end.close()
            raise
        try:
            if kind is None:
                pid = self._spawn_otherwise(view, request, fds, report, listeners, limited)
            else:
                enter = limited.enter if limited else None
                given = [*fds, brokered.theirs] if brokered else fds
                masks = masked.theirs if masked else -1
                pid = self._spawn_confined(kind, view, request, given, report, listeners, masks, enter)
        except (OSError, StageFailed) as exc:
            os.close(status)
            self._give_up(limited, brokered, masked)
            stage = exc.stage if isinstance(exc, StageFailed) else "processes"
            self._report(Event(orders.STARTED, request.id, 0, exc.errno or errno.EIO, stage=stage))
            return
        finally:
            os.close(report)
        if channel:
            self._channels[status] = channel[0]
            channel[1].close()
        if brokered:
            self._brokered[status] = brokered
            os.close(brokered.theirs)
            brokered.theirs = -1
        if masked:
            masked.begin(pid)
        self._running[pid] = group_of(pid, request)
        if limited:
            limited.begin(pid)
            self._limited[pid] = limited
            self._look_due = 0.0
        self._setting_up[status] = _SettingUp(self._running[pid], kind)
        self._await(status)

    def _limit(self, request: Order) -> "LimitedCommand":
        from holdfast.sandbox import limits
        from holdfast.sandbox.launcher.limited import LimitedCommand

        bwrap = bool(request.flags & orders.BWRAP)
        most, run = limits.decode(request.limits)
        leader = next((pid for pid, group in self._running.items() if group.id == run), 0) if run else 0
        return LimitedCommand(
            most,
            str(request.id),
            around=_AROUND_BWRAP if bwrap else _AROUND,
            own_userns=bool(request.flags & (orders.USER_NAMESPACE | orders.BWRAP)),
            later=bwrap,
            together=_needs_group(request),
            shared=run == limits.SHARED,
            run=self._limited.get(leader),
        )

    def _give_up(
        self, limited: "LimitedCommand | None", brokered: "_Brokered | None", masked: "MaskedCommand | None"
    ) -> None:
        """A start failed: release what was made for it."""
        if limited:
            limited.remove()
        if brokered:
            brokered.close()
        if masked:
            masked.close()

    def _spawn_otherwise(
        self,
        view: plan.Plan,
        request: Order,
        fds: list[int],
        report: int,
        listeners: int,
        limited: "LimitedCommand | None",
    ) -> int:
        """Start the process around the command, with bubblewrap or with Landlock alone; return its pid."""
        from holdfast.sandbox.backends import confined

        command = confined.command_of(request, fds)
        pid = os.fork()
        if pid:
            return pid
        signal.set_wakeup_fd(-1)
        from holdfast.sandbox.backends import bwrapped, landlocked

        if request.flags & orders.BWRAP:
            bwrapped.run(
                view,
                command,
                parent=self._pid,
                status_fd=report,
                tool=os.fsdecode(request.tool),
                enter=limited.enter if limited else None,
                enter_inside=limited.enter_inside if limited else None,
                listeners_fd=listeners,
            )
        landlocked.run(
            view,
            command,
            parent=self._pid,
            status_fd=report,
            degraded=bool(request.flags & orders.DEGRADED),
            watch_fd=confined.watch_of(request, fds),
            confine=not request.flags & orders.KEPT,
            enter=limited.enter if limited else None,
        )

    def _set_up(self, status: int) -> None:
        """Read more of a start's report; at its end report the start."""
        start = self._setting_up[status]
        data = os.read(status, MAX_REPORT)
        told = start.report + data
        if data and not is_complete(told):
            self._setting_up[status] = start._replace(report=told)
            return
        group = start.group
        del self._setting_up[status]
        self._forget(status)
        os.close(status)
        channel = self._channels.pop(status, None)
        listeners = orders.take_listeners(channel) if channel else []
        if (brokered := self._brokered.pop(status, None)) is not None:
            self._take_listener(brokered)
        report = decode_report(told)
        failure = report.failure
        if start.kind is not None and not report.runs and failure is None:
            failure = StageFailed("killed", errno.EIO)
        if failure is None:
            limited = self._limited.get(group.leader)
            if limited:
                limited.run(time.monotonic())
            words = (
                *report.weakened,
                *(self._masks.enter(group.leader) if self._masks is not None else ()),
                *((limited.word,) if limited and limited.word else ()),
            )
            started = Event(orders.STARTED, group.id, group.leader, stage=",".join(words)[:64])
            self._report(started, listeners)
            if start.kind is not None:
                self._on_confined(start.kind)
        else:
            self._running.pop(group.leader, None)  # it ends by itself, and no caller waits for it
            self._report(Event(orders.STARTED, group.id, 0, failure.errno, stage=failure.stage[:64]))
        for fd in listeners:
            os.close(fd)

    def _cover(self, view: plan.Plan) -> "MaskedCommand":
        """Watch for new entries at the paths that this plan covers. Raises OSError."""
        if self._masks is None:
            from holdfast.sandbox.launcher.masked import MaskedCommands

            self._masks = MaskedCommands(self._await, self._end_uncovered, self._make_notifier)
        return self._masks.begin(view)

    def _make_notifier(self) -> "Inotify | Dnotify":
        """Make the notifier for new names. Raises OSError."""
        from holdfast.sandbox.kernel.inotify import Inotify

        return Inotify(blocking=False)

    def _end_uncovered(self, leader: int) -> None:
        self._signal(lambda group: group.leader == leader, signal.SIGKILL)

    def _take_listener(self, brokered: "_Brokered") -> None:
        """From now on await the first call on a socket; without a listener there are no such calls."""
        fd = brokered.take()
        if fd is None:
            brokered.close()
        else:
            self._listeners[fd] = brokered
            self._await(fd)

    def _fork_broker(self, fd: int) -> None:
        """A command has made its first call on a socket, or has ended."""
        brokered = self._listeners.pop(fd)
        self._forget(fd)
        try:
            if _is_called(fd) and os.fork() == 0:
                brokered.become(fd)
        except OSError:
            pass  # without a broker the command's calls fail
        finally:
            os.close(fd)
            brokered.close()

    def _signal(self, wanted: Callable[[_Group], bool], signum: int) -> None:
        for group in filter(wanted, [*self._running.values(), *self._lingering.values()]):
            if not group.signal(signum) and group.leader in self._running:
                _kill(group.leader, signum)  # forked just now, and not yet leader of a group of its own

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            for pipe in [fd for fd, start in self._setting_up.items() if start.group.leader == pid]:
                while pipe in self._setting_up:
                    self._set_up(pipe)  # report the start before the end, however quick the command was
            limited = self._limited.pop(pid, None)
            reached = self._leave(limited, status) if limited else ""
            if self._masks is not None:
                reached = self._masks.on_died(pid) or reached
            group = self._running.pop(pid, None)
            if group is None:
                continue
            if group.forwards:
                group.signal(signal.SIGKILL)  # the remaining members are not the command
            if group.signal(0):
                self._lingering[pid] = group
            self._report(
                Event(
                    orders.EXITED,
                    group.id,
                    pid,
                    0,
                    status,
                    int(usage.ru_utime * 1e6),
                    int(usage.ru_stime * 1e6),
                    usage.ru_maxrss * 1024,
                    reached,
                )
            )
        self._lingering = {pid: group for pid, group in self._lingering.items() if group.signal(0)}

    def _leave(self, limited: "LimitedCommand", status: int) -> str:
        """Remove the groups of a reaped command with limits; return the encoded limit that it reached."""
        from holdfast.sandbox import limits

        code = os.waitstatus_to_exitcode(status)
        reached = limited.finish(code if code >= 0 else 128 - code)
        limited.kill()
        if not limited.remove():
            self._emptying.append(limited)
        return limits.encode_reached(reached) if reached else ""

    def _look_at_limits(self) -> float | None:
        """End commands that exceeded a limit; return the delay until the next check, or None."""
        now = time.monotonic()
        if now < self._look_due:
            return self._look_due - now
        for leader, limited in self._limited.items():
            signum = limited.look(now)
            if signum:
                self._signal(lambda group, leader=leader: group.leader == leader, signum)  # type: ignore[misc]
            if signum == signal.SIGKILL:
                limited.kill()
        self._emptying = [limited for limited in self._emptying if not limited.remove()]
        waits = [limited.look_again_s(now) for limited in self._limited.values()]
        soon = min((*waits, *((_EMPTY_S,) if self._emptying else ())), default=None)
        self._look_due = 0.0 if soon is None else now + soon
        return soon

    def _end_everything(self) -> None:
        """End all descendants, and remove their control groups."""
        for limited in self._limited.values():
            limited.kill()
        self._kill_descendants()
        for limited in (*self._limited.values(), *self._emptying):
            limited.remove()
        self._limited, self._emptying = {}, []

    def _kill_descendants(self) -> None:
        """Kill all descendants; those in other sessions become our children as their parents die."""
        deadline = time.monotonic() + _SHUTDOWN_S
        while time.monotonic() < deadline:
            try:
                while pid := os.wait4(-1, os.WNOHANG)[0]:
                    self._running.pop(pid, None)
            except ChildProcessError:
                return
            for pid in (*self._running, *self._lingering):
                _kill_group(pid, signal.SIGKILL)
            for pid in processes(PARENT, self._pid):
                _kill(pid, signal.SIGKILL)
            time.sleep(0.002)


def kept(request: Order) -> Order:
    """The order to start a command unconfined, but with a process around it that ends its descendants."""
    untouched = plan.encode(
        plan.Plan(plan.Base.UNTOUCHED, (), network_off=False, cwd=os.fsdecode(request.cwd))
    )
    return request._replace(plan=untouched, flags=request.flags | orders.LANDLOCK | orders.KEPT)


def _needs_group(request: Order) -> bool:
    """Whether only a control group can end all descendants of this start at once."""
    if not request.flags & orders.LANDLOCK or request.flags & orders.KEPT:
        return False
    from holdfast.sandbox.kernel import landlock
    from holdfast.sandbox.plan.grants import SCOPE_ABI

    return landlock.abi() < SCOPE_ABI


class _Brokered:
    """What a start's broker needs: the listener, which arrives on a channel, and the rules of the plan."""

    def __init__(self, view: plan.Plan) -> None:
        """Raises OSError."""
        from holdfast.sandbox.watcher import listener

        self._view = view
        self._pinned: dict[str, int] = {}
        self._ours, self.theirs = listener.pair()
        try:
            for path in filter(view.may_replace, view.sockets):
                self._pinned[path] = listener.pin(path)
        except OSError:
            self.close()
            raise

    def take(self) -> int | None:
        """The listener, once the start has been reported; None if there is none."""
        from holdfast.sandbox.watcher import listener

        try:
            (fd,) = listener.take(self._ours)
        except OSError:
            return None
        finally:
            os.close(self._ours)
            self._ours = -1
        return fd

    def become(self, listener: int) -> NoReturn:
        signal.set_wakeup_fd(-1)
        from holdfast.sandbox.watcher import broker

        granted = (
            broker.GrantedSocket(os.fsencode(path), self._pinned.get(path)) for path in self._view.sockets
        )
        view = self._view
        broker.become(listener, broker.SocketRules(view.network_off, tuple(granted), view.asks))

    def close(self) -> None:
        for fd in (self._ours, self.theirs, *self._pinned.values()):
            if fd >= 0:
                os.close(fd)
        self._ours, self.theirs, self._pinned = -1, -1, {}


def _is_called(listener: int) -> bool:
    import select

    asked = select.poll()
    asked.register(listener, select.POLLIN)
    return any(event & select.POLLIN for _, event in asked.poll(0))


def _pair() -> "tuple[socket.socket, socket.socket]":
    import _socket as socket  # loads faster than the full `socket` module

    return socket.socketpair()


def _kill_group(pgid: int, signum: int) -> bool:
    """Signal a group; return False if it has no members left."""
    try:
        os.killpg(pgid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # a member changed its user; the group exists
    return True


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return
