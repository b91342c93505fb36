"""Processes by what the kernel says of them: who descends from whom, who works where, who listens."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.patience import patient

_STATE, _PARENT, _BEGAN = 0, 1, 19  # members of /proc/PID/stat after the name
_GONE: Final = frozenset("ZX")


class Pid(NamedTuple):
    """A process that is not mistaken for a later one of the same number."""

    pid: int
    began: int


def _stat(pid: int) -> list[str]:
    """Empty when it is gone, or waits for its parent only."""
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        if found and found[_STATE] not in _GONE:
            return found
    return []


def known(pid: int) -> Pid | None:
    found = _stat(pid)
    return Pid(pid, int(found[_BEGAN])) if found else None


def living(processes: Iterable[Pid]) -> list[Pid]:
    return [one for one in processes if known(one.pid) == one]


def below(pid: int) -> list[Pid]:
    """Everything that descends from this process now."""
    found: list[Pid] = []
    waiting = [pid]
    while waiting:
        above = waiting.pop()
        for thread in _threads(above):
            with contextlib.suppress(OSError):
                children = [int(word) for word in (thread / "children").read_text().split()]
                found += [one for child in children if (one := known(child)) is not None]
                waiting += children
    return found


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def started_with(word: str) -> list[Pid]:
    """Those with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(known(int(entry.name)))
    return [one for one in found if one is not None]


def _threads(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def at_work_in(folder: Path) -> list[Pid]:
    """Those whose working directory is in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number = int(entry.name)
            if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append(known(number))
    return [one for one in found if one is not None]


def listener(path: Path) -> Pid | None:
    """Who listens on this socket, as the kernel knows it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(patient(1.0))
        sock.connect(str(path))
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return known(pid)
    return None


def kill(process: Pid | None) -> bool:
    """With -9; whether there was such a process."""
    if process is None:
        return False
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if known(process.pid) != process:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


async def gone(processes: Iterable[Pid], within_s: float) -> list[Pid]:
    """Those that are still there after this time; returns as soon as there are none."""
    left = living(processes)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while left:
                await asyncio.sleep(0.05)
                left = living(left)
    return left


def listening_ports(pid: int) -> list[int]:
    """The TCP ports on which this process listens."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(fd))
    rows = [line.split() for name in ("tcp", "tcp6") for line in _table(pid, name)]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes]


def _table(pid: int, name: str) -> list[str]:
    listens = "0A"
    lines = Path(f"/proc/{pid}/net/{name}").read_text("ascii").splitlines()[1:]
    return [line for line in lines if line.split()[3] == listens]
