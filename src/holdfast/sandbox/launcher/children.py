"""The commands that a process started: set up, signalled, reaped, and ended with everything below them.

The launcher owns all commands of a server like that, and `holdfast exec` the one that it runs. The owner
has one thread, is a child subreaper, and alone reaps and signals what it started.

Standard library only, and little of it: whoever waits for a command waits for these imports too. What not
every start needs is imported where it is needed; an owner that forks often has imported it before.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.sandbox.backends import confined
from holdfast.sandbox.backends.confined import ConfinementKind
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import PARENT, SESSION, StageFailed, processes
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.orders import Event, Order

if TYPE_CHECKING:
    import socket

_SHUTDOWN_S: Final = 5.0  # how long a final kill may take before we give up on unkillable processes
_END: Final = signal.SIGPWR  # as `landlocked.END`


class _Group(NamedTuple):
    """What a start made, known by its leader's pid: a process group, on a terminal a whole session."""

    leader: int
    id: int
    owner: int
    tty: bool
    kept: bool  # the leader ends everything below it when it is told to
    forwards: bool  # the others in it are bubblewrap's, which would die of what is meant for the command

    def signal(self, signum: int) -> bool:
        """Signal every member; False when none is left. Signal 0 only asks."""
        if self.kept and signum == signal.SIGKILL:
            signum = _END  # killed itself, it could not take along what left its group
        if self.forwards and signum not in (0, signal.SIGKILL):
            _kill(self.leader, signum)
            return True
        reached = _kill_group(self.leader, signum)
        if self.tty and signum in (0, signal.SIGKILL):
            # Job control puts background jobs into groups of their own, which hang-up spares.
            for pid in processes(SESSION, self.leader):
                reached = True
                _kill(pid, signum)
        return reached


def group_of(leader: int, request: Order) -> _Group:
    flags = request.flags
    kinds = (bool(flags & kind) for kind in (orders.TTY, orders.LANDLOCK, orders.BWRAP))
    return _Group(leader, request.id, request.owner, *kinds)


class _SettingUp(NamedTuple):
    """A confined start whose command does not run yet."""

    group: _Group
    kind: ConfinementKind | None  # of the process around it, when that is ours
    report: bytes = b""  # so far


class Children:
    """What was started and by whom. A subclass says how status pipes are awaited and who hears of events."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._running: dict[int, _Group] = {}  # leader pid -> group; the leader is not reaped yet
        self._lingering: dict[int, _Group] = {}  # leader reaped, other members live on
        self._setting_up: dict[int, _SettingUp] = {}  # status pipe -> confined start
        self._channels: dict[int, socket.socket] = {}  # status pipe -> where its listening sockets come
        kernel.adopt_orphans()

    def _report(self, event: Event, fds: Sequence[int] = ()) -> None:
        """Tell of a start or an end, with the listening sockets of a start, which are closed afterwards."""
        raise NotImplementedError

    def _await(self, status: int) -> None:
        """See to it that `_set_up` is called whenever this pipe can be read."""
        raise NotImplementedError

    def _forget(self, status: int) -> None:
        """No more of this pipe, which is about to be closed."""
        raise NotImplementedError

    def _fork_watcher(self, fd: int, request: Order) -> int:
        """Fork one: an interpreter of its own would take longer to come up than many a command runs."""
        from holdfast.sandbox.watcher import watcher

        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            watcher.become(fd)
        self._running[pid] = group_of(pid, request)
        return pid

    def _on_confined(self, kind: ConfinementKind) -> None:
        """A confined start of this kind came about."""

    def _start(self, request: Order, fds: list[int]) -> None:
        try:
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
        """The pid of a command as it is; raises OSError when it can not be started.

        posix_spawn shares our memory with the child until exec, which is several times faster than a
        fork that copies it. What it has no option for, the working directory, is ours for a moment.
        """
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
    ) -> int:
        """The pid of the process around the command."""
        command = confined.command_of(request, fds)
        watch = confined.watch_of(request, fds)
        return confined.start(kind, view, command, status_fd=report, listeners_fd=listeners, watch_fd=watch)

    def _start_confined(self, request: Order, fds: list[int]) -> None:
        """Fork the processes around a confined command; its outcome comes on a pipe."""
        view = plan.decode(request.plan)
        own = not request.flags & (orders.BWRAP | orders.LANDLOCK)
        kind = ConfinementKind(bool(request.flags & orders.USER_NAMESPACE), view.network_off) if own else None
        channel = _pair() if view.loopback_ports else None
        listeners = channel[1].fileno() if channel else -1
        status, report = os.pipe2(os.O_CLOEXEC)
        try:
            if kind is None:
                pid = self._spawn_otherwise(view, request, fds, report)
            else:
                pid = self._spawn_confined(kind, view, request, fds, report, listeners)
        except (OSError, StageFailed) as exc:
            os.close(status)
            stage = exc.stage if isinstance(exc, StageFailed) else "processes"
            self._report(Event(orders.STARTED, request.id, 0, exc.errno or errno.EIO, stage=stage))
            return
        finally:
            os.close(report)
        if channel:
            self._channels[status] = channel[0]
            channel[1].close()
        self._running[pid] = group_of(pid, request)
        self._setting_up[status] = _SettingUp(self._running[pid], kind)
        self._await(status)

    def _spawn_otherwise(self, view: plan.Plan, request: Order, fds: list[int], report: int) -> int:
        """The same with bubblewrap or with Landlock alone."""
        command = confined.command_of(request, fds)
        pid = os.fork()
        if pid:
            return pid
        signal.set_wakeup_fd(-1)
        from holdfast.sandbox.backends import bwrapped, landlocked

        if request.flags & orders.BWRAP:
            bwrapped.run(view, command, parent=self._pid, status_fd=report, tool=os.fsdecode(request.tool))
        landlocked.run(
            view,
            command,
            parent=self._pid,
            status_fd=report,
            degraded=bool(request.flags & orders.DEGRADED),
            watch_fd=confined.watch_of(request, fds),
            confine=not request.flags & orders.KEPT,
        )

    def _set_up(self, status: int) -> None:
        """More of a report, or its end."""
        start = self._setting_up[status]
        data = os.read(status, confined.MAX_REPORT)
        if data:
            self._setting_up[status] = start._replace(report=start.report + data)
            return
        group = start.group
        del self._setting_up[status]
        self._forget(status)
        os.close(status)
        channel = self._channels.pop(status, None)
        listeners = _take(channel) if channel else []
        report = confined.decode_report(start.report)
        if report.failure is None:
            started = Event(orders.STARTED, group.id, group.leader, stage=",".join(report.weakened)[:64])
            self._report(started, listeners)
            if start.kind is not None:
                self._on_confined(start.kind)
        else:
            self._running.pop(group.leader, None)  # it ends by itself, and nobody waits for it
            failure = report.failure
            self._report(Event(orders.STARTED, group.id, 0, failure.errno, stage=failure.stage[:64]))
        for fd in listeners:
            os.close(fd)

    def _signal(self, wanted: Callable[[_Group], bool], signum: int) -> None:
        for group in filter(wanted, [*self._running.values(), *self._lingering.values()]):
            if not group.signal(signum) and group.leader in self._running:
                _kill(group.leader, signum)  # forked just now, and not in a group of its own yet

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
                    self._set_up(pipe)  # its start is reported before its end, however quick it was
            group = self._running.pop(pid, None)
            if group is None:
                continue
            if group.forwards:
                group.signal(signal.SIGKILL)  # what its leader left is not the command
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
                )
            )
        self._lingering = {pid: group for pid, group in self._lingering.items() if group.signal(0)}

    def _end_everything(self) -> None:
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


def _pair() -> "tuple[socket.socket, socket.socket]":
    import socket

    return socket.socketpair()


def _take(channel: "socket.socket") -> list[int]:
    from holdfast.sandbox.protocol import loopback

    return loopback.take(channel)


def _kill_group(pgid: int, signum: int) -> bool:
    """Signal a group; False when it has no members left."""
    try:
        os.killpg(pgid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody in it changed its user; it exists
    return True


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return
