"""Report that this machine cannot confine a command: only the Linux kernel is supported."""

import os
import sys
from typing import Final

from holdfast.errors import SandboxUnavailable

ON_LINUX: Final = "the same on a Linux machine, with --store postgresql://…; here: holdfast task create TITLE"
_NAMES: Final = {"Darwin": "macOS"}


def require_linux(what: str, instead: str) -> None:
    """Raises SandboxUnavailable on a system other than Linux; `instead` is what the user can type there."""
    if sys.platform != "linux":
        system = os.uname().sysname
        raise SandboxUnavailable(
            f"{what} needs Linux, whose kernel confines commands; this machine runs"
            f" {_NAMES.get(system, system)}",
            remedy=instead,
        )
