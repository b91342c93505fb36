"""A command confined by bubblewrap: the processes around it.

    launcher
      supervisor    this one; ends with the command's exit code, or 128 plus the signal
        bwrap       outside; waits for the processes that it made
          shim      PID 1 inside (bubblewrap.py), in a session of its own
            command

Supervisor and bwrap are one process group. SIGKILL to that group ends both, and with bwrap the shim and
everything inside. Every other signal is meant for the command: the launcher sends it to the supervisor
alone, because bwrap would die of it, and the supervisor passes it on.

bwrap builds the view, reports the pid of the shim, and starts it; the shim reports and waits. Now the
supervisor checks the finished view from outside. bwrap works with names, so a process that renamed something
meanwhile could have had another tree mounted. Only after this check may the command run. A shim without a
supervisor ends by itself, so that it does not matter which process is killed at what moment.

bwrap's messages come here on a pipe and never into the command's output. bwrap itself starts with an empty
environment, because the command's variables (LD_PRELOAD, say) must not take effect outside. They reach bwrap
with all other arguments through a descriptor, where no list of processes shows them.
"""

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterable, Set
from typing import Final, NamedTuple, NoReturn

from holdfast.sandbox.backends import bubblewrap
from holdfast.sandbox.backends.bubblewrap import BwrapSettings, arguments, find_place, list_mounts
from holdfast.sandbox.backends.confined import (
    ALL_SIGNALS,
    NOT_STARTED,
    PreparedCommand,
    attend,
    end_like,
    fail,
    keep_only,
    lead,
    report_weakened,
    signal_command,
)
from holdfast.sandbox.kernel import kernel, resolver, seccomp
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.kernel.view import CONSOLE, KERNEL_SWITCHES, OLD_PROC
from holdfast.sandbox.plan.plan import MASKS, NAME_SERVER, Base, Plan, Step, StepKind
from holdfast.sandbox.protocol.loopback import hand_out_from
from holdfast.sandbox.protocol.orders import in_memory
from holdfast.sandbox.watcher.listener import NO_BROKER

UNKNOWN: Final = "bwrap:bwrap.other"  # the stage of a failure without a known explanation
NO_LANDLOCK: Final = "landlock"  # a process under Landlock may not mount, so there is no second layer
_ARGUMENTS_FD, _FILTER_FD, _INFO_FD = 10, 11, 12  # numbers in bwrap; it closes them before the shim
_FILES_FD: Final = 13  # the first descriptor of our own files
_FIRST_SOURCE: Final = 20  # above every number that a descriptor is moved to
_MAX_TEXT: Final = 64 * 1024  # the capacity of a pipe
_MACHINE: Final = os.uname().machine
_MEMORY: Final = "holdfast-bwrap"  # the name of in-memory files


class _Running(NamedTuple):
    """The processes that were started and wait for permission to run the command."""

    bwrap: int
    init: int
    leave: int


class _Seen(NamedTuple):
    """The paths of the plan as they were on the host just before the start."""

    found: list[tuple[Step, tuple[int, int]]]
    unreachable: frozenset[str]


def run(
    plan: Plan,
    command: PreparedCommand,
    *,
    parent: int,
    status_fd: int,
    tool: str,
    enter: Callable[[], None] | None = None,
    enter_inside: Callable[[int], None] | None = None,
    listeners_fd: int = -1,
) -> NoReturn:
    """Run the confined command, under the limits of `enter`. Call this right after a fork of `parent`.

    `enter_inside` puts limits on the process that becomes the command, once it is in its user namespace. The
    listening sockets for loopback ports of the host, and those for names of hosts, are sent on
    `listeners_fd`.

    Ends with the command's own status. If the command could not be started, a report is written to
    `status_fd`, which must be close-on-exec.
    """
    try:
        if enter is not None:
            enter()
        lead()
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        weakened: tuple[str, ...] = (NO_LANDLOCK, NO_BROKER)
        try:
            started = _start(plan, command, tool, fresh_proc=True)
        except StageFailed as exc:
            if exc.stage != "bwrap:proc.masked":
                raise
            weakened += (OLD_PROC,)
            started = _start(plan, command, tool, fresh_proc=False)
        if enter_inside is not None:
            enter_inside(started.init)
        if plan.listens:
            hand_out_from(plan, started.init, listeners_fd)
        os.write(started.leave, b"\n")
        report_weakened(status_fd, weakened)
        leave = keep_only(started.leave if command.job_fd >= 0 else -1)
        end_like(attend(started.bwrap, lambda signum: _forward(started.init, signum, leave)))
    except BaseException as exc:  # no exception may return into the launcher's loop
        fail(status_fd, exc)


def _start(plan: Plan, command: PreparedCommand, tool: str, *, fresh_proc: bool) -> _Running:
    """Do everything up to the moment at which the command may run.

    Raises:
        StageFailed: the command may not run; no process is left.
    """
    files = _resolver_files(plan)
    seen = _look(plan, {place for place, _ in files})
    around = BwrapSettings(
        seccomp_fd=_FILTER_FD,
        status_fd=_INFO_FD,
        terminal=None if command.tty is None else (command.tty, CONSOLE),
        switches=tuple(path for name in KERNEL_SWITCHES if os.path.exists(path := f"/proc/{name}")),
        fresh_proc=fresh_proc,
        unreachable=seen.unreachable,
        files=tuple((number, place) for number, (place, _) in enumerate(files, _FILES_FD)),
    )
    said, bwraps_said = os.pipe2(os.O_CLOEXEC)
    report, shims_report = os.pipe2(os.O_CLOEXEC)
    shims_leave, leave = os.pipe2(os.O_CLOEXEC)
    # Not a pipe: without a reader, writing would kill bwrap, and the processes that it made would hang.
    info = in_memory(_MEMORY, b"")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in command.env.items() if name}
    options = in_memory(_MEMORY, b"".join(os.fsencode(word) + b"\0" for word in arguments(plan, env, around)))
    program = in_memory(_MEMORY, _filter())
    contents = [in_memory(_MEMORY, content) for _, content in files]
    placed = [
        *((null, 0), (null, 1), (bwraps_said, 2)),
        *((fd, bubblewrap.STREAMS.get(target, target)) for fd, target in command.fds),
        *(((command.job_fd, bubblewrap.JOB_FD),) if command.job_fd >= 0 else ()),
        *((shims_report, bubblewrap.REPORT_FD), (shims_leave, bubblewrap.LEAVE_FD)),
        *((options, _ARGUMENTS_FD), (program, _FILTER_FD), (info, _INFO_FD)),
        *((fd, number) for number, fd in enumerate(contents, _FILES_FD)),
    ]
    bwrap = _spawn(tool, _command_line(plan, command, env), placed)
    for fd in (bwraps_said, shims_report, shims_leave, null, options, program, *contents):
        os.close(fd)
    try:
        answer = _line(report)
        if not answer:
            os.waitpid(bwrap, 0)
            raise explain(os.read(said, _MAX_TEXT))
        try:
            _judge(answer, command)
            init = _init_of(os.pread(info, _MAX_TEXT, 0))
            _check(init, seen)
            if os.waitpid(bwrap, os.WNOHANG) != (0, 0):
                raise StageFailed(UNKNOWN, errno.ECHILD)
        except StageFailed:
            os.close(leave)  # the shim gives up, and all processes end with it
            os.waitpid(bwrap, 0)
            raise
    finally:
        for fd in (said, report, info):
            os.close(fd)
    return _Running(bwrap, init, leave)


def _resolver_files(plan: Plan) -> list[tuple[str, bytes]]:
    """Our own resolver files with their places; only those that have a place in the view."""
    if not plan.by_name:
        return []
    found = []
    for path, content in resolver.write(NAME_SERVER):
        real = os.path.realpath(path)
        place = find_place(plan, path, real, exists=os.path.isfile(real))
        if place is not None:
            found.append((place, content))
    return found


def _look(plan: Plan, covered: Set[str]) -> _Seen:
    """Refuse paths that are missing or reached by a link: bwrap would create them, or follow the link.

    A path in `covered` is skipped: a file of ours hides it in the view.
    """
    found: list[tuple[Step, tuple[int, int]]] = []
    unreachable = set()
    pins = (step for step in plan.steps if step.kind is StepKind.PIN)
    for step in (*pins, *list_mounts(plan)):
        if step.path in covered:
            continue
        with Stage(step.kind.value, step.path):
            try:
                found.append((step, _identity(step.path)))
            except PermissionError:
                if step.kind not in MASKS:
                    raise
                unreachable.add(step.path)  # for us, hence for the command, which has fewer privileges
    return _Seen(found, frozenset(unreachable))


def _identity(path: str, *root: int) -> tuple[int, int]:
    fd = kernel.open_path(path, *root)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return status.st_dev, status.st_ino


def _check(init: int, seen: _Seen) -> None:
    """Check that every path shows the right file: a grant must show what was seen, a mask must not."""
    with Stage("bwrap:bwrap.view"):
        root = os.open(f"/proc/{init}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            for step, identity in seen.found:
                shown = _identity(step.path, root) == identity
                if step.kind is not StepKind.PIN and shown is (step.kind in MASKS):
                    raise StageFailed("bwrap:bwrap.view", errno.ESTALE, step.path)
        finally:
            os.close(root)


def _filter() -> bytes:
    if _MACHINE not in seccomp.ARCHITECTURES:
        raise StageFailed("seccomp", errno.ENOSYS)
    # Unix sockets lead to services of the host, and bubblewrap hands no listener out to a broker.
    return seccomp.program(_MACHINE, seccomp.Sockets.NO_UNIX)


def _command_line(plan: Plan, command: PreparedCommand, env: dict[str, str]) -> list[str]:
    in_view = command.tty is not None and plan.base is not Base.UNTOUCHED
    inner = bubblewrap.command_line(
        os.fsdecode(command.program),
        [os.fsdecode(word) for word in command.argv],
        path=env.get("PATH", os.defpath),
        variables=env.keys(),
        terminal=CONSOLE if in_view else command.tty,
        job=command.job_fd >= 0,
    )
    return ["bwrap", "--args", str(_ARGUMENTS_FD), "--", *inner]


def _spawn(tool: str, argv: list[str], placed: Iterable[tuple[int, int]]) -> int:
    """Start bwrap in our process group, with only these descriptors."""
    moved = [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_SOURCE), target) for fd, target in placed]
    kernel.close_on_exec_from(3)
    try:
        with Stage("bwrap:bwrap.missing"):
            return os.posix_spawn(
                tool,
                argv,
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in moved],
                setsigmask=(),
                setsigdef=ALL_SIGNALS,
            )
    finally:
        for fd, _ in moved:
            os.close(fd)


def _line(fd: int) -> bytes:
    """The one line that the shim reports; empty if the shim never came to report."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(fd, 64)
        if not data:
            return b""
        line += data
    return line.strip()


def _judge(answer: bytes, command: PreparedCommand) -> None:
    if answer == bubblewrap.NO_ARG0.encode():
        raise StageFailed("bwrap:bwrap.arg0", errno.ENOSYS)
    if answer != b"0":
        raise StageFailed("exec", int(answer), os.fsdecode(command.program))


def _init_of(info: bytes) -> int:
    """The pid that bwrap names in the first of its records."""
    number = info.partition(b'"child-pid":')[2].partition(b",")[0].partition(b"}")[0].strip()
    if not number.isdigit():
        raise StageFailed(UNKNOWN, errno.EPROTO)
    return int(number)


def explain(text: bytes) -> StageFailed:
    """The failure that bwrap's message describes."""
    from holdfast.sandbox.reasons import fingerprint_table, fingerprints

    message = text.decode("utf-8", "replace").rstrip()
    known = {row.id for row in fingerprint_table.SETUP_ROWS}
    ids = [match.fingerprint.id for match in fingerprints.match(message) if match.fingerprint.id in known]
    codes = [code for code in errno.errorcode if message.endswith(os.strerror(code))]
    return StageFailed(f"bwrap:{ids[0]}" if ids else UNKNOWN, codes[0] if codes else errno.EIO)


def _forward(init: int, signum: int, leave: int) -> None:
    """Signal the command's group; that is the shim's group unless the command is a job or made its own."""
    if leave >= 0 and signum == signal.SIGCONT:
        os.write(leave, b"\n")  # the shim continues its job
    else:
        signal_command(_group_of_command(init), signum, job=leave >= 0)


def _group_of_command(init: int) -> int:
    try:
        with open(f"/proc/{init}/task/{init}/children", "rb") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{int(child)}/status", "rb") as file:
                numbers = next(line for line in file if line.startswith(b"NSpid:")).split()
            if numbers[-1] == b"2":
                return os.getpgid(int(child))
    except (OSError, StopIteration):
        pass  # it has ended, or this kernel does not report children
    return init
