"""Who runs a test, and with which copy of the product.

Run by root, a test is tried as root and as an ordinary user. That user may not be able to read the
checkout, its virtual environment or the interpreter, and so has a copy of the product
(`tests/support/product_copy.py`). Run by an ordinary user, the same test is tried as that user; what only
root can do is listed at the end of the run (`tests/support/root_only.py`). Nothing here may import pytest:
the copy has none.
"""

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support import product_copy

SELF: Final = os.getuid()
AS_ROOT: Final = SELF == 0
USER: Final = 12345 if AS_ROOT else SELF  # an ordinary user; without a name where root chose it
OUTSIDE_TMP: Final = "/var/tmp"  # writable by everybody, as /tmp, but by no policy's default
_PR_SET_DUMPABLE: Final = 4


def python(uid: int) -> str:
    """An interpreter that this user can execute, and that finds the product."""
    return sys.executable if uid in (SELF, 0) else str(product_copy.python())


def top(uid: int) -> Path:
    """Where `python(uid) -m tests.support.…` can be run."""
    return Path(__file__).parents[2] if uid in (SELF, 0) else product_copy.folder()


def command_as(uid: int, command: list[str]) -> list[str]:
    """The command line that runs a command as this user."""
    if uid == SELF:
        return command
    user = str(uid)
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]


def become(uid: int) -> None:
    """Be this user from now on, as if it had started us."""
    if uid == SELF:
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing its user made us a process that nobody may inspect; one started by that user is not.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def hand_over(top: Path, uid: int) -> None:
    """Everything from here down belongs to this user."""
    if uid == SELF and not AS_ROOT:
        return  # whatever we made is ours
    for path in (top, *top.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def folder_for(uid: int, where: str = OUTSIDE_TMP) -> Path:
    """A new directory of this user's that everybody can enter; into pytest's own only its maker can."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=where))
    made.chmod(0o755)
    hand_over(made, uid)
    return made
