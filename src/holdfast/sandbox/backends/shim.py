"""The first process inside a view that bubblewrap built: a shell script. Pure module.

It says that the view is built and whether the program is there, waits for leave, and starts the
command as its only child; nothing else it does forks, so the command is number 2. It is PID 1 there
instead of bubblewrap's own: bubblewrap then ends when all inside has ended, and not before.

It is a session leader and the command is in its process group. The terminal that it opens becomes
the session's: keys like Control-C reach the command and none of the processes outside. It opens the
terminal before it reports, because one that nobody has open counts as hung up. Signals to the
group are the command's affair: a shell would end of some of them, unless it has something to do.

What a shell cannot do: give a command variables whose names are no identifiers (dash drops them),
a PWD that leads through links, and, without bash, a name other than its program's. And it cannot let
go of the command's streams while it waits, so that these end when the command does, not before.
"""

from collections.abc import Collection, Sequence
from typing import Final

SHELL: Final = "/bin/sh"
BASH: Final = "/bin/bash"
# Descriptors inside. A shell knows only numbers of one digit; 9 is the command's own.
STREAMS: Final = {0: 3, 1: 4, 2: 5}
REPORT_FD, LEAVE_FD = 6, 7  # and 8 is the terminal
NO_ARG0: Final = "arg0"  # reported when a name is asked for that nobody here can give
_ADDED: Final = ("PWD", "OLDPWD", "SHLVL")  # by shells, to every environment

# Arguments: names to unset, terminal, bash if needed, paths of the program, an empty one, the command.
_SCRIPT: Final = """
unset $1
holdfast_tty=$2 holdfast_bash=$3 holdfast_found=2
shift 3
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
exec 6>&- 7<&-
trap : HUP INT QUIT TERM
if [ -n "$holdfast_tty" ]; then
    (exec <&8 >&8 2>&8 8>&-; exec "$@")
else
    (exec <&3 >&4 2>&5 3<&- 4>&- 5>&-; exec "$@")
fi
exit $?
"""
_RENAMED: Final = 'exec -a "$0" "$@"'


def command_line(
    program: str, argv: Sequence[str], *, path: str, variables: Collection[str], terminal: str | None
) -> list[str]:
    """What bubblewrap starts so that `program` runs; `variables` are the names in its environment."""
    named = argv[0] == program
    command = list(argv) if named else [BASH, "-c", _RENAMED, argv[0], program, *argv[1:]]
    return [
        *(SHELL, "-c", _SCRIPT, "holdfast"),
        " ".join(name for name in _ADDED if name not in variables),
        terminal or "",
        "" if named else BASH,
        *candidates(program, path),
        "",
        *command,
    ]


def candidates(program: str, path: str) -> list[str]:
    """Where a program may be, as a shell looks for it."""
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in path.split(":")] if program else []
