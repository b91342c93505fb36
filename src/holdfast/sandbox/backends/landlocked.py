"""A command confined by Landlock and seccomp alone: where there are no namespaces.

    launcher
      keeper   adopts orphaned descendants of the command, ends them, and ends exactly as the command did
        command

The keeper replaces the end of a PID namespace: with the command it ends every process that the command
started, including those that left its group and session. It could not do that if it were killed itself, so
it is ended by a signal of its own, `END`, which the kernel also sends when the launcher dies. The keeper is
outside of the command's Landlock domain, and so out of its reach.

A process that forks and exits at once cannot be killed by its pid. So the keeper is itself in a Landlock
domain, around the command's, that keeps its signals in: it may only signal processes that it started. One
`kill` to all processes then reaches them in one step of the kernel, in which no process can fork. An older
Landlock does not scope signals, and a command that is only kept is in no domain. There the keeper kills as
fast as it can until no process is left, and the launcher ends the control group where one can be made.

The command's process confines itself and becomes the command by exec. The report on the status pipe is as in
`confined.py`: end of file without a failure means that the command runs.
"""

import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable
from typing import Final, NoReturn

from holdfast.sandbox.backends.confined import (
    ALL_SIGNALS,
    FORWARDED,
    NOT_STARTED,
    PreparedCommand,
    become,
    end_like,
    fail,
    keep_only,
    signal_command,
    start_job,
    tell_stop,
    wait_options,
)
from holdfast.sandbox.kernel import kernel, landlock, seccomp, usage
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.plan.grants import SCOPE_ABI, TERMINAL, TooManyGrants, grants
from holdfast.sandbox.plan.plan import Base, Plan
from holdfast.sandbox.watcher import listener

END: Final = signal.SIGPWR  # to the keeper; this signal is never passed on to a command
_ENDING_S: Final = 5.0  # how long killing may take before we give up on unkillable processes
_LOOK_AGAIN_S: Final = 0.005
_FREE_FD: Final = 64  # from here on no descriptor number has a meaning for the command
_MACHINE: Final = os.uname().machine


def warm() -> None:
    """Build once, before any fork, the filters that every start needs."""
    if _MACHINE in seccomp.ARCHITECTURES:
        for off in (False, True):
            _filter(network_off=off)


def _filter(*, network_off: bool) -> bytes:
    sockets = seccomp.Sockets.NONE if network_off else seccomp.Sockets.NO_UNIX
    return seccomp.program(_MACHINE, sockets, alone=True)


def run(
    plan: Plan,
    command: PreparedCommand,
    *,
    parent: int,
    status_fd: int,
    degraded: bool,
    watch_fd: int = -1,
    confine: bool = True,
    enter: Callable[[], None] | None = None,
) -> NoReturn:
    """Run the confined command, under the limits of `enter`. Call this right after a fork of `parent`.

    With `confine` false the command is only kept: it runs unconfined, but its descendants end with it.

    Ends with the command's own status. If the command could not be started, a report is written to
    `status_fd`, which must be close-on-exec.
    """
    try:
        if enter is not None:
            enter()
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        with Stage("processes"):
            kernel.adopt_orphans()
            kernel.die_with_parent(END)
            if os.getppid() != parent:
                os._exit(NOT_STARTED)
            status_fd = fcntl.fcntl(status_fd, fcntl.F_DUPFD_CLOEXEC, _FREE_FD)
            if watch_fd >= 0:
                watch_fd = fcntl.fcntl(watch_fd, fcntl.F_DUPFD_CLOEXEC, _FREE_FD)
            kernel.forbid_inspection()  # until exec; no process may steer the keeper through its memory
            keeper = os.getpid()
        reaches_only_its_own = confine and _keep_signals_in(parent, files=plan.base is not Base.UNTOUCHED)

        def go_on() -> NoReturn:
            _prepare(keeper=keeper, cwd=plan.cwd)
            if confine:
                _confine(plan, command, degraded=degraded)
            if watch_fd >= 0:
                listener.hand_out(watch_fd, watched=True, network_off=plan.network_off)
            become(command)

        if command.job_fd >= 0:
            pid = start_job(command, go_on, status_fd)
        else:
            with Stage("processes"):
                pid = os.fork()
            if pid == 0:
                os.setsid()
                with Stage("processes"):
                    _take_descriptors(command)
                go_on()
        status = _await(pid, keep_only(command.job_fd))
        _end_descendants(at_once=reaches_only_its_own)
        end_like(status)
    except BaseException as exc:  # no exception may return into the launcher's loop
        fail(status_fd, exc)


def _await(command: int, job_fd: int) -> int:
    """Reap and forward signals until the command has ended or must end; return its wait status."""
    awaited = {signal.SIGCHLD, END, *FORWARDED}
    options = wait_options(job_fd)
    while True:
        arrived = signal.sigwait(awaited)
        if arrived == END:
            return int(signal.SIGKILL)
        if arrived != signal.SIGCHLD:
            signal_command(command, arrived, job=job_fd >= 0)
            continue
        while (ended := os.waitpid(-1, options))[0]:
            if ended[0] == command and not tell_stop(job_fd, ended[1]):
                return ended[1]


def _keep_signals_in(parent: int, *, files: bool) -> bool:
    """From now on we can signal only our descendants; return False where Landlock cannot enforce that."""
    if landlock.abi() < SCOPE_ABI:
        return False
    with Stage("nnp"):
        kernel.refuse_new_privileges()
    with Stage("landlock"):
        landlock.keep_signals_in(files=files)
        try:
            os.kill(parent, 0)
        except PermissionError:
            return True
        raise OSError(
            errno.ENOSYS, os.strerror(errno.ENOSYS)
        )  # the kernel reports this feature but does not enforce it


def _end_descendants(*, at_once: bool) -> None:
    """Kill all descendants; `at_once` if we are unable to signal any other process."""
    deadline = time.monotonic() + _ENDING_S
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if at_once:
            _kill(-1)
            signal.sigtimedwait({signal.SIGCHLD}, _LOOK_AGAIN_S)
            continue
        for pid in usage.tree(os.getpid())[1:]:  # orphans become our children, so none has left the tree
            _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _prepare(*, keeper: int, cwd: str) -> None:
    with Stage("processes"):
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(NOT_STARTED)
    kernel.prefer_when_out_of_memory()
    with Stage("cwd", cwd):
        os.chdir(cwd)


def _confine(plan: Plan, command: PreparedCommand, *, degraded: bool) -> None:
    with Stage("capabilities"):
        kernel.drop_capabilities(bounding_set=False)  # an ordinary user may not drop it, and need not
    with Stage("nnp"):
        kernel.refuse_new_privileges()
    _restrict(plan, command.tty, degraded=degraded)
    if _MACHINE not in seccomp.ARCHITECTURES:
        raise StageFailed("seccomp", errno.ENOSYS)
    with Stage("seccomp"):
        kernel.install_filter(_filter(network_off=plan.network_off))


def _take_descriptors(command: PreparedCommand) -> None:
    """Move the command's descriptors to their numbers; no other descriptor survives exec."""
    # Move them out of the way first: one may have the number of another.
    moved = [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FREE_FD), target) for fd, target in command.fds]
    if command.tty is not None:
        # The first terminal that a session leader opens becomes its controlling terminal.
        terminal = os.open(command.tty, os.O_RDWR | os.O_CLOEXEC)
        moved += [(terminal, target) for target in range(3)]
    kernel.close_on_exec_from(0)
    for fd, target in moved:
        os.dup2(fd, target)


def _restrict(plan: Plan, tty: str | None, *, degraded: bool) -> None:
    for step in plan.steps:
        with Stage(step.kind.value, step.path):
            _check(step.path)
    with Stage("landlock"):
        abi = landlock.usable_abi()
    try:
        granted = grants(plan, _entries, degraded=degraded)
    except TooManyGrants as exc:
        raise StageFailed("grants", errno.E2BIG, str(exc)) from None
    if tty is not None:
        granted.append((tty, TERMINAL))
    # Scopes make a domain too, and with it processes outside cannot be inspected.
    files = plan.base is not Base.UNTOUCHED or abi < SCOPE_ABI
    with Stage("landlock"):
        landlock.restrict(granted, abi=abi, files=files)


def _check(path: str) -> None:
    """Check that a path of the plan exists and no link leads to it; ignore one that is out of our reach."""
    try:
        os.close(kernel.open_path(path))
    except PermissionError as exc:
        if exc.errno != errno.EACCES:
            raise


def _entries(path: str) -> list[str]:
    """The names in a directory that are no symbolic links; an empty list if we cannot read the directory."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
