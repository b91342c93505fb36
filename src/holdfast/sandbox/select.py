"""What a policy needs, and who on this host enforces it. Pure module.

The seam between the server and the sandbox: needs in, enforcement out. There is no backend yet,
so every need is refused: a command that asked for limits never runs without them.
"""

import enum
from dataclasses import dataclass

from holdfast.errors import SandboxUnavailable


class Need(enum.StrEnum):
    """One kind of limit that a policy may ask for."""

    FILE_SYSTEM = "filesystem"
    NETWORK_OFF = "network-off"
    NETWORK_PROXY = "network-proxy"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The answer, always reported to the caller: what really holds."""

    backend: str
    missing: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


NONE = Enforcement("none")


def select(needs: frozenset[Need]) -> Enforcement:
    """The backend that meets every need.

    Raises:
        SandboxUnavailable: no backend does; nothing may be run.
    """
    if not needs:
        return NONE
    raise SandboxUnavailable(
        f"sandbox intent cannot be enforced on this executor: no backend for {', '.join(sorted(needs))}",
        remedy="run with full access, or use an executor with a sandbox",
    )
