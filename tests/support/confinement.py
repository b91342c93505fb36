"""Runs one command under a plan, as the launcher does: fork, confine, read the report.

    python -m tests.support.confinement OPTIONS -- COMMAND…

OPTIONS is one JSON object, `Options` below. The exit status is the command's, a death by signal included.
"""

import contextlib
import ctypes
import errno
import json
import os
import pty
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, NoReturn

from holdfast.sandbox.backends import bwrapped, confined, landlocked
from holdfast.sandbox.kernel import kernel, landlock
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol.orders import MAX_REPORT, ConfinementKind, decode_report
from holdfast.sandbox.watcher import broker, listener
from tests.support import faults, identity

SAFE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CALLS: Final = (
    "unshare",
    "open_path",
    "copy_tree",
    "put_tree",
    "new_filesystem",
    "set_attributes",
    "set_attributes_below",
    "make_private",
    "adopt_orphans",
    "die_with_parent",
    "forbid_inspection",
    "close_on_exec_from",
    "drop_capabilities",
    "refuse_new_privileges",
    "install_filter",
)


@dataclass(frozen=True, slots=True)
class Options:
    """How to run it. `uid` is taken on before the fork."""

    plan: str  # encoded, as latin-1
    userns: bool
    uid: int = identity.SELF
    tty: bool = False
    cover_proc: bool = False
    extra_fd: str = ""  # a file that the launcher happens to have open, inheritable, as 7
    sabotage: str = ""  # "fail" or "kill": not one run but many, see `sabotaged`
    alone: bool = False  # by Landlock alone
    degraded: bool = False
    report_fd: int = -1  # where the report goes, as JSON
    tool: str = ""  # the bubblewrap to confine with, if it is not us


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `status` as subprocess has it: negative for a signal."""

    status: int
    output: str
    weakened: list[str]
    failed: str | None
    errno: int


def run(
    applied: plan.Plan,
    *argv: str,
    userns: bool = True,
    uid: int = identity.SELF,
    tty: bool = False,
    cover_proc: bool = False,
    extra_fd: str = "",
    sabotage: str = "",
    alone: bool = False,
    degraded: bool = False,
    tool: str = "",
    typed: str = "",
    timeout_s: float = 30,
) -> Outcome:
    """Run a command in a process of its own, which has loaded what it needs as a launcher has."""
    from tests.support import warm  # which starts what loads this module

    encoded = plan.encode(applied).decode("latin-1")
    options = Options(
        *(encoded, userns, uid, tty, cover_proc, extra_fd, sabotage, alone, degraded), report_fd=3, tool=tool
    )
    status, output, reported = warm.of(uid).confine(
        words_of(options, argv), cwd=identity.top(uid), typed=typed.encode(), timeout=timeout_s
    )
    report = json.loads(reported or b"{}")
    return Outcome(
        status,
        output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n"),
        report.get("weakened", []),
        report.get("failed"),
        report.get("errno", 0),
    )


def words_of(options: Options, argv: tuple[str, ...]) -> list[str]:
    return [json.dumps(asdict(options)), "--", *argv]


def command_line(options: Options, argv: tuple[str, ...]) -> list[str]:
    """The command line of this module for these options."""
    return [identity.python(options.uid), "-m", "tests.support.confinement", *words_of(options, argv)]


def _cover_proc() -> None:
    """Be a container: with part of /proc covered the kernel allows no new one."""
    if not identity.AS_ROOT:
        faults.enter_own_user_namespace()
    kernel.unshare(kernel.CLONE_NEWNS)
    root = kernel.open_path("/")
    kernel.make_private(root)
    null = kernel.open_path("/dev/null")
    for name in ("/proc/timer_list", "/proc/version"):
        if os.path.exists(name):
            kernel.put_tree(kernel.copy_tree(null), kernel.open_path(name))
    if not identity.AS_ROOT:
        kernel.drop_capabilities(bounding_set=False)  # as an ordinary user has none


def _relay(master: int) -> None:
    """Copy the terminal to our output until its last user is gone, our input to it as it comes."""
    sources = [master, 0]
    while True:
        ready = select.select(sources, [], [])[0]
        if 0 in ready:
            typed = os.read(0, 4096)
            if typed:
                os.write(master, typed)
            else:
                sources.remove(0)
        if master in ready:
            try:
                data = os.read(master, 65536)
            except OSError:
                return
            os.write(1, data)


class Sabotage:
    """Makes the n-th kernel call of a set-up fail, or kill the process that makes it."""

    def __init__(self) -> None:
        self.left = -1
        self.deadly = False
        for module, name in [(kernel, name) for name in CALLS] + [(landlock, "restrict")]:
            setattr(module, name, self._wrapped(getattr(module, name)))

    def _wrapped(self, call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **options: object) -> object:
            self.left -= 1
            if self.left == 0:
                if not self.deadly:
                    raise OSError(errno.ENOTRECOVERABLE, "sabotage")
                if os.getpid() == 1:
                    os._exit(1)  # as after a SIGKILL from outside; its own would be ignored
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return wrapper


def start(applied: plan.Plan, command: confined.PreparedCommand, status_fd: int, options: Options) -> int:
    """As the launcher does; the pid of the process around the command."""
    if not options.alone and not options.tool:
        kind = ConfinementKind(options.userns, applied.network_off)
        ours, theirs = listener.pair()
        try:
            child = confined.start(
                kind, applied, command, status_fd=status_fd, channel=confined.Channel(theirs)
            )
        finally:
            os.close(theirs)
        if os.fork() == 0:
            _serve(ours, applied)
        os.close(ours)
        return child
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    if options.tool:
        bwrapped.run(applied, command, parent=parent, status_fd=status_fd, tool=options.tool)
    landlocked.run(applied, command, parent=parent, status_fd=status_fd, degraded=options.degraded)


def _serve(channel: int, applied: plan.Plan) -> NoReturn:
    """Be the broker of what was started, if it came to that."""
    select.select([channel], [], [])
    try:
        [heard] = listener.take(channel)
    except OSError:
        os._exit(0)
    broker.become(heard, broker.SocketRules(applied.network_off))


def sabotaged(applied: plan.Plan, argv: tuple[bytes, ...], options: Options) -> None:
    """Start the command again and again, with another kernel call sabotaged each time.

    Prints one line per attempt: the stage that failed, `killed`, `weakened`, or at last `ran`.
    """
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us, to be counted
    sabotage = Sabotage()
    sabotage.deadly = options.sabotage == "kill"
    for attempt in range(1, 400):
        sabotage.left = attempt
        reader, writer = os.pipe2(os.O_CLOEXEC)
        command = confined.PreparedCommand(argv[0], argv, {b"PATH": SAFE_PATH.encode()}, ((1, 1), (2, 2)))
        child = start(applied, command, writer, options)
        sabotage.left = -1
        os.close(writer)
        report = decode_report(os.read(reader, MAX_REPORT))
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        if report.failure:
            said = f"failed {report.failure.stage} {report.failure.errno}"
        elif status != 0:
            said = f"killed {status}"
        else:
            said = f"weakened {report.weakened[0]}" if report.weakened else "ran"
        os.write(1, f"{said}\n".encode())
        if said == "ran":
            return


def main(options: Options, argv: list[str]) -> None:
    applied = plan.decode(options.plan.encode("latin-1"))
    if options.extra_fd:
        fd = os.open(options.extra_fd, os.O_RDWR)
        os.dup2(fd, 7, inheritable=True)
    if options.cover_proc:
        _cover_proc()
    master, tty = -1, None
    identity.become(options.uid)
    if options.sabotage:
        arguments = tuple(os.fsencode(one) for one in argv)
        sabotaged(applied, arguments, options)
        return
    if options.tty:
        master, slave = pty.openpty()
        tty = os.ttyname(slave)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    env = {b"PATH": SAFE_PATH.encode(), b"LANG": b"C.UTF-8", b"TERM": b"dumb"}
    fds = () if options.tty else ((0, 0), (1, 1), (2, 2))
    arguments = tuple(os.fsencode(one) for one in argv)
    command = confined.PreparedCommand(arguments[0], arguments, env, fds, tty)
    child = start(applied, command, writer, options)
    os.close(writer)
    said = b""
    while chunk := os.read(reader, MAX_REPORT):
        said += chunk
    report = decode_report(said)
    failure = report.failure
    answer = {
        "weakened": report.weakened,
        "failed": failure.stage if failure else None,
        "errno": failure.errno if failure else 0,
    }
    if options.report_fd >= 0:
        os.write(options.report_fd, json.dumps(answer).encode())
    if options.tty:
        os.close(slave)
        _relay(master)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def run_options() -> None:
    """As the command line says."""
    main(Options(**json.loads(sys.argv[1])), sys.argv[3:])


if __name__ == "__main__":
    run_options()
