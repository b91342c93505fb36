"""A confined command: the processes around it, from the launcher's fork to the command's end.

    launcher
      outer    enters the namespaces; outside of the PID namespace; ends exactly as the command did
        init   PID 1 inside: builds the view, starts the command, reaps, forwards signals
          command

The outer process leads a process group in which init is too. A signal to that group reaches init,
which passes it on to the command's own group; SIGKILL ends both, and with PID 1 the kernel ends
everything inside. Either dies with its parent, so nothing is left when the launcher is killed.

Init stays between the command and the outer process because PID 1 is special: the kernel ignores
signals that it has no handler for, so a command as PID 1 could not end itself with one.

The report on the status pipe tells what happened before the command ran. End of file without a
failure means that it runs.
"""

import errno
import os
import signal
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NoReturn

from holdfast.sandbox import kernel
from holdfast.sandbox.kernel import SetupFailed, Stage
from holdfast.sandbox.namespaces import drop, enter
from holdfast.sandbox.plan import Base, Plan
from holdfast.sandbox.view import CONSOLE, build_view

MAX_REPORT: Final = 8192  # a few words and one path
_NOT_STARTED: Final = 125  # exit status of a set-up that failed; the report says why
_STATUS: Final = struct.Struct("i")
_UNBLOCKABLE: Final = (signal.SIGKILL, signal.SIGSTOP)
_ALL_SIGNALS: Final = tuple(sorted(signal.valid_signals() - set(_UNBLOCKABLE)))
_FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)

_FAILED, _WEAKENED = "failed", "weakened"


class Command(NamedTuple):
    """What to run. `fds` are (descriptor here, number there); with a terminal 0, 1 and 2 are that."""

    program: bytes
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    fds: tuple[tuple[int, int], ...]
    tty: str | None = None


class Report(NamedTuple):
    """What the status pipe said until its end."""

    weakened: tuple[str, ...] = ()
    failure: SetupFailed | None = None


def decode_report(data: bytes) -> Report:
    """The report in what was read from the status pipe until its end.

    Raises:
        ValueError: these bytes are not a report.
    """
    fields = iter(data.decode("utf-8", "surrogateescape").split("\0")[:-1])
    weakened: list[str] = []
    for kind in fields:
        if kind == _WEAKENED:
            weakened.append(next(fields, ""))
        elif kind == _FAILED:
            stage, code, path = next(fields, ""), next(fields, ""), next(fields, "")
            return Report(tuple(weakened), SetupFailed(stage, int(code), path))
        else:
            raise ValueError("not a report")
    return Report(tuple(weakened))


def run(plan: Plan, command: Command, *, parent: int, status_fd: int, userns: bool) -> NoReturn:
    """Be the confined command. To be called right after a fork, in the child of `parent`.

    Ends with the command's own status, or when it could not be started with a report on
    `status_fd`, which must be close-on-exec.
    """
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        ours, theirs = socket.socketpair()
        enter(plan, uid=os.getuid(), gid=os.getgid(), userns=userns)
        with Stage("processes"):
            kernel.die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(_NOT_STARTED)
            init = os.fork()
        if init == 0:
            ours.close()
            _be_init(plan, command, theirs, status_fd)
        _keep_only(ours.detach())
        _end_as(init)
    except BaseException as exc:  # whatever it is, it must not return into the launcher's loop
        report_failure(status_fd, exc)
        os._exit(_NOT_STARTED)


def _be_init(plan: Plan, command: Command, outer: socket.socket, status_fd: int) -> NoReturn:
    with Stage("processes"):
        kernel.die_with_parent(signal.SIGKILL)
    if _is_closed(outer):
        os._exit(_NOT_STARTED)
    weakened = build_view(plan, command.tty) + drop(plan)
    # The command has our user id: without this it could write our memory, which no filter guards
    # when it is done through /proc.
    with Stage("processes"):
        kernel.forbid_inspection()
    with Stage("exec", os.fsdecode(command.program)):
        kernel.close_on_exec_from(3)
        in_view = command.tty is not None and plan.base is not Base.UNTOUCHED
        pid = spawn(command._replace(tty=CONSOLE) if in_view else command)
    _report(status_fd, (field for word in weakened for field in (_WEAKENED, word)))
    _keep_only(outer.detach())
    os.write(0, _STATUS.pack(_reap(pid)))
    os._exit(0)


def _is_closed(sock: socket.socket) -> bool:
    """Has the process at the other end died before it could take us along?"""
    try:
        return sock.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def spawn(command: Command) -> int:
    """Start a command as the leader of a new session, in our directory; its pid.

    Raises:
        OSError: it can not be started.
    """
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = []
    if command.tty is not None:
        # The first terminal a session leader opens becomes its controlling terminal.
        actions.append((os.POSIX_SPAWN_OPEN, 0, command.tty, os.O_RDWR, 0))
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in command.fds]
    denied = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for program in _candidates(command.program, command.env.get(b"PATH", os.defpath.encode())):
        try:
            return os.posix_spawn(
                program,
                command.argv,
                command.env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_ALL_SIGNALS,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as exc:
            denied = exc  # as a shell does: a forbidden match is worth more than no match
    raise denied


def _candidates(program: bytes, path: bytes) -> Iterator[bytes]:
    """Where a program may be, as a shell looks for it."""
    if b"/" in program:
        yield program
        return
    for folder in path.split(b":"):
        found = os.path.join(folder or b".", program)
        if os.path.exists(found):
            yield found


def _reap(command: int) -> int:
    """Reap everything and forward signals until the command ends; its wait status."""
    awaited = {signal.SIGCHLD, *_FORWARDED}
    while True:
        arrived = signal.sigwait(awaited)
        if arrived != signal.SIGCHLD:
            _signal_group(command, arrived)
            continue
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == command:
                return status
            if pid == 0:
                break


def _signal_group(leader: int, signum: int) -> None:
    try:
        os.killpg(leader, signum)
    except ProcessLookupError:
        return  # it has ended, which SIGCHLD is about to say


def _keep_only(fd: int) -> None:
    """Make this descriptor number 0 and close all others: an end of a pipe held here never ends."""
    os.dup2(fd, 0)
    kernel.close_from(1)


def _end_as(init: int) -> NoReturn:
    """Wait for the status that init leaves on descriptor 0, and end in the same way."""
    data = os.read(0, _STATUS.size)
    _, status = os.waitpid(init, 0)  # returns when every process inside is gone
    if data:
        (status,) = _STATUS.unpack(data)
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        kernel.forbid_inspection()  # one core dump, the command's, is enough
        if signum not in _UNBLOCKABLE:
            signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signum,))
        os.kill(os.getpid(), signum)
        os._exit(128 + signum)
    os._exit(os.waitstatus_to_exitcode(status))


def report_failure(status_fd: int, exc: BaseException) -> None:
    """Say on the status pipe why the command does not run."""
    if not isinstance(exc, SetupFailed):
        exc = SetupFailed("internal", exc.errno or errno.EIO if isinstance(exc, OSError) else errno.EIO)
    _report(status_fd, (_FAILED, exc.stage, str(exc.errno), exc.path))


def _report(status_fd: int, fields: Iterable[str]) -> None:
    data = "".join(f"{field}\0" for field in fields).encode("utf-8", "surrogateescape")
    try:
        if data:
            os.write(status_fd, data)
    except OSError:
        return  # nobody listens any more
