"""Protected names that a confined command created: moved aside and reported.

A name such as `.git` that does not exist can not be protected by a mount without leaving litter on
the host. So its absence is recorded before the command runs, and what appeared is moved aside once
everything inside has ended: whoever runs git there next does not run the command's hooks.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable

from holdfast.sandbox.reasons.denials import Denial


def set_aside(absent: Iterable[str]) -> dict[str, str]:
    """Rename what appeared at these paths; old name to new name."""
    moved = {}
    for path in absent:
        if os.access(path, os.F_OK, follow_symlinks=False):  # after every file call: no exception to build
            aside = f"{path}.set-aside-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                os.rename(path, aside)
                moved[path] = aside
    return moved


def denial_of(moved: dict[str, str]) -> Denial | None:
    """What to tell about it."""
    for path, aside in moved.items():
        return Denial(
            "filesystem",
            path,
            None,
            "write",
            f"{path} is protected metadata and did not exist before",
            f"--allow-write {path}",
            1.0,
            f"it was created and has been moved to {aside}",
        )
    return None
