"""What a backend cannot stop, and what it hinders: attempts that are known to fail with it. Pure module.

Every entry is one that nothing at hand could close without closing more: it is said to whoever
starts a command (for Landlock alone in `losses.py`), and here to whoever checks.
"""

import enum
from collections.abc import Collection, Mapping
from typing import Final

from holdfast.sandbox.plan import rights
from holdfast.sandbox.plan.select import Way


class Shortfall(enum.StrEnum):
    METADATA = "Landlock does not guard mode, group and times, and no work goes on without chmod"
    VISIBLE = "without a PID namespace the host's processes have names, though nobody can touch them"
    SHARED_MEMORY = "without a mount namespace /dev/shm is the host's, and multiprocessing needs it"
    BOUNDING_SET = "only the privileged may lower it; with no_new_privs nothing can be gained from it"
    CLOSED = "nothing can be created directly in a directory that holds something protected"
    SOCKETS = "without a network namespace every socket would be in the host's network"
    TERMINALS = "whoever may open new terminals may open all of the host's"
    SYSTEM_V = "without an IPC namespace System V memory would be the host's"
    PIPES = "read-only mounts keep nobody from writing into a pipe, and Landlock is not in force"
    UNIX_PATHS = "unix sockets cannot be made, because this Landlock cannot confine their paths"
    FIRST_PROCESS = "process 1 is a shell with exactly the rights of the command: nothing is gained from it"
    OLD_PROC = "a fresh /proc could not be mounted, so the host's processes have names"
    LO_DOWN = "lo is down in the network namespace"


ALONE: Final[Mapping[str, frozenset[Shortfall]]] = {
    id_: frozenset(reasons)
    for ids, reasons in (
        (
            "chmod-outside fchmod-outside chown-outside utime-outside locked-chmod secret-chmod",
            (Shortfall.METADATA,),
        ),
        ("proc-of-outside fd-of-outside pidfd-of-outside process-list", (Shortfall.VISIBLE,)),
        ("shared-memory-of-host", (Shortfall.SHARED_MEMORY,)),
        ("none-left set-user-id-program", (Shortfall.BOUNDING_SET,)),
        (
            "use-multiprocessing-fork use-multiprocessing-spawn use-files use-many-files use-hard-links "
            "use-beside-protected use-links use-modes use-nameless use-large-file use-locks use-git "
            "use-sqlite use-exec-own use-pipes use-watching",
            (Shortfall.CLOSED,),
        ),
        ("use-multiprocessing-forkserver use-node", (Shortfall.CLOSED, Shortfall.SOCKETS)),
        ("use-loopback use-loopback-udp", (Shortfall.SOCKETS,)),
        ("use-own-terminal", (Shortfall.TERMINALS,)),
        ("use-sysv-memory", (Shortfall.SYSTEM_V,)),
    )
    for id_ in ids.split()
}


def shortfalls(attempt: str, *, privileged: bool, closed: bool) -> frozenset[Shortfall]:
    """Why this attempt must fail by Landlock alone; empty if it must not.

    `closed` says whether it starts in a directory that holds something protected.
    """
    reasons = ALONE.get(attempt, frozenset())
    if privileged:
        reasons -= {Shortfall.BOUNDING_SET}
    return reasons if closed else reasons - {Shortfall.CLOSED}


_FIRST: Final = frozenset(
    ["root-of-first", "cwd-of-first", "mem-of-first", "fd-of-first", "environ-of-first", "namespace-of-first"]
)
_NEEDS_LANDLOCK: Final = {  # the least ABI
    "pipe-of-host": (1, Shortfall.PIPES),
    "use-multiprocessing-forkserver": (rights.UNIX_ABI, Shortfall.UNIX_PATHS),
}
_WEAKENED: Final = {  # the word of a start that came out weaker
    "proc": (frozenset(["process-list", "proc-of-outside", "fd-of-outside"]), Shortfall.OLD_PROC),
    "loopback": (
        frozenset(["use-loopback", "use-loopback-udp", "use-localhost", "use-node"]),
        Shortfall.LO_DOWN,
    ),
}


def declared(
    attempt: str, way: Way, *, privileged: bool, abi: int, weakened: Collection[str] = ()
) -> frozenset[Shortfall]:
    """Why this attempt may fail on a host with this Landlock ABI; empty if nothing excuses it.

    `weakened` is what the start said of itself.
    """
    reasons = {reason for word, (ids, reason) in _WEAKENED.items() if word in weakened and attempt in ids}
    if way is Way.LANDLOCK:
        return shortfalls(attempt, privileged=privileged, closed=True) | reasons
    if way is Way.BWRAP and attempt in _FIRST:
        reasons.add(Shortfall.FIRST_PROCESS)
    needed, reason = _NEEDS_LANDLOCK.get(attempt, (0, Shortfall.PIPES))
    if needed > (0 if "landlock" in weakened else abi):
        reasons.add(reason)
    return frozenset(reasons)
