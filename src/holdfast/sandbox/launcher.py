"""The launcher: a small single-threaded process that forks and execs every command.

It exists because forking the server is slow (its heap is large), unsafe (it has threads) and
leaves nobody to clean up when the server is killed. The launcher is started before the heap
grows, imports only a few standard modules and nothing of ours, and owns every child:

* It is a child subreaper: descendants that lose their parent become its children, so it can end
  them all. When its socket closes, for whatever reason, it kills everything below it and exits.
* Each command is a session leader with its own process group. Only the launcher reaps, and only
  the launcher signals, so a process group number can not have been reused when it is signalled.
* Should the launcher itself be killed, each command gets SIGKILL as its parent-death signal.

The protocol is datagrams on one SOCK_SEQPACKET socket, descriptors attached by SCM_RIGHTS. A
start hands over the child's ends of its streams and a close-on-exec status pipe: end of file on
it means that exec happened, an errno means that it did not, so a failed start can not be
mistaken for a failed command. Nothing in it assumes that the peer is the process that made the
launcher.
"""

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Final, NamedTuple

# --- the protocol, shared with whoever drives the launcher

START, SIGNAL, END_OWNER = 1, 2, 3
FORKED, EXITED = 1, 2

TTY, HAS_STATE, IN_MEMFD = 1, 2, 4

_REQUEST: Final = struct.Struct("<BIIBiIII")  # op, id, owner, flags, signal, argc, envc, payload length
_EVENT: Final = struct.Struct("<BIIiiQQQ")  # op, id, pid, errno, wait status, user us, system us, peak rss

STATE_FD: Final = 9  # where a command finds the descriptor that restores its shell state
MAX_INLINE: Final = 64 * 1024  # below the default socket buffer; larger requests travel in a memfd
MAX_FDS: Final = 6  # status, stdin, stdout, stderr, shell state, memfd
MAX_PAYLOAD: Final = 8 * 1024 * 1024  # more than the kernel takes as arguments and environment


class Request(NamedTuple):
    """One order. `fds` are status, stdin, stdout, stderr, then the shell state if any."""

    op: int
    id: int = 0
    owner: int = 0
    flags: int = 0
    signal: int = 0
    cwd: bytes = b""
    program: bytes = b""
    argv: tuple[bytes, ...] = ()
    env: tuple[bytes, ...] = ()


class Event(NamedTuple):
    """One report: FORKED with a pid, or with an errno and no pid; EXITED with status and usage."""

    op: int
    id: int
    pid: int
    errno: int = 0
    status: int = 0
    user_us: int = 0
    system_us: int = 0
    peak_rss: int = 0


def send_request(sock: socket.socket, request: Request, fds: tuple[int, ...] = ()) -> None:
    """Send one order; raises OSError when the launcher is gone or the order is too large."""
    fields = (request.cwd, request.program, *request.argv, *request.env) if request.op == START else ()
    payload = b"\0".join(fields)
    if len(payload) > MAX_PAYLOAD:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    flags, memfd = request.flags, -1
    if len(payload) > MAX_INLINE:
        memfd = os.memfd_create("holdfast-start", os.MFD_CLOEXEC)
        flags |= IN_MEMFD
        fds = (*fds, memfd)
    try:
        if memfd >= 0:
            _write_all(memfd, payload)
        header = _REQUEST.pack(
            request.op,
            request.id,
            request.owner,
            flags,
            request.signal,
            len(request.argv),
            len(request.env),
            len(payload),
        )
        parts = [header] if memfd >= 0 else [header, payload]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sock.sendmsg(parts, ancillary)
    finally:
        if memfd >= 0:
            os.close(memfd)


def unpack_event(data: bytes) -> Event:
    return Event(*_EVENT.unpack(data))


# --- the process itself

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER: Final = 36
_SHUTDOWN_S: Final = 5.0  # how long a final kill may take before we give up on unkillable processes
_RESET_SIGNALS: Final = (  # ignored here or by whoever started us; a command expects the defaults
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PARENT, _SESSION = 1, 3  # fields of /proc/PID/stat after the name
_TRY_NEXT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_libc.prctl.restype = ctypes.c_int


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _receive(sock: socket.socket) -> tuple[Request, list[int]] | None:
    """The next order with its descriptors, or None when the other side is gone."""
    data, ancillary, _, _ = sock.recvmsg(
        _REQUEST.size + MAX_INLINE, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC
    )
    if not data:
        return None
    fds = array.array("i")
    for _level, _kind, raw in ancillary:
        fds.frombytes(raw)
    op, id_, owner, flags, signum, argc, envc, length = _REQUEST.unpack_from(data)
    payload = data[_REQUEST.size :]
    if flags & IN_MEMFD:
        memfd = fds.pop()
        payload = os.pread(memfd, length, 0)
        os.close(memfd)
    if op != START:
        return Request(op, id_, owner, flags, signum), fds.tolist()
    fields = payload.split(b"\0")
    argv, env = tuple(fields[2 : 2 + argc]), tuple(fields[2 + argc : 2 + argc + envc])
    return Request(op, id_, owner, flags, signum, fields[0], fields[1], argv, env), fds.tolist()


def _exec(request: Request) -> None:
    """Replace this process; returns only by raising OSError."""
    env = dict(entry.split(b"=", 1) for entry in request.env)
    if b"/" in request.program:
        os.execve(request.program, request.argv, env)  # noqa: S606 - this is what a launcher is for
    denied: OSError | None = None
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve(os.path.join(folder or b".", request.program), request.argv, env)  # noqa: S606
        except OSError as exc:
            if exc.errno not in _TRY_NEXT:
                raise
            if exc.errno == errno.EACCES:
                denied = exc  # as a shell does: a forbidden match is worth more than no match
    raise denied or OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def _become(request: Request, fds: list[int], parent: int) -> None:
    """In the child: turn into the command, or say on the status pipe why not."""
    status, stdin, stdout, stderr = fds[:4]
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the launcher died before the death signal was armed
        os.setsid()
        if request.flags & TTY:
            fcntl.ioctl(stdin, termios.TIOCSCTTY, 0)
        for target, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, target)
        keep = {status}
        if request.flags & HAS_STATE:
            if status == STATE_FD:
                status = os.dup(status)
                keep = {status}
            os.dup2(fds[4], STATE_FD)
            keep.add(STATE_FD)
        low = 3
        for fd in sorted(keep):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, os.sysconf("SC_OPEN_MAX"))
        for signum in _RESET_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(request.cwd)
        _exec(request)
    except OSError as exc:
        os.write(status, struct.pack("<i", exc.errno or errno.EIO))
    finally:
        os._exit(127)


class _Group(NamedTuple):
    """What a start made, known by its leader's pid: a process group, on a terminal a whole session."""

    leader: int
    id: int
    owner: int
    tty: bool

    def signal(self, signum: int) -> bool:
        """Signal every member; False when none is left. Signal 0 only asks."""
        reached = _kill_group(self.leader, signum)
        if self.tty and signum in (0, signal.SIGKILL):
            # Job control puts background jobs into groups of their own, which hang-up spares.
            for pid in _processes(_SESSION, self.leader):
                reached = True
                _kill(pid, signum)
        return reached


class Launcher:
    """The loop: orders in, reports out, children reaped."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pid = os.getpid()
        self._running: dict[int, _Group] = {}  # leader pid -> group; the leader is not reaped yet
        self._lingering: dict[int, _Group] = {}  # leader reaped, other members live on
        self._wake, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)  # our life ends with the socket, not with a terminal
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        try:
            while True:
                ready = dict(poll.poll())
                if self._wake in ready:
                    os.read(self._wake, 4096)
                    self._reap()
                if self._sock.fileno() in ready and not self._obey():
                    return
        except OSError:
            return  # the socket broke: the same as closed
        finally:
            self._end_everything()

    def _obey(self) -> bool:
        received = _receive(self._sock)
        if received is None:
            return False
        request, fds = received
        if request.op == START:
            self._start(request, fds)
        elif request.op == SIGNAL:
            self._signal(lambda group: group.id == request.id, request.signal)
        elif request.op == END_OWNER:
            self._signal(lambda group: group.owner == request.owner, signal.SIGKILL)
        return True

    def _start(self, request: Request, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as exc:
            self._report(Event(FORKED, request.id, 0, exc.errno or errno.EAGAIN))
            return
        finally:
            if os.getpid() == self._pid:
                for fd in fds:
                    os.close(fd)
        if pid == 0:
            _become(request, fds, self._pid)
        self._running[pid] = _Group(pid, request.id, request.owner, bool(request.flags & TTY))
        self._report(Event(FORKED, request.id, pid))

    def _signal(self, wanted: Callable[[_Group], bool], signum: int) -> None:
        for group in (*self._running.values(), *self._lingering.values()):
            if wanted(group):
                group.signal(signum)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            group = self._running.pop(pid, None)
            if group is None:
                continue
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

    def _report(self, event: Event) -> None:
        self._sock.send(_EVENT.pack(*event))

    def _end_everything(self) -> None:
        """Kill all descendants; those in other sessions become our children as their parents die."""
        deadline = time.monotonic() + _SHUTDOWN_S
        while time.monotonic() < deadline:
            for pid in (*self._running, *self._lingering):
                _kill_group(pid, signal.SIGKILL)
            for pid in _processes(_PARENT, self._pid):
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


def _processes(field: int, value: int) -> list[int]:
    """Every process, zombies aside, with this parent or session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[field]) == value and fields[0] != b"Z":
                found.append(int(name))
    return found


def main() -> None:
    os.setsid()  # a signal to the server's group, even SIGKILL, must not end us before our children
    Launcher(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
