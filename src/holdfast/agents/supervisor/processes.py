"""Processes of this machine as the kernel knows them: found by what they hold, told from each other."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

CONNECT_S: Final = 1.0  # a listener whose queue is full holds up nobody who only asks who it is
LOOK_S: Final = 0.02  # between looks at a process that is about to end and is not our child
_STATE, _BEGAN = 0, 19  # members of /proc/PID/stat after the name
_GONE: Final = frozenset("ZX")  # nothing is left of it but what its parent has to fetch


class ProcessInfo(NamedTuple):
    """A process that is not taken for a later one with the same number. `began` is in ticks since boot."""

    pid: int
    began: int


class MemoryUse(NamedTuple):
    """In bytes. `pss` counts what several processes share in equal parts; None where the kernel hides it."""

    rss: int
    pss: int | None


def find_process(pid: int) -> ProcessInfo | None:
    """The process that has this number now; None when there is none."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        found = text.rpartition(")")[2].split()
        if found and found[_STATE] not in _GONE:
            return ProcessInfo(pid, int(found[_BEGAN]))
    return None


def is_alive(process: ProcessInfo) -> bool:
    return find_process(process.pid) == process


def find_descendants(process: ProcessInfo) -> list[ProcessInfo]:
    """Everything that descends from it now."""
    found: list[ProcessInfo] = []
    waiting = [process.pid]
    while waiting:
        for task in _tasks(waiting.pop()):
            with contextlib.suppress(OSError):
                children = [int(word) for word in (task / "children").read_text("ascii").split()]
                found += [one for child in children if (one := find_process(child)) is not None]
                waiting += children
    return found


def find_listener(path: Path) -> ProcessInfo | None:
    """Who listens on this unix socket; None when nobody does, or another user."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_S)
        sock.connect(str(path))
        pid, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return find_process(pid) if uid == os.getuid() else None
    return None


def find_lock_holder(path: Path) -> ProcessInfo | None:
    """Who alone holds the lock on this file (`flock`); None when nobody does, or the kernel does not say."""
    with contextlib.suppress(OSError):
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            wanted = fields[1:2] == ["FLOCK"] and fields[3:4] == ["WRITE"] and fields[5:6] == [device]
            if wanted and int(fields[4]) > 0:  # 0 is of another PID namespace
                return find_process(int(fields[4]))
    return None


def send(process: ProcessInfo, signum: signal.Signals) -> bool:
    """Whether there was still such a process to send it to."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):  # the handle is of whoever has the number now
            return False
        signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


async def wait_for_end(
    processes: Iterable[ProcessInfo], within_s: float, hasten: asyncio.Event | None = None
) -> list[ProcessInfo]:
    """Those that still live after this time, or when somebody is in a hurry; returns once there are none."""
    living = [one for one in processes if is_alive(one)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while living and not (hasten is not None and hasten.is_set()):
                await asyncio.sleep(LOOK_S)
                living = [one for one in living if is_alive(one)]
    return living


def read_memory(process: ProcessInfo) -> MemoryUse | None:
    """None when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = _sizes(Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii"))
        return MemoryUse(found["Rss"], found["Pss"]) if is_alive(process) else None
    with contextlib.suppress(OSError, ValueError, KeyError):
        found = _sizes(Path(f"/proc/{process.pid}/status").read_text("utf-8", "replace"))
        return MemoryUse(found["VmRSS"], None)
    return None


def _sizes(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {row[0].removesuffix(":"): int(row[1]) * 1024 for row in rows}


def _tasks(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []
