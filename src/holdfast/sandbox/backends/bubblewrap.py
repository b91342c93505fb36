"""A plan as arguments of bubblewrap, and the first process inside the view that it builds. Pure module.

bubblewrap carries its arguments out from first to last. Sources are paths of the host, targets are
paths of the view; a target that does not exist is made, wherever it is. So whoever calls it has to
know that what the plan names is there.

A pin works wherever it is mounted: the kernel refuses to rename or remove a directory on which
something is mounted anywhere in the view. So the pins are put into a second mount of the writable
tree, and that is buried in a place of ours, where it hinders nobody who moves files.

The launcher imports this module, so it needs little of the standard library.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from holdfast.light import value
from holdfast.sandbox.plan.plan import GRANTS, MASKS, Base, Plan, Step, StepKind

OPTIONS: Final = (  # all that we use; a bubblewrap whose help lacks one is too old
    *("--args", "--as-pid-1", "--bind", "--cap-drop", "--chdir", "--dev", "--dev-bind", "--die-with-parent"),
    *("--dir", "--json-status-fd", "--new-session", "--perms", "--proc", "--remount-ro", "--ro-bind"),
    *("--ro-bind-data", "--seccomp", "--setenv", "--symlink", "--tmpfs"),
    *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-user"),
)

# A device on a file system without devices: nobody can open it, nor change its permissions.
_UNREADABLE: Final = "/dev/null"
_BURIED: Final = "/dev/.pins"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not a file of ours, but where the C library expects it


@value
class BwrapSettings:
    """What the arguments depend on beside the plan. The descriptors are those that bubblewrap inherits."""

    seccomp_fd: int
    status_fd: int
    terminal: tuple[str, str] | None = None  # the command's, on the host and in the view
    switches: tuple[str, ...] = ()  # of /proc, which root could use although it has no privileges
    fresh_proc: bool = True  # False: the host's, read-only
    unreachable: frozenset[str] = frozenset()  # denied by the host already, where we cannot mount
    files: tuple[tuple[int, str], ...] = ()  # of our own, over what the steps show: descriptor and place


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
    """The steps that are mounts of their own in the view, in their order; no pins."""
    return _Steps(plan).applied(unreachable)


def find_place(plan: Plan, path: str, real: str, *, exists: bool) -> str | None:
    """Where a file of ours has to be, for a program that opens `path`; None if there is no place for one.

    `real` is where the path leads to on the host, and whether a file `exists` there.
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
    """Before the steps, while all there is to make them in is ours."""
    if plan.base is not Base.EMPTY:
        return []
    return [word for link in plan.links for word in ("--symlink", link.target, link.path)]


def _own(plan: Plan) -> tuple[str, ...]:
    """File systems of the view's own, to be made read-only when everything is in them."""
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
            return False  # that is the base
        if step.kind in GRANTS:
            return step.path not in ("/dev", "/proc") and not step.path.startswith("/proc/")  # it has its own
        return step.path not in unreachable and not (self._empty and self._around(step.path) is None)

    def _around(self, path: str) -> Step | None:
        """The step closest above a path."""
        return next((self._steps[above] for above in _ancestors(path) if above in self._steps), None)

    def _passage(self, path: str) -> list[str]:
        """The directories from a mask to what is granted below it, no more readable than the mask."""
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
    if path.startswith("/dev/"):  # a device that a policy names is meant to be used
        return ["--dev-bind", path, path, *(() if writable else ("--remount-ro", path))]
    return ["--bind" if writable else "--ro-bind", path, path]


SHELL: Final = "/bin/sh"
BASH: Final = "/bin/bash"
# Descriptors inside. A shell knows only numbers of one digit; 9 is the command's own.
STREAMS: Final = {0: 3, 1: 4, 2: 5}
JOB_FD: Final = 5  # a job has a terminal, and no streams
REPORT_FD, LEAVE_FD = 6, 7  # and 8 is the terminal
NO_ARG0: Final = "arg0"  # reported when a name is asked for that nobody here can give
_ADDED: Final = ("PWD", "OLDPWD", "SHLVL")  # by shells, to every environment

# The first process inside: a shell script. It says that the view is built and whether the program is there,
# waits for leave, and starts the command as its only child; nothing else it does forks, so the command is
# number 2. It is PID 1 there instead of bubblewrap's own: bubblewrap then ends when all inside has ended,
# and not before.
#
# It is a session leader and the command is in its process group. The terminal that it opens becomes the
# session's: keys like Control-C reach the command and none of the processes outside. It opens the terminal
# before it reports, because one that nobody has open counts as hung up. Signals to the group are the
# command's affair: a shell would end of some of them, unless it has something to do.
#
# A job is in a group of its own, which alone the kernel lets be stopped: that is the shell's own job control.
# It tells by which signal, and goes on with the job when it has leave again.
#
# What a shell cannot do: give a command variables whose names are no identifiers (dash drops them), a PWD
# that leads through links, and, without bash, a name other than its program's. And it cannot let go of the
# command's streams while it waits, so that these end when the command does, not before.
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
    """What bubblewrap starts so that `program` runs; `variables` are the names in its environment."""
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
    """Where a program may be, as a shell looks for it."""
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in path.split(":")] if program else []
