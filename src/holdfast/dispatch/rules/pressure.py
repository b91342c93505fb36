"""Memory and CPUs as the kernel reports them, and whether another worker may start. Pure module.

A process may have less than its machine: the limits of its control groups count, in version 1 and 2. The
texts contain bounds and no measured values, so that they stay the same for as long as they hold.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30
MAX_HERE: Final = 100  # runs at once on one host, however large; the supervisor has room for twice that
RUNS_PER_CPU: Final = 4  # agents wait for their model most of the time, and build and test in between
MEMORY_PER_RUN: Final = GIB  # an agent CLI with what it builds; the default counts on it
YOUNG_MEMORY: Final = 256 << 20  # memory that a just-started worker is expected to take soon
YOUNG_S: Final = 15.0  # after this its use shows in the free memory
MIN_FREE: Final = GIB  # or a tenth of the memory if that is less: small machines run agents, too
MAX_LOAD: Final = 4.0  # processes that want each CPU, on average over a minute
MAX_STALL: Final = 20.0  # percent of ten seconds in which every process waited for memory: it is thrashing
_UNLIMITED: Final = 1 << 60  # bytes: how version 1 of control groups expresses that there is no bound


@dataclass(frozen=True, slots=True)
class MemoryLoad:
    """Bytes: the total, and how much of it is available."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What is known of a host; None for values that it does not report."""

    cpus: float  # that this process may use
    memory: MemoryLoad | None = None
    load: float | None = None  # of the last minute, for each CPU of the machine
    stall: float | None = None  # percent of the last ten seconds, of memory


@dataclass(frozen=True, slots=True)
class HostLimits:
    """None: no limit; `min_free` is also None when nothing is known of the memory."""

    min_free: int | None = None
    max_load: float | None = None


def default_limits(facts: HostLoad) -> HostLimits:
    return HostLimits(min(MIN_FREE, facts.memory.total // 10) if facts.memory else None, MAX_LOAD)


def most_here(facts: HostLoad) -> int:
    """How many runs at once a host without settings gets; at least one."""
    rooms = [MAX_HERE, int(facts.cpus * RUNS_PER_CPU)]
    rooms += [facts.memory.total // MEMORY_PER_RUN] if facts.memory else []
    return max(1, min(rooms))


def find_holdup(facts: HostLoad, limits: HostLimits, *, running: int, young: int) -> str | None:
    """Why no worker is to be started now, in words; None when one may.

    `young` of the running workers have not taken their memory yet. Load alone never stops the first worker:
    other processes may keep a machine busy for ever.
    """
    if limits.min_free is not None and facts.memory is not None:
        if facts.memory.free - young * YOUNG_MEMORY < limits.min_free:
            return f"less than {limits.min_free / GIB:.2g} GiB of memory would be left"
        if facts.stall is not None and facts.stall > MAX_STALL:
            return f"everybody waits for memory for more than {MAX_STALL:.0f} % of the time"
    if running and limits.max_load is not None and facts.load is not None and facts.load > limits.max_load:
        return f"more than {limits.max_load:g} processes want each CPU"
    return None


def machine_memory(meminfo: str) -> MemoryLoad | None:
    """From /proc/meminfo."""
    found = {name: int(size) << 10 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.M)}
    try:
        return MemoryLoad(found["MemTotal"], found["MemAvailable"])
    except KeyError:
        return None


def group_memory(bound: str, used: str, stat: str) -> MemoryLoad | None:
    """From the files of a control group; None without a bound. Cached files count as reclaimable."""
    if not bound.strip().isdecimal() or not used.strip().isdecimal() or int(bound) > _UNLIMITED:
        return None
    cached = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.M)
    taken = int(used) - (int(cached[1]) if cached else 0)
    return MemoryLoad(int(bound), max(0, int(bound) - max(0, taken)))


def least(memories: Iterable[MemoryLoad | None]) -> MemoryLoad | None:
    """The memory that all of these bounds together leave."""
    known = [one for one in memories if one is not None]
    return MemoryLoad(min(m.total for m in known), min(m.free for m in known)) if known else None


def quota(text: str) -> float | None:
    """CPUs that a control group grants: `cpu.max`, or quota and period in one line; None if unlimited."""
    found = re.fullmatch(r"(\d+)\s+(\d+)\s*", text)
    return int(found[1]) / int(found[2]) if found and int(found[1]) and int(found[2]) else None


def groups(text: str) -> dict[str, str]:
    """From /proc/self/cgroup: the path by controller; version 2 has the empty name."""
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return {name: path for _, names, path in lines for name in names.split(",")}


def load(text: str, cpus: int) -> float | None:
    """From /proc/loadavg."""
    found = re.match(r"(\d+(?:\.\d+)?) ", text)
    return float(found[1]) / cpus if found else None


def stall(text: str) -> float | None:
    """From /proc/pressure/memory, or a control group's memory.pressure."""
    found = re.search(r"^full avg10=(\d+(?:\.\d+)?) ", text, re.M)
    return float(found[1]) if found else None
