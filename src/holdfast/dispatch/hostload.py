"""One look at this host: memory, load, and what its control groups leave to this process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.dispatch.rules import pressure
from holdfast.dispatch.rules.pressure import HostLimits, HostLoad, MemoryLoad

MAX_FILE: Final = 64 * 1024  # bytes of any of these files
_SECOND: Final = ("memory.max", "memory.current", "memory.stat")
_FIRST: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")


def look(root: Path = Path("/")) -> HostLoad:
    """What the host reports of itself now; values that it does not report are left out."""
    machine = os.cpu_count() or 1
    usable = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(machine)
    paths = pressure.groups(_read(root / "proc/self/cgroup"))
    top = root / "sys/fs/cgroup"
    memories: list[MemoryLoad | None] = [pressure.machine_memory(_read(root / "proc/meminfo"))]
    quotas: list[float | None] = [usable]
    for folder in _upwards(top, paths.get("")):
        memories.append(pressure.group_memory(*(_read(folder / name) for name in _SECOND)))
        quotas.append(pressure.quota(_read(folder / "cpu.max")))
    memories += [
        pressure.group_memory(*(_read(folder / name) for name in _FIRST))
        for folder in _upwards(top / "memory", paths.get("memory"))
    ]
    for folder in _upwards(top / "cpu", paths.get("cpu")):
        parts = (_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        quotas.append(pressure.quota(" ".join(parts)))
    return HostLoad(
        cpus=min(one for one in quotas if one is not None),
        memory=pressure.least(memories),
        load=pressure.load(_read(root / "proc/loadavg"), machine),
        stall=pressure.stall(_read(root / "proc/pressure/memory")),
    )


def watch_load(limits: HostLimits, facts: Callable[[], HostLoad] = look) -> Callable[[int, int], str | None]:
    """A function from the counts of running and young workers to why no worker is to be started now."""
    return lambda running, young: pressure.find_holdup(facts(), limits, running=running, young=young)


def _upwards(top: Path, path: str | None) -> Iterator[Path]:
    """The directory of a control group and all above it; in a container those above may be out of sight."""
    if path is None or ".." in PurePosixPath(path).parts:
        return
    inner = PurePosixPath(path.lstrip("/"))
    yield from (top / one for one in (inner, *inner.parents))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("ascii", "replace")
    except OSError:
        return ""
