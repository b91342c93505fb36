"""Reads from /proc what waits for the worker's terminal or stdin, what runs below it, what is stopped.

Everything is found from the pid of its first process, so it works although another process, the exec server,
owns the terminal. It also works through namespaces: descriptors are compared by device number or inode, never
by name, because a sandbox calls the same terminal /dev/console. A blocked thread's system call and its
arguments are proof. A process that we may not inspect (a set-uid program, or any under a strict Yama) is
`hidden`, and we do not guess.

Nothing here raises: processes vanish between any two reads, and unreadable data counts as absent.
"""

import contextlib
import fcntl
import os
import platform
import stat
import struct
import termios
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.agents.evidence.evidence import (
    Evidence,
    Obstacle,
    Obstructed,
    Source,
    Unread,
    Want,
    Wants,
    Work,
    Working,
)

if TYPE_CHECKING:
    from holdfast.sandbox.kernel.cgroup import Hierarchies

MAX_PROCESSES: Final = 256  # of one worker, and threads of one process: a fork bomb must not delay us
MOMENT_S: Final = 10.0  # an OOM kill longer ago than this is not attributed to the worker
MAX_NAMED: Final = 6  # commands that are listed by name
MAX_DESCRIPTORS: Final = 1024  # of one poll or select call: select supports at most as many

_READ, _POLL, _SELECT, _EPOLL, _RING = range(5)
_CALLS: Final = {
    "x86_64": {
        **{0: _READ, 19: _READ, 7: _POLL, 271: _POLL, 23: _SELECT, 270: _SELECT},
        **{232: _EPOLL, 281: _EPOLL, 441: _EPOLL, 426: _RING},
    },
    "aarch64": {63: _READ, 65: _READ, 73: _POLL, 72: _SELECT, 22: _EPOLL, 441: _EPOLL, 426: _RING},
}.get(platform.machine(), {})
_POLLFD: Final = struct.Struct("=ihh")
_READABLE: Final = 1  # POLLIN and EPOLLIN
_CONTROLLING: Final = os.makedev(5, 0)  # /dev/tty: whatever terminal the process has
_PTY_SLAVES: Final = range(136, 144)  # major numbers
_WRAPPERS: Final = frozenset(("bwrap",))  # they hold the worker's descriptors, but are not the worker
_PAGERS: Final = frozenset(("less", "more", "most", "man", "bat", "delta"))
_EDITORS: Final = frozenset(
    ("vi", "vim", "nvim", "vim.basic", "vim.tiny", "nano", "pico", "emacs", "ed", "micro")
)


class ObservedProcess(NamedTuple):
    pid: int
    name: str
    state: str  # R, S, D, T, t (held by a tracer), Z …
    parent: int
    group: int
    session: int
    terminal: int  # device number of the controlling terminal, 0 for none
    foreground: int  # process group that may read that terminal, -1 for none


class Waiter(NamedTuple):
    """A thread that waits for input: on the worker's terminal, or on the pipe that is its stdin."""

    process: ObservedProcess
    on_terminal: bool


class TerminalSettings(NamedTuple):
    """The settings of the worker's terminal, and how many typed bytes no process has read."""

    canonical: bool
    echo: bool
    unread: int

    @property
    def password(self) -> bool:
        """Whether lines are read without echo: a password prompt. Nothing may be typed here."""
        return self.canonical and not self.echo


class ProcessSnapshot(NamedTuple):
    processes: tuple[ObservedProcess, ...] = ()  # the first process comes first; empty: it is gone
    main: ObservedProcess | None = None  # the worker itself, below its wrappers
    waiting: tuple[Waiter, ...] = ()
    terminal: TerminalSettings | None = None
    hidden: tuple[ObservedProcess, ...] = ()  # we may not inspect these: whether they wait is unknown

    @property
    def commands(self) -> tuple[ObservedProcess, ...]:
        """The descendants of the worker in other sessions: agent CLIs run each command in its own session.

        Processes with the worker's own name do not count: codex keeps two of itself in sessions of their own.
        """
        main = self.main
        if main is None:
            return ()
        below = self.processes[self.processes.index(main) + 1 :]
        return tuple(
            process
            for process in below
            if process.session != main.session and process.name != main.name and process.state not in "ZX"
        )

    @property
    def nobody_reads(self) -> bool:
        """Whether it is certain that no process waits for the terminal.

        Only known for a terminal in line mode: a program that reads single keys may poll for them.
        """
        around = self.processes[: self.processes.index(self.main)] if self.main is not None else ()
        open_ = all(process in around for process in self.hidden)
        known = bool(_CALLS) and open_ and len(self.processes) < MAX_PROCESSES
        lines = self.terminal is not None and self.terminal.canonical and not self.terminal.password
        return known and lines and not self.waiting and not self.stopped

    @property
    def stopped(self) -> tuple[ObservedProcess, ...]:
        return tuple(process for process in self.processes if process.state == "T")

    @property
    def own_stopped(self) -> ObservedProcess | None:
        """A stopped process of the worker itself, including the program behind its launcher, or None.

        Its commands do not count. A job that was sent to the background of its terminal does not block it.
        """
        main = self.main
        if main is None:
            return None
        commands = set(self.commands)
        for process in self.processes[self.processes.index(main) :]:
            job = process.terminal and process.foreground > 0 and process.group != process.foreground
            if process.state == "T" and process not in commands and not job:
                return process
        return None


def look(leader: int) -> ProcessSnapshot:
    """One look at a worker by its first process. About a millisecond for a few processes."""
    processes = tree(leader)
    if not processes:
        return ProcessSnapshot()
    main = _main(processes)
    stdin = _stat(f"/proc/{main.pid}/fd/0")
    device = _terminal_device(main, stdin)
    pipe = (stdin.st_dev, stdin.st_ino) if stdin is not None and _is_stream(stdin) else None
    waiting, hidden = [], []
    for process in processes:
        background = process.terminal == device and process.group != process.foreground
        for found in _list_awaited(process.pid):
            if found is None:
                hidden.append(process)
                break
            if pipe is not None and (found.st_dev, found.st_ino) == pipe:
                waiting.append(Waiter(process, on_terminal=False))
                break
            if device and not background and _is_terminal(found, device, process):
                waiting.append(Waiter(process, on_terminal=True))
                break
    return ProcessSnapshot(tuple(processes), main, tuple(waiting), _settings(main.pid, device), tuple(hidden))


def evidence(seen: ProcessSnapshot, at: float, *, full_screen: bool) -> list[Evidence]:
    """Return the evidence in a snapshot.

    All full-screen programs poll the keyboard, so that is no evidence.
    """
    if seen.main is None:
        return []
    found = []
    if seen.terminal is not None and seen.terminal.password:
        found.append(
            Evidence(Source.TTY, at, Wants(Want.PASSWORD), "the terminal reads lines and does not show them")
        )
    if (own := seen.own_stopped) is not None:  # state `t` does not count: a tracer stops it at every call
        found.append(Evidence(Source.SYSCALL, at, _describe_stop(own), f"state {own.state}"))
    for waiter in seen.waiting:
        name = waiter.process.name
        want = _want(waiter, seen.terminal, full_screen=full_screen)
        if want is not None:
            what = "the terminal" if waiter.on_terminal else "its stdin, a pipe that is still open"
            found.append(Evidence(Source.SYSCALL, at, Wants(want), f"{name} waits for {what}"))
            break
    if not full_screen and seen.nobody_reads:
        found.append(Evidence(Source.SYSCALL, at, Unread(), "nobody reads the terminal"))
    if seen.commands:
        names = ", ".join(process.name for process in seen.commands[:MAX_NAMED])
        held = all(process.state == "T" for process in seen.commands)
        claim = _describe_stop(seen.commands[0]) if held else Working(Work.TOOL)
        found.append(Evidence(Source.CHILDREN, at, claim, f"runs {names}"))
    return found


def _describe_stop(process: ObservedProcess) -> Obstructed:
    return Obstructed(Obstacle.STOPPED, f"{process.name} ({process.pid}) is stopped")


class OomKills:
    """Reports whether the kernel killed a process for lack of memory recently; call `look` regularly.

    Only our own control group counts, which workers share: a command that exceeds a limit of its own group
    is no cause of what happens to others. Without such a group all of this machine counts.
    """

    def __init__(self, at: float, where: "Hierarchies | None" = None) -> None:
        from holdfast.sandbox.kernel import cgroup  # there is none where nothing of Linux exists

        self._count_own = cgroup.count_oom_kills
        self._where = cgroup.find() if where is None else where
        self._at = at
        self._count = self._read_count()

    def look(self, at: float) -> None:
        if at - self._at > MOMENT_S:
            self._at, self._count = at, self._read_count()

    def since_a_moment_ago(self) -> bool:
        return self._read_count() > self._count

    def _read_count(self) -> int:
        own = self._count_own(self._where)
        if own is not None:
            return own
        counts = (line.split() for line in _read("/proc/vmstat").splitlines())
        return next((int(count[1]) for count in counts if count[0] == b"oom_kill"), 0)


def _want(waiter: Waiter, terminal: TerminalSettings | None, *, full_screen: bool) -> Want | None:
    if not waiter.on_terminal:
        return Want.STDIN_EOF
    if waiter.process.name in _PAGERS:
        return Want.PAGER
    if waiter.process.name in _EDITORS:
        return Want.EDITOR
    if terminal is not None and terminal.password:
        return None  # already reported, with better evidence
    is_line = terminal is not None and terminal.canonical
    return Want.PROMPT if is_line or not full_screen else None


def tree(leader: int) -> list[ObservedProcess]:
    """Return a process and all its descendants, breadth first."""
    found: list[ObservedProcess] = []
    queue = [leader]
    for pid in queue:  # grows during the loop
        process = _process(pid)
        if process is None or len(found) == MAX_PROCESSES:
            continue
        found.append(process)
        for task in _tasks(pid):
            queue += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _process(pid: int) -> ObservedProcess | None:
    # The name is in parentheses and may contain parentheses.
    head, _, rest = _read(f"/proc/{pid}/stat").rpartition(b") ")
    fields = rest.split()
    if len(fields) < 6:
        return None
    parent, group, session, terminal, foreground = map(int, fields[1:6])
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    # The device number has the kernel's encoding, not that of makedev().
    device = os.makedev(terminal >> 8 & 0xFFF, terminal & 0xFF | terminal >> 12 & 0xFFF00) if terminal else 0
    return ObservedProcess(pid, name, fields[0].decode("ascii"), parent, group, session, device, foreground)


def _main(processes: list[ObservedProcess]) -> ObservedProcess:
    """Return the first process of the worker: not bwrap, and not our own wrapper, which has no stdin."""
    for process in processes:
        if process.name not in _WRAPPERS and _stat(f"/proc/{process.pid}/fd/0") is not None:
            return process
    return processes[0]


def _list_awaited(pid: int) -> Iterator[os.stat_result | None]:
    """Yield the files that blocked threads of a process wait to read from; None if that is not visible."""
    closed = False
    for task in _tasks(pid):
        try:
            call = _read_strictly(f"/proc/{pid}/task/{task}/syscall").split()
        except PermissionError:
            yield None
            return
        except OSError:
            continue
        kind = _CALLS.get(int(call[0])) if len(call) == 9 else None
        if kind is None:
            continue
        if kind == _RING:
            closed = True
            continue
        for descriptor in _descriptors(pid, kind, [int(argument, 16) for argument in call[1:7]]):
            found = _stat(f"/proc/{pid}/fd/{descriptor}")
            if found is not None:
                yield found
    if closed:
        yield None


def _descriptors(pid: int, kind: int, arguments: list[int]) -> list[int]:
    first, second = arguments[:2]
    if kind == _READ:
        return [first]
    if kind == _POLL:
        array = _memory(pid, first, min(second, MAX_DESCRIPTORS) * _POLLFD.size)
        whole = len(array) - len(array) % _POLLFD.size
        return [fd for fd, events, _ in _POLLFD.iter_unpack(array[:whole]) if events & _READABLE and fd >= 0]
    if kind == _SELECT:
        count = min(first, MAX_DESCRIPTORS)
        wanted = int.from_bytes(_memory(pid, second, (count + 7) // 8), "little") if second else 0
        return [fd for fd in range(count) if wanted >> fd & 1]
    found = []
    for line in _read(f"/proc/{pid}/fdinfo/{first}").splitlines():
        fields = line.split()  # tfd: N events: HEX …
        if fields[:1] == [b"tfd:"] and len(fields) > 3 and int(fields[3], 16) & _READABLE:
            found.append(int(fields[1]))
    return found


def _terminal_device(process: ObservedProcess, stdin: os.stat_result | None) -> int:
    if stdin is not None and stat.S_ISCHR(stdin.st_mode) and os.major(stdin.st_rdev) in _PTY_SLAVES:
        return stdin.st_rdev
    return process.terminal


def _is_stream(found: os.stat_result) -> bool:
    return stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)


def _is_terminal(found: os.stat_result, device: int, process: ObservedProcess) -> bool:
    if not stat.S_ISCHR(found.st_mode):
        return False
    return found.st_rdev == device or (found.st_rdev == _CONTROLLING and process.terminal == device)


def _settings(pid: int, device: int) -> TerminalSettings | None:
    """Read the settings of the terminal. It is opened briefly, and never as a controlling terminal."""
    if os.major(device) not in _PTY_SLAVES:
        return None
    number = os.minor(device) + (os.major(device) - _PTY_SLAVES.start << 8)
    # By number only if we may not open the worker's descriptors: in another /dev/pts it may be another one.
    for path in (f"/proc/{pid}/fd/0", f"/proc/{pid}/fd/1", f"/proc/{pid}/fd/2", f"/dev/pts/{number}"):
        found = _stat(path)
        if found is None or found.st_rdev != device:
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            flags = termios.tcgetattr(descriptor)[3]
            unread = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
        except (OSError, termios.error):
            continue
        finally:
            os.close(descriptor)
        return TerminalSettings(bool(flags & termios.ICANON), bool(flags & termios.ECHO), unread)
    return None


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")[:MAX_PROCESSES]
    except OSError:
        return []


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return _read_strictly(path)
    return b""


def _read_strictly(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def _memory(pid: int, address: int, size: int) -> bytes:
    with contextlib.suppress(OSError, OverflowError):
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, address)
        finally:
            os.close(descriptor)
    return b""
