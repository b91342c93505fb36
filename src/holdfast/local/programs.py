"""Programs that we run ourselves: found outside everything that a worker may write."""

import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final

# Before whatever the search path says: a folder of a project on it may hold a program of the same name.
SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/opt/homebrew/bin")
_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - where nothing is looked for


def find_program(
    name: str,
    search: str,
    outside: Iterable[str | os.PathLike[str]] = (),
    *,
    before: Sequence[str] = SYSTEM,
) -> str | None:
    """The real path of a program below none of the folders `outside`, and that no other user can replace.

    Where we are not root it must not be ours to replace either: workers have our uid. The directories
    `before` are looked into first; those that every default policy lets commands write never are.
    """
    closed = [os.path.realpath(folder) for folder in (*_WRITABLE, *outside)]
    for folder in (*before, *search.split(os.pathsep)):
        if os.path.isabs(folder):
            found = os.path.realpath(os.path.join(folder, name))
            if os.path.isfile(found) and os.access(found, os.X_OK) and _is_out_of_reach(found, closed):
                return found
    return None


def _is_out_of_reach(path: str, closed: Iterable[str]) -> bool:
    if any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in closed):
        return False
    at = path
    while True:
        if _can_be_replaced(at):
            return False
        if at == "/":
            return True
        at = os.path.dirname(at)


def _can_be_replaced(path: str) -> bool:
    status = os.lstat(path)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    return os.geteuid() != 0 and os.access(path, os.W_OK, effective_ids=True)
