"""Find the programs that we run ourselves, outside all folders that a worker may write."""

import os
import stat
from collections.abc import Container, Iterable, Sequence
from typing import Final

# Searched before the search path: a project folder on that path may hold a program of the same name.
SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/opt/homebrew/bin")
_NOBODY: Final = 65534  # fs/overflowuid, the default of every kernel
_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - where nothing is looked for


def find_program(
    name: str,
    search: str,
    outside: Iterable[str | os.PathLike[str]] = (),
    *,
    before: Sequence[str] = SYSTEM,
) -> str | None:
    """Find the real path of a program below none of `outside`, which no other user can replace.

    Where we are not root, our own uid must not be able to replace it either: workers have it. The directories
    `before` are searched first; directories that every default policy makes writable are never searched.
    """
    closed = [os.path.realpath(folder) for folder in (*_WRITABLE, *outside)]
    ours = {0, os.geteuid()}
    systems = ours | _find_nameless_root()
    for folder in (*before, *search.split(os.pathsep)):
        if os.path.isabs(folder):
            found = os.path.realpath(os.path.join(folder, name))
            owners = systems if folder in SYSTEM else ours
            if (
                os.path.isfile(found)
                and os.access(found, os.X_OK)
                and _is_out_of_reach(found, closed, owners)
            ):
                return found
    return None


def _find_nameless_root() -> set[int]:
    """The apparent owner of root's files in a user namespace that does not map root, such as a sandbox's own.

    Files of other unmapped users have the same apparent owner, so use this only for directories that only
    root can fill.
    """
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            starts = [int(line.split()[0]) for line in file]
    except (OSError, ValueError, IndexError):
        return set()
    return set() if 0 in starts else {_NOBODY}


def _is_out_of_reach(path: str, closed: Iterable[str], owners: Container[int]) -> bool:
    if any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in closed):
        return False
    at = path
    while True:
        if _can_be_replaced(at, owners):
            return False
        if at == "/":
            return True
        at = os.path.dirname(at)


def _can_be_replaced(path: str, owners: Container[int]) -> bool:
    status = os.lstat(path)
    if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    return os.geteuid() != 0 and os.access(path, os.W_OK, effective_ids=True)
