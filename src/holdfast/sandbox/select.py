"""What a policy needs, and who on this host enforces it. Pure module.

The seam between the server and the sandbox: needs and host facts in, enforcement out. A need that
nothing meets is refused: a command that asked for limits never runs without them.
"""

import enum
import errno
from dataclasses import dataclass
from typing import Final

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import fingerprints


class Need(enum.StrEnum):
    """One kind of limit that a policy may ask for."""

    FILE_SYSTEM = "filesystem"
    NETWORK_OFF = "network-off"
    NETWORK_PROXY = "network-proxy"


class Backend(enum.StrEnum):
    NONE = "none"
    NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True)
class Trial:
    """How one way to confine a command went when it was tried: with an errno, where it failed."""

    stage: str = ""
    errno: int = 0
    weakened: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return self.errno == 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was tried on this host. None: not tried, because another way works or the user may not."""

    in_user_namespace: Trial
    as_root: Trial | None = None


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The answer, always reported to the caller: what really holds."""

    backend: Backend
    missing: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    user_namespace: bool = False


UNCONFINED: Final = Enforcement(Backend.NONE)
_MET: Final = frozenset({Need.FILE_SYSTEM, Need.NETWORK_OFF})

# What each weakness of the native backend means to a user.
WEAKNESSES: Final = {
    "landlock": "no second layer: this kernel has no usable Landlock",
    "proc": "the host's process list is visible: a fresh /proc could not be mounted",
    "loopback": "servers inside cannot be reached from inside: lo is down",
}


def select(needs: frozenset[Need], host: HostFacts) -> Enforcement:
    """The strongest backend that meets every need.

    Raises:
        SandboxUnavailable: none does; nothing may be run.
    """
    if not needs:
        return UNCONFINED
    if not needs <= _MET:
        unmet = ", ".join(sorted(needs - _MET))
        raise SandboxUnavailable(
            f"sandbox intent cannot be enforced on this executor: no backend for {unmet}"
        )
    for trial, user_namespace in ((host.in_user_namespace, True), (host.as_root, False)):
        if trial is not None and trial.works:
            return Enforcement(
                Backend.NAMESPACES,
                weakened=tuple(WEAKNESSES.get(word, word) for word in trial.weakened),
                user_namespace=user_namespace,
            )
    failed = host.in_user_namespace
    found = fingerprints.by_errno(failed.stage, failed.errno)
    raise SandboxUnavailable(
        "sandbox intent cannot be enforced on this executor: "
        f"{failed.stage} failed ({errno.errorcode.get(failed.errno, failed.errno)})"
        + (f"; {found.cause}" if found else ""),
        remedy=found.remedy if found else None,
    )
