"""One attempt: what a command inside a sandbox tries, and which outcomes are allowed. Pure module."""

import enum
from dataclasses import dataclass
from typing import Final

from holdfast.sandbox.limits import Limits


class Guarantee(enum.StrEnum):
    """A guarantee of a sandbox; every attempt tests one of these."""

    OUTSIDE = "nothing outside the writable directories changes"
    PROTECTED = "what is protected inside a writable directory does not change"
    DENIED = "what is denied is not read"
    PROCESSES = "processes outside are neither seen nor touched"
    DESCRIPTORS = "nothing that the server has open is inherited"
    NETWORK = "no address outside is reached when the network is off"
    SOCKETS = "no unix socket of the host is reached unless it is granted"
    DEVICES = "devices and terminals of the host are out of reach"
    SWITCHES = "no setting of the kernel changes, not even for root"
    PRIVILEGES = "no privilege is left and none can be gained"
    CALLS = "system calls that could undo all this are refused"
    HOMES = "keys and sockets of Holdfast itself are out of reach"
    LIMITS = "no more is used than a limit allows"
    USABLE = "ordinary work goes on as if there were no sandbox"


# Outcomes that are not the name of an errno or of a signal.
DONE: Final = "done"  # the script ran to its end
CONTAINED: Final = "contained"  # it ran, and found that it gained nothing
UNRESOLVED: Final = "unresolved"  # a host name has no address
SKIPPED: Final = "skipped"  # it needs something that is missing here
LIMIT: Final = "limit"  # it was ended because it reached a limit
FAILED: Final = "failed"  # none of the others: the attempt itself is broken

# Refusals. A backend may choose among these; any other error is luck, not a refusal.
UNWRITABLE: Final = frozenset({"EROFS", "EACCES", "EPERM"})
UNMOVABLE: Final = UNWRITABLE | {"EBUSY", "EXDEV"}
UNREADABLE: Final = frozenset({"EACCES", "EPERM"})
UNSEEN: Final = frozenset({"ENOENT", "EACCES", "EPERM", "ESRCH"})
REFUSED: Final = frozenset({"EPERM", "ENOSYS", "EACCES"})
UNREACHED: Final = frozenset({"ENETUNREACH", "ECONNREFUSED", "EPERM", "EACCES"})
NOTHING: Final = frozenset({CONTAINED})
LIMITED: Final = frozenset({LIMIT})
WORKS: Final = frozenset({DONE})


@dataclass(frozen=True, slots=True)
class Attempt:
    """`script` is Python with the names of `inside`; `after`, if given, runs as a second command.

    The outcome is that of the last command, and must be one of `expect`. `limits` is what it may use,
    `online` gives it the network, and `hides` puts a home of Holdfast beside its workspace.
    """

    id: str
    guarantee: Guarantee
    title: str
    script: str
    expect: frozenset[str]
    after: str = ""
    tty: bool = False
    limits: Limits | None = None
    online: bool = False
    hides: bool = False
