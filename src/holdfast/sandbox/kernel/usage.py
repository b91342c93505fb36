"""The resource use of a tree of processes, read from /proc: for limits that no control group enforces.

Standard library only: the launcher imports this.
"""

import os
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_THREADS: Final = 17  # fields of /proc/PID/stat after the name
_PARENT: Final = 1


def tree(top: int) -> list[int]:
    """This process and everything below it; orphans belong to the process that adopts them."""
    found, waiting = [], [top]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    waiting += map(int, file.read().split())
        except FileNotFoundError:
            if pid == top and os.path.exists(f"/proc/{top}/stat"):
                return _tree_by_parents(top)  # this kernel does not list children
        except OSError:
            continue
    return found


def _tree_by_parents(top: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            below.setdefault(int(fields[_PARENT]), []).append(int(name))
    found = [top]
    for pid in found:
        found += below.get(pid, ())
    return found


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def threads(pids: list[int]) -> int:
    """The number of their threads."""
    return sum(int(fields[_THREADS]) for pid in pids if (fields := _stat(pid)))


def resident(pids: list[int]) -> int:
    """Bytes in memory; a page that several of them share is counted for each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                total += int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError):
            continue
    return total


def proportional(pids: list[int]) -> int:
    """Bytes in memory, a shared page divided among its users; where we may not read that, as `resident`."""
    total = 0
    for pid in pids:
        try:
            total += _read_field(f"/proc/{pid}/smaps_rollup", b"Pss:") * 1024
        except (OSError, StopIteration):
            total += resident([pid])
    return total


def written(pids: list[int]) -> int:
    """Bytes that these processes, and the children that they waited for, wrote towards a disk."""
    total = 0
    for pid in pids:
        try:
            total += _read_field(f"/proc/{pid}/io", b"write_bytes:")
        except (OSError, StopIteration):
            continue
    return total


def threads_of_user(uid: int) -> int:
    """The number of this user's threads, in any tree."""
    wanted = b"Uid:\t%d\t" % uid
    own = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status", "rb") as file:
                    own += [int(name)] if wanted in file.read() else []
            except OSError:
                continue  # it ended meanwhile
    return threads(own)


def _read_field(path: str, label: bytes) -> int:
    """Raises OSError, or StopIteration if the file has no such line."""
    with open(path, "rb") as file:
        return int(next(line for line in file if line.startswith(label)).split()[1])
