"""The launcher: a small single-threaded process that starts and owns every command.

It exists because forking the server is slow (its heap is large), unsafe (it has threads) and
leaves nobody to clean up when the server is killed. The launcher is started before the heap
grows, imports only a few standard modules and its own protocol, and owns every child:

* It is a child subreaper: descendants that lose their parent become its children, so it can end
  them all. When its socket closes, for whatever reason, it kills everything below it and exits.
* Each command is a session leader with its own process group. Only the launcher reaps, and only
  the launcher signals, so a process group number can not have been reused when it is signalled.

Orders and reports are datagrams on one SOCK_SEQPACKET socket (`orders.py`). A start is answered
with a pid once exec happened, or with the errno that stopped it, so a failed start can not be
mistaken for a failed command. Nothing here assumes that the peer is the process that made the
launcher.
"""

import contextlib
import ctypes
import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from holdfast.sandbox.backends import bwrapped, confined, landlocked
from holdfast.sandbox.backends.confined import ConfinementKind
from holdfast.sandbox.kernel import namespaces
from holdfast.sandbox.kernel.kernel import SetupFailed
from holdfast.sandbox.kernel.proctable import PARENT, SESSION, processes
from holdfast.sandbox.launcher.spare import Spare
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol import loopback
from holdfast.sandbox.protocol.orders import (
    BE_WATCHER,
    BWRAP,
    DEGRADED,
    END_OWNER,
    EXITED,
    LANDLOCK,
    SIGNAL,
    START,
    STARTED,
    TTY,
    USER_NAMESPACE,
    Event,
    Request,
    pack_event,
    receive,
)

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_QUIET_MS: Final = 5  # before a spare is made: made at once it would slow down the command just started
_SHUTDOWN_S: Final = 5.0  # how long a final kill may take before we give up on unkillable processes

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_libc.prctl.restype = ctypes.c_int


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _spawn(request: Request, fds: list[int]) -> int:
    """Start an unconfined command; raises OSError when it can not be started.

    posix_spawn shares our memory with the child until exec, which is several times faster than a
    fork that copies it. What it has no option for, the working directory, is ours for a moment.
    """
    command = confined.command_of(request, fds)
    os.chdir(request.cwd)
    try:
        return confined.spawn(command)
    finally:
        os.chdir("/")


def _fork_watcher(fd: int) -> int:
    """Start a watcher on this socket; raises OSError."""
    from holdfast.sandbox.watcher import watcher

    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        watcher.become(fd)
    return pid


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
            signum = landlocked.END  # killed itself, it could not take along what left its group
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


def _group(leader: int, request: Request) -> _Group:
    flags = request.flags
    kinds = (bool(flags & kind) for kind in (TTY, LANDLOCK, BWRAP))
    return _Group(leader, request.id, request.owner, *kinds)


class _SettingUp(NamedTuple):
    """A confined start whose command does not run yet."""

    group: _Group
    kind: ConfinementKind | None  # of the process around it, when that is ours
    report: bytes = b""  # so far


class Launcher:
    """The loop: orders in, reports out, children reaped."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pid = os.getpid()
        self._running: dict[int, _Group] = {}  # leader pid -> group; the leader is not reaped yet
        self._lingering: dict[int, _Group] = {}  # leader reaped, other members live on
        self._setting_up: dict[int, _SettingUp] = {}  # status pipe -> confined start
        self._spares: dict[ConfinementKind, Spare] = {}
        self._wanted: set[ConfinementKind] = set()  # spares to make when it is quiet
        self._channels: dict[int, socket.socket] = {}  # status pipe -> where its listening sockets come
        self._poll = select.poll()
        self._wake, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)  # our life ends with the socket, not with a terminal
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(_QUIET_MS if self._wanted else None)]
                for fd in ready:
                    if fd in self._setting_up:
                        self._set_up(fd)
                if self._wake in ready:
                    os.read(self._wake, 4096)
                    self._reap()
                if self._sock.fileno() in ready and not self._obey():
                    return
                if not ready:
                    self._make_spare()
        except OSError:
            return  # the socket broke: the same as closed
        finally:
            self._end_everything()

    def _obey(self) -> bool:
        received = receive(self._sock)
        if received is None:
            return False
        request, fds = received
        if request.op == START:
            self._start(request, fds)
        elif request.op == BE_WATCHER:
            self._start_watcher(request, fds)
        elif request.op == SIGNAL:
            self._signal(lambda group: group.id == request.id, request.signal)
        elif request.op == END_OWNER:
            self._signal(lambda group: group.owner == request.owner, signal.SIGKILL)
        return True

    def _start(self, request: Request, fds: list[int]) -> None:
        try:
            if request.plan:
                self._start_confined(request, fds)
                return
            pid = _spawn(request, fds)
        except OSError as exc:
            self._report(Event(STARTED, request.id, 0, exc.errno or errno.EIO))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._running[pid] = _group(pid, request)
        self._report(Event(STARTED, request.id, pid))

    def _start_watcher(self, request: Request, fds: list[int]) -> None:
        """Fork one: an interpreter of its own would take longer to come up than many a command runs."""
        try:
            pid = _fork_watcher(fds[0])
        except OSError as exc:
            self._report(Event(STARTED, request.id, 0, exc.errno or errno.EAGAIN))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._running[pid] = _group(pid, request)
        self._report(Event(STARTED, request.id, pid))

    def _start_confined(self, request: Request, fds: list[int]) -> None:
        """Fork the processes around a confined command; its outcome comes on a pipe."""
        view = plan.decode(request.plan)
        own = not request.flags & (BWRAP | LANDLOCK)
        kind = ConfinementKind(bool(request.flags & USER_NAMESPACE), view.network_off) if own else None
        channel = socket.socketpair() if view.loopback_ports else None
        listeners = channel[1].fileno() if channel else -1
        status, report = os.pipe2(os.O_CLOEXEC)
        try:
            if kind is None:
                pid = self._confined_otherwise(view, request, fds, report)
            else:
                pid = self._confined(kind, view, request, fds, report, listeners)
        except (OSError, SetupFailed) as exc:
            os.close(status)
            stage = exc.stage if isinstance(exc, SetupFailed) else "processes"
            self._report(Event(STARTED, request.id, 0, exc.errno or errno.EIO, stage=stage))
            return
        finally:
            os.close(report)
        if channel:
            self._channels[status] = channel[0]
            channel[1].close()
        self._running[pid] = _group(pid, request)
        self._setting_up[status] = _SettingUp(self._running[pid], kind)
        self._poll.register(status, select.POLLIN)

    def _confined(
        self,
        kind: ConfinementKind,
        view: plan.Plan,
        request: Request,
        fds: list[int],
        report: int,
        listeners: int,
    ) -> int:
        """The pid of the process around the command, a spare one if there is one."""
        spare = self._spares.pop(kind, None)
        if spare is not None:
            try:
                spare.use(request, fds, status_fd=report, listeners_fd=listeners)
            except OSError:
                pass  # something ended it; it is reaped like everything else
            else:
                return spare.pid
        command = confined.command_of(request, fds)
        watch = confined.watch_of(request, fds)
        return confined.start(kind, view, command, status_fd=report, listeners_fd=listeners, watch_fd=watch)

    def _confined_otherwise(self, view: plan.Plan, request: Request, fds: list[int], report: int) -> int:
        """The same with bubblewrap or with Landlock alone."""
        command = confined.command_of(request, fds)
        pid = os.fork()
        if pid:
            return pid
        signal.set_wakeup_fd(-1)
        if request.flags & BWRAP:
            bwrapped.run(view, command, parent=self._pid, status_fd=report, tool=os.fsdecode(request.tool))
        degraded, watch = bool(request.flags & DEGRADED), confined.watch_of(request, fds)
        landlocked.run(view, command, parent=self._pid, status_fd=report, degraded=degraded, watch_fd=watch)

    def _make_spare(self) -> None:
        """Only of a kind that has just worked, so a host that refuses is not asked again and again."""
        kind = self._wanted.pop()
        if kind not in self._spares:
            with contextlib.suppress(OSError, SetupFailed):  # then the next start says why
                self._spares[kind] = Spare(kind)

    def _set_up(self, status: int) -> None:
        """More of a report, or its end."""
        start = self._setting_up[status]
        data = os.read(status, confined.MAX_REPORT)
        if data:
            self._setting_up[status] = start._replace(report=start.report + data)
            return
        group = start.group
        del self._setting_up[status]
        self._poll.unregister(status)
        os.close(status)
        channel = self._channels.pop(status, None)
        listeners = loopback.take(channel) if channel else []
        report = confined.decode_report(start.report)
        if report.failure is None:
            started = Event(STARTED, group.id, group.leader, stage=",".join(report.weakened)[:64])
            self._report(started, listeners)
            if start.kind is not None:
                self._wanted.add(start.kind)
        else:
            self._running.pop(group.leader, None)  # it ends by itself, and nobody waits for it
            failure = report.failure
            self._report(Event(STARTED, group.id, 0, failure.errno, stage=failure.stage[:64]))
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
                    EXITED,
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

    def _report(self, event: Event, fds: Sequence[int] = ()) -> None:
        if fds:
            socket.send_fds(self._sock, [pack_event(event)], fds)
        else:
            self._sock.send(pack_event(event))

    def _end_everything(self) -> None:
        """Kill all descendants; those in other sessions become our children as their parents die."""
        deadline = time.monotonic() + _SHUTDOWN_S
        while time.monotonic() < deadline:
            for pid in (*self._running, *self._lingering):
                _kill_group(pid, signal.SIGKILL)
            for pid in processes(PARENT, self._pid):
                _kill(pid, signal.SIGKILL)
            try:
                while os.wait4(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.002)


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


def main() -> None:
    """Be the launcher on the socket whose descriptor is the last argument."""
    os.setsid()  # a signal to the server's group, even SIGKILL, must not end us before our children
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.set_inheritable(False)  # whoever holds it could give orders, and keep us alive
    namespaces.warm()
    gc.disable()  # nothing here makes cycles, and a collection in a forked child copies every page it touches
    gc.freeze()
    Launcher(sock).run()
