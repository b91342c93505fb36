"""Translate a plan into arguments of bubblewrap, and build the first process inside its view. Pure module.

bubblewrap carries out its arguments from first to last. Sources are paths of the host, targets are paths of
the view. bubblewrap creates a target that does not exist, wherever it is. So the caller must have checked
that the paths of the plan exist.

A pin works wherever it is mounted: the kernel refuses to rename or remove a directory on which something is
mounted anywhere in the view. So the pins are put into a second mount of the writable tree. That mount is
buried in a place of ours, where it hinders no process that moves files.

The launcher imports this module, so it needs little of the standard library.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from holdfast.light import value
from holdfast.sandbox.plan.plan import GRANTS, MASKS, Base, Plan, Step, StepKind

OPTIONS: Final = (  # all options that we use; a bubblewrap whose help lacks one is too old
    *("--args", "--as-pid-1", "--bind", "--cap-drop", "--chdir", "--dev", "--dev-bind", "--die-with-parent"),
    *("--dir", "--json-status-fd", "--new-session", "--perms", "--proc", "--remount-ro", "--ro-bind"),
    *("--ro-bind-data", "--seccomp", "--setenv", "--symlink", "--tmpfs"),
    *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-user"),
)

# A device on a file system without devices: no process can open it, or change its permissions.
_UNREADABLE: Final = "/dev/null"
_BURIED: Final = "/dev/.pins"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not a file of ours, but where the C library expects it


@value
class BwrapSettings:
    """The values that the arguments depend on beside the plan. bubblewrap inherits the descriptors."""

    seccomp_fd: int
    status_fd: int
    terminal: tuple[str, str] | None = None  # the command's terminal, on the host and in the view
    switches: tuple[str, ...] = ()  # files of /proc that root could use even without privileges
    fresh_proc: bool = True  # False: show the host's /proc, read-only
    unreachable: frozenset[str] = frozenset()  # the host denies these: we cannot mount there
    files: tuple[tuple[int, str], ...] = ()  # our own, mounted last: descriptor and place


def arguments(plan: Plan, env: Mapping[str, str], around: BwrapSettings) -> list[str]:
    """Every option for this plan and environment, without the command."""
    return [
        *_base(plan),
        *_system(plan, around),
        *_links(plan),
        *_Steps(plan).words(around.unreachable),
        *(word for file in around.files for word in _put_file(*file)),
        *(word for path in _own(plan) for word in ("--remount-ro", path)),
        *("--unshare-user", "--unshare-pid", "--unshare-ipc"),
        *(("--unshare-net",) if plan.network_off else ()),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),
        *("--seccomp", str(around.seccomp_fd), "--json-status-fd", str(around.status_fd)),
        *("--chdir", plan.cwd),
        *(word for name, value in env.items() for word in ("--setenv", name, value)),
    ]


def list_mounts(plan: Plan, unreachable: frozenset[str] = frozenset()) -> list[Step]:
    """The steps that are mounts of their own in the view, in their order; without pins."""
    return _Steps(plan).applied(unreachable)


def find_place(plan: Plan, path: str, real: str, *, exists: bool) -> str | None:
    """Where our own file must be for a program that opens `path`; None if there is no place for it.

    `real` is the path's real path on the host; `exists` says whether a file exists there.
    """
    steps = {step.path: step for step in plan.steps if step.kind is not StepKind.PIN}

    def around(place: str) -> Step | None:
        return next((steps[above] for above in (place, *_ancestors(place)) if above in steps), None)

    ours = plan.base is Base.EMPTY
    place = path if ours and around(path) is None else real
    decides = around(place)
    if any(step is not None and step.kind in MASKS for step in (around(path), decides)):
        return None
    return place if exists or (ours and decides is None) else None


def _put_file(fd: int, place: str) -> tuple[str, ...]:
    return ("--perms", "0444", "--ro-bind-data", str(fd), place)


def _ancestors(path: str) -> Iterator[str]:
    """Every directory above, the nearest first."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _base(plan: Plan) -> list[str]:
    if plan.base is Base.UNTOUCHED:
        return ["--dev-bind", "/", "/"]
    if plan.base is Base.EMPTY:
        return ["--tmpfs", "/"]
    writable = Step(StepKind.WRITABLE, "/") in plan.steps
    return ["--bind" if writable else "--ro-bind", "/", "/"]


def _pins(plan: Plan) -> list[str]:
    writable = {step.path for step in plan.steps if step.kind is StepKind.WRITABLE}
    below: dict[str, list[str]] = {}
    for step in plan.steps:
        if step.kind is StepKind.PIN:
            top = next(path for path in _ancestors(step.path) if path in writable)
            below.setdefault(top, []).append(step.path)
    words: list[str] = []
    for top, pins in below.items():
        words += ("--ro-bind", top, _BURIED)
        for path in pins:
            words += ("--ro-bind", path, _BURIED + path.removeprefix(top.rstrip("/")))
    return [*words, "--perms", "0000", "--tmpfs", _BURIED, "--remount-ro", _BURIED] if words else []


def _system(plan: Plan, around: BwrapSettings) -> list[str]:
    words: list[str] = []
    if plan.base is not Base.UNTOUCHED:
        words += ("--dev", "/dev", "--perms", "1777", "--tmpfs", _SHARED_MEMORY)
        if around.terminal is not None:
            words += ("--dev-bind", *around.terminal)
        words += _pins(plan)
    if around.fresh_proc:
        words += ("--proc", "/proc")
    elif plan.base is not Base.UNTOUCHED:
        words += ("--ro-bind", "/proc", "/proc")
    words += (word for path in around.switches for word in ("--ro-bind", path, path))
    return words


def _links(plan: Plan) -> list[str]:
    """The options for links. They come before the steps, while all file systems there are the view's own."""
    if plan.base is not Base.EMPTY:
        return []
    return [word for link in plan.links for word in ("--symlink", link.target, link.path)]


def _own(plan: Plan) -> tuple[str, ...]:
    """The view's own file systems, which become read-only when everything is in them."""
    if plan.base is Base.UNTOUCHED:
        return ()
    return ("/dev", "/") if plan.base is Base.EMPTY else ("/dev",)


class _Steps:
    """The steps of a plan after its base."""

    def __init__(self, plan: Plan) -> None:
        self._empty = plan.base is Base.EMPTY
        self._steps = {step.path: step for step in plan.steps if step.kind is not StepKind.PIN}
        self._needed = {plan.cwd}  # and the directories on the way to a grant
        for step in self._steps.values():
            if step.kind in GRANTS:
                self._needed.update(_ancestors(step.path))

    def applied(self, unreachable: frozenset[str]) -> list[Step]:
        return [step for step in self._steps.values() if self._applies(step, unreachable)]

    def words(self, unreachable: frozenset[str]) -> list[str]:
        words: list[str] = []
        seals: list[str] = []
        for step in self.applied(unreachable):
            if step.kind is StepKind.MASK_DIRECTORY and step.path in self._needed:
                # Passable but not readable: something below is granted again, or it is entered first.
                words += ("--perms", "0111", "--tmpfs", step.path)
                seals.append(step.path)
            elif step.kind in MASKS:
                words += _mask(step)
            else:
                words += self._passage(step.path)
                words += _grant(step)
        return words + [word for path in seals for word in ("--remount-ro", path)]

    def _applies(self, step: Step, unreachable: frozenset[str]) -> bool:
        if step.path == "/":
            return False  # it is the base
        if step.kind in GRANTS:
            return step.path not in ("/dev", "/proc") and not step.path.startswith("/proc/")  # it has its own
        return step.path not in unreachable and not (self._empty and self._around(step.path) is None)

    def _around(self, path: str) -> Step | None:
        """The step closest above a path."""
        return next((self._steps[above] for above in _ancestors(path) if above in self._steps), None)

    def _passage(self, path: str) -> list[str]:
        """Make the directories from a mask to a grant below it, no more readable than the mask."""
        around = self._around(path)
        if around is None or around.kind is not StepKind.MASK_DIRECTORY:
            return []
        between = [above for above in _ancestors(path) if len(above) > len(around.path)]
        return [word for folder in reversed(between) for word in ("--perms", "0111", "--dir", folder)]


def _mask(step: Step) -> list[str]:
    if step.kind is StepKind.MASK_FILE:
        return ["--ro-bind", _UNREADABLE, step.path]
    return ["--perms", "0000", "--tmpfs", step.path, "--remount-ro", step.path]


def _grant(step: Step) -> list[str]:
    path, writable = step.path, step.kind is StepKind.WRITABLE
    if path.startswith("/dev/"):  # a device that a policy names is meant to be usable
        return ["--dev-bind", path, path, *(() if writable else ("--remount-ro", path))]
    return ["--bind" if writable else "--ro-bind", path, path]


SHELL: Final = "/bin/sh"
BASH: Final = "/bin/bash"
# Descriptors inside. A shell knows only numbers of one digit; 9 is the command's own.
STREAMS: Final = {0: 3, 1: 4, 2: 5}
JOB_FD: Final = 5  # a job has a terminal, and no streams
REPORT_FD, LEAVE_FD = 6, 7  # and 8 is the terminal
NO_ARG0: Final = "arg0"  # reported if an argv[0] is asked for and there is no bash to set it
_ADDED: Final = ("PWD", "OLDPWD", "SHLVL")  # variables that shells add to every environment

# The first process inside: a shell script. It reports that the view is built and whether the program exists,
# waits for permission, and starts the command as its only child. It forks nothing else, so the command is
# process number 2. The script is PID 1 instead of bubblewrap's own init, so bubblewrap ends exactly when all
# processes inside have ended.
#
# The script is a session leader, and the command is in its process group. The terminal that it opens becomes
# the session's: keys like Control-C reach the command and no process outside. It opens the terminal before
# it reports, because a terminal that no process has open counts as hung up. Signals to the group are meant
# for the command: the script catches them with traps that do nothing, since a shell would die of some.
#
# A job is in a process group of its own, because the kernel only lets such a group be stopped: this is the
# shell's own job control. The script reports the signal of each stop, and continues the job when it has
# permission again.
#
# Limits of a shell: it cannot give a command variables whose names are no identifiers (dash drops them), a
# PWD that leads through links, or, without bash, an argv[0] other than its program's name. It also cannot
# close the command's streams while it waits, so these end when the command does, not before.
#
# Arguments: names to unset, terminal, bash if needed, whether it is a job, paths of the program, an empty
# one, the command.
_SCRIPT: Final = """
unset $1
holdfast_tty=$2 holdfast_bash=$3 holdfast_job=$4 holdfast_found=2
shift 4
while [ -n "$1" ]; do
    if [ -f "$1" ] && [ -x "$1" ]; then holdfast_found=0; break; fi
    if [ -e "$1" ]; then holdfast_found=13; fi
    shift
done
while [ -n "$1" ]; do shift; done
shift
if [ -n "$holdfast_tty" ]; then exec 8<>"$holdfast_tty"; fi
if [ -n "$holdfast_bash" ] && ! [ -x "$holdfast_bash" ]; then holdfast_found=arg0; fi
echo "$holdfast_found" >&6
read -r holdfast_leave <&7 || exit 125
exec 6>&-
trap : HUP INT QUIT TERM
if [ -n "$holdfast_job" ]; then
    set -m
    (exec <&8 >&8 2>&8 5>&- 7<&- 8>&-; exec "$@")
    holdfast_code=$?
    while kill -0 %1 2>&1; do
        echo "$((holdfast_code - 128))" >&5
        read -r holdfast_leave <&7 || exit 125
        fg %1
        holdfast_code=$?
    done
    exit $holdfast_code
fi
exec 7<&-
if [ -n "$holdfast_tty" ]; then
    (exec <&8 >&8 2>&8 8>&-; exec "$@")
else
    (exec <&3 >&4 2>&5 3<&- 4>&- 5>&-; exec "$@")
fi
exit $?
"""
_RENAMED: Final = 'exec -a "$0" "$@"'


def command_line(
    program: str,
    argv: Sequence[str],
    *,
    path: str,
    variables: Collection[str],
    terminal: str | None,
    job: bool = False,
) -> list[str]:
    """The command line that bubblewrap starts; `variables` are the names in the program's environment."""
    named = argv[0] == program
    command = list(argv) if named else [BASH, "-c", _RENAMED, argv[0], program, *argv[1:]]
    return [
        *(SHELL, "-c", _SCRIPT, "holdfast"),
        " ".join(name for name in _ADDED if name not in variables),
        terminal or "",
        "" if named else BASH,
        "job" if job else "",
        *candidates(program, path),
        "",
        *command,
    ]


def candidates(program: str, path: str) -> list[str]:
    """The paths where a shell would look for a program."""
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in path.split(":")] if program else []
