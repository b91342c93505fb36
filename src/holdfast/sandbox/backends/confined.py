"""A confined command: the process around it, from the launcher's fork to the command's end.

    launcher
      init     PID 1 of the namespaces: builds the view, starts the command, reaps, forwards signals
        command

Init leads a process group of its own. A signal to that group reaches init, which passes it on to the
command's own group. SIGKILL ends init, and with PID 1 the kernel ends everything inside. Init dies with its
parent, so no process is left when the launcher is killed.

A job is a command on a person's terminal. It is not a session leader: the kernel lets Control-Z stop a
process group only if a process in its session, outside the group, could continue it. So init leads the
session, the job gets the foreground of its terminal, and each time the job is stopped init reports the
signal on the job's pipe. Any other command can only be stopped by SIGSTOP, so init turns SIGTSTP into that.

Init stays between the command and the launcher because PID 1 is special: the kernel ignores signals that it
has no handler for, so a command as PID 1 could not end itself with one. For the same reason init cannot end
by the signal that killed the command: its exit code is then 128 plus the signal.

The report on the status pipe (`protocol/orders.py`) says what happened before the command ran, and last that
the command runs. A process killed before that point does not report the last word.
"""

import errno
import os
import select

from holdfast.light import Callable, Final, Iterable, Iterator, NamedTuple, NoReturn, Sequence, signal
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.kernel.namespaces import drop, fork, isolate, own_mounts
from holdfast.sandbox.kernel.view import CONSOLE, build_view
from holdfast.sandbox.plan.plan import Base, Plan
from holdfast.sandbox.protocol.orders import (
    HAS_STATE,
    JOB,
    STATE_FD,
    TTY,
    WATCH,
    ConfinementKind,
    Order,
    encode_report,
)

_JOB_FD: Final = 3  # number of the job's pipe in the process around a job, once the job runs
NOT_STARTED: Final = 125  # exit status of a set-up that failed; the report has the reason
_UNBLOCKABLE: Final = (signal.SIGKILL, signal.SIGSTOP)
ALL_SIGNALS: Final = tuple(sorted(signal.valid_signals() - set(_UNBLOCKABLE)))
FORWARDED: Final = (
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


class PreparedCommand(NamedTuple):
    """What to run. `fds` are (descriptor here, number there); with a terminal 0, 1 and 2 are that.

    `job_fd` is the pipe on which a job's stops are reported; -1 if the command is no job.
    """

    program: bytes
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    fds: tuple[tuple[int, int], ...]
    tty: str | None = None
    job_fd: int = -1


def command_of(request: Order, fds: Sequence[int]) -> PreparedCommand:
    """The command of an order, with the descriptors that came with it."""
    tty = os.ttyname(fds[0]) if request.flags & TTY else None
    streams = () if tty else tuple((fd, target) for target, fd in enumerate(fds[:3]))
    state = ((fds[3], STATE_FD),) if request.flags & HAS_STATE else ()
    env = dict(entry.split(b"=", 1) for entry in request.env)
    job_fd = fds[3 + len(state)] if request.flags & JOB else -1
    return PreparedCommand(request.program, request.argv, env, (*streams, *state), tty, job_fd)


def watch_of(request: Order, fds: Sequence[int]) -> int:
    """The socket of an order on which the watch waits for a listener; -1 if the command is not watched."""
    return fds[-1] if request.flags & WATCH else -1


class Channel(NamedTuple):
    """The socket that receives a command's listener, and whether a watcher is at its other end."""

    fd: int = -1
    watched: bool = False


def start(
    kind: ConfinementKind,
    plan: Plan,
    command: PreparedCommand,
    *,
    status_fd: int,
    listeners_fd: int = -1,
    masks_fd: int = -1,
    enter: Callable[[], None] | None = None,
    channel: Channel = Channel(),  # noqa: B008 - a value
) -> int:
    """Fork a process that ends as the confined command does; return its pid.

    If the command could not be started, a report on `status_fd`, which must be close-on-exec, has the
    reason. A plan that lets ports through needs `listeners_fd`: the listening sockets are sent on this
    socket before the command is started. A plan that covers something sends its namespaces on `masks_fd`, if
    given. The listener that `listener.py` makes goes to `channel`; without a channel no unix socket can be
    made. The process calls `enter`, which applies its limits, before anything else. The caller must have one
    thread.

    Raises:
        StageFailed: the process could not be forked.
    """
    uid, gid = os.getuid(), os.getgid()
    pid = fork(userns=kind.userns)
    if pid:
        return pid
    try:
        if enter is not None:
            enter()
        lead()
        if _nobody_reads(status_fd):
            os._exit(NOT_STARTED)  # the launcher died before it could kill us
        weakened = isolate(uid=uid, gid=gid, userns=kind.userns, network_off=kind.network_off)
        run(plan, command, weakened, status_fd, listeners_fd, masks_fd, channel)
    except BaseException as exc:  # no exception may return into the launcher's loop
        fail(status_fd, exc)


def lead() -> None:
    """Lead a new session, block signals (they are waited for), and die with our parent."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
    with Stage("processes"):
        kernel.die_with_parent(signal.SIGKILL)
    kernel.prefer_when_out_of_memory()


def run(
    plan: Plan,
    command: PreparedCommand,
    weakened: tuple[str, ...],
    status_fd: int,
    listeners_fd: int,
    masks_fd: int,
    channel: Channel,
) -> NoReturn:
    """Run as init: finish the set-up, start the command, end as it does. `weakened` is known so far."""
    # Import while the host's files are visible, and no others.
    if plan.by_name:
        from holdfast.sandbox.kernel import resolver  # noqa: F401
        from holdfast.sandbox.protocol import names
    if plan.loopback_ports:
        from holdfast.sandbox.protocol import loopback
    from holdfast.sandbox.watcher import listener

    own_mounts()
    if masks_fd >= 0:
        listener.hand_out_namespaces(masks_fd)
    weakened += build_view(plan, command.tty)
    if plan.by_name:
        names.hand_out(weakened, listeners_fd)
    if plan.loopback_ports:
        loopback.hand_out(plan, weakened, listeners_fd)  # binding some ports takes privileges
    weakened += drop(plan)
    # The command has our user id. Without this it could write our memory through /proc, which no filter
    # guards.
    with Stage("processes"):
        kernel.forbid_inspection()
    weakened += listener.broker_out(channel.fd, watched=channel.watched, network_off=plan.network_off)
    if command.tty is not None and plan.base is not Base.UNTOUCHED:
        command = command._replace(tty=CONSOLE)
    if command.job_fd >= 0:
        _report(status_fd, encode_report(weakened, begins=True))
        pid = start_job(command, lambda: become(command), status_fd)
    else:
        with Stage("exec", os.fsdecode(command.program)):
            kernel.close_on_exec_from(3)
            pid = spawn(command)
        _report(status_fd, encode_report(weakened, runs=True))
    job_fd = keep_only(command.job_fd)
    end_like(attend(pid, lambda signum: signal_command(pid, signum, job=job_fd >= 0), job_fd))


def _nobody_reads(pipe: int) -> bool:
    asked = select.poll()
    asked.register(pipe, 0)
    return bool(asked.poll(0))


def spawn(command: PreparedCommand) -> int:
    """Start a command as the leader of a new session, in our directory; return its pid.

    Raises:
        OSError: it cannot be started.
    """
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = []
    if command.tty is not None:
        # The first terminal a session leader opens becomes its controlling terminal.
        actions.append((os.POSIX_SPAWN_OPEN, 0, command.tty, os.O_RDWR, 0))
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in command.fds]

    def begin(program: bytes) -> int:
        return os.posix_spawn(
            program,
            command.argv,
            command.env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=ALL_SIGNALS,
        )

    return first_found(command, begin)


def start_job(command: PreparedCommand, go_on: Callable[[], NoReturn], status_fd: int) -> int:
    """Fork a process that has the foreground of the command's terminal and calls `go_on`; return its pid.

    We are a session leader without a terminal, so this one becomes ours. Failures are reported on
    `status_fd`.

    Raises:
        StageFailed: the process could not be forked.
    """
    with Stage("processes"):
        terminal = os.open(command.tty or "", os.O_RDWR | os.O_CLOEXEC)
        pid = os.fork()
    if pid:
        return pid
    try:
        with Stage("processes"):
            os.setpgid(0, 0)
            os.tcsetpgrp(terminal, os.getpid())  # before it can read, which would stop it
            kernel.close_on_exec_from(3)
            for target in range(3):
                os.dup2(terminal, target)
        go_on()
    except BaseException as exc:  # no exception may return into the code of the process that we are a copy of
        fail(status_fd, exc)


def become(command: PreparedCommand) -> NoReturn:
    """Become the command. Raises StageFailed."""

    def begin(program: bytes) -> NoReturn:
        os.execve(program, command.argv, command.env)  # noqa: S606 - the command itself

    for signum in ALL_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)  # an ignored signal would stay ignored in the command
    with Stage("exec", os.fsdecode(command.program)):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        first_found(command, begin)
    raise AssertionError("it has become the command, or has failed")


def keep_only(fd: int) -> int:
    """Close every descriptor but this one; return its new number. An open end of a pipe would never end.

    The number is never 0: our processes have no standard input, which distinguishes them from the command
    (`agents/worker/procwatch.py`).
    """
    if fd < 0:
        kernel.close_from(0)
        return fd
    os.dup2(fd, _JOB_FD, inheritable=False)
    kernel.close_range(0, _JOB_FD - 1)
    kernel.close_from(_JOB_FD + 1)
    return _JOB_FD


def first_found(command: PreparedCommand, begin: Callable[[bytes], int]) -> int:
    """Call `begin` with the first program that is found where a shell would look for it; return its result.

    Raises:
        OSError: none can be started.
    """
    denied = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for program in _candidates(command.program, command.env.get(b"PATH", os.defpath.encode())):
        try:
            return begin(program)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as exc:
            denied = exc  # as a shell does: a match without permission is reported rather than no match
    raise denied


def _candidates(program: bytes, path: bytes) -> Iterator[bytes]:
    if b"/" in program:
        yield program
        return
    for folder in path.split(b":"):
        found = os.path.join(folder or b".", program)
        if os.path.exists(found):
            yield found


def attend(child: int, forward: Callable[[int], None], job_fd: int = -1) -> int:
    """Reap children and forward signals, which must be blocked, until `child` ends; its wait status."""
    awaited = {signal.SIGCHLD, *FORWARDED}
    options = wait_options(job_fd)
    while True:
        arrived = signal.sigwait(awaited)
        if arrived != signal.SIGCHLD:
            forward(arrived)
            continue
        while True:
            pid, status = os.waitpid(-1, options)
            if pid == child and not tell_stop(job_fd, status):
                return status
            if pid == 0:
                break


def wait_options(job_fd: int) -> int:
    """The options to wait for a command and its descendants; for a job these include stops."""
    return os.WNOHANG | (os.WUNTRACED if job_fd >= 0 else 0)


def tell_stop(job_fd: int, status: int) -> bool:
    """Whether this wait status is a stop, not an end. A stop is reported on the job's pipe."""
    if not os.WIFSTOPPED(status):
        return False
    try:
        os.write(job_fd, f"{os.WSTOPSIG(status)}\n".encode())
    except OSError:
        return True  # the reader is gone, and is about to end us
    return True


def signal_command(leader: int, signum: int, *, job: bool) -> None:
    """Signal the group of a command that has not been reaped; converts SIGTSTP unless it is a job."""
    signal_group(leader, signum if job else stopping(signum))


def stopping(signum: int) -> int:
    """The signal that affects a group with a session of its own as this one affects a job."""
    return signal.SIGSTOP if signum == signal.SIGTSTP else signum


def signal_group(leader: int, signum: int) -> None:
    """Signal the group of a command that has not been reaped."""
    try:
        os.killpg(leader, signum)
    except ProcessLookupError:
        return  # it has ended; SIGCHLD is about to arrive


def report_weakened(status_fd: int, words: Iterable[str]) -> None:
    """Report on the status pipe what came out weaker than the plan requires."""
    _report(status_fd, encode_report(words))


def end_like(status: int) -> NoReturn:
    """End in the same way as a command that ended with this wait status."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def fail(status_fd: int, exc: BaseException) -> NoReturn:
    """Report on the status pipe why the command does not run, and end."""
    if not isinstance(exc, StageFailed):
        exc = StageFailed("internal", exc.errno or errno.EIO if isinstance(exc, OSError) else errno.EIO)
    _report(status_fd, encode_report(failure=exc))
    os._exit(NOT_STARTED)


def _report(status_fd: int, data: bytes) -> None:
    try:
        if data:
            os.write(status_fd, data)
    except OSError:
        return  # the reader is gone
