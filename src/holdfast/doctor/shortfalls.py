"""What Landlock alone cannot stop, and what it hinders: attempts that are known to fail there. Pure module.

Every entry is one that nothing at hand could close without closing more: it is said in `losses.py`
to whoever starts a command, and here to whoever checks.
"""

import enum
from collections.abc import Mapping
from typing import Final


class Shortfall(enum.StrEnum):
    METADATA = "Landlock does not guard mode, group and times, and no work goes on without chmod"
    VISIBLE = "without a PID namespace the host's processes have names, though nobody can touch them"
    SHARED_MEMORY = "without a mount namespace /dev/shm is the host's, and multiprocessing needs it"
    BOUNDING_SET = "only the privileged may lower it; with no_new_privs nothing can be gained from it"
    CLOSED = "nothing can be created directly in a directory that holds something protected"
    SOCKETS = "without a network namespace every socket would be in the host's network"
    TERMINALS = "whoever may open new terminals may open all of the host's"
    SYSTEM_V = "without an IPC namespace System V memory would be the host's"


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
