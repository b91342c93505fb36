"""Control groups: the kernel's accounting and limits for a set of processes, and their common end.

Groups are made below our own group, or below the nearest group above it that can give more of the wanted
controllers (`_find_place`). The limits of that parent group apply to them too. A controller that cgroup v2
offers is used there; otherwise the v1 hierarchy of that name is used. This module only reads and writes
files; the meaning of a limit is in `sandbox/limits.py`.

Standard library only: the launcher imports this.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from holdfast.sandbox.kernel.kernel import write_file

MEMORY, PIDS, CPU, FREEZER = "memory", "pids", "cpu", "freezer"
_PREFIX: Final = "holdfast-"
_PERIOD_US: Final = 100_000  # the period that container runtimes use
_FREEZE_S: Final = 1.0  # freezing takes as long as a system call that does not wait
_LOOK_AGAIN_S: Final = 0.002


class Hierarchies(NamedTuple):
    """Our place: our directory in each cgroup v1 hierarchy, and our directory and mount point in v2."""

    first: Mapping[str, str]
    second: str = ""
    second_top: str = ""


def find(root: str = "") -> Hierarchies:
    """The position of this process; empty if control groups are not mounted."""
    try:
        return locate(_read(f"{root}/proc/self/mountinfo"), _read(f"{root}/proc/self/cgroup"))
    except OSError:
        return Hierarchies({})


def locate(mountinfo: str, membership: str) -> Hierarchies:
    """The same, from the texts of mountinfo and of our membership. Pure."""
    own: dict[str, str] = {}
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own |= dict.fromkeys(names.split(","), path)
    first: dict[str, str] = {}
    second = top = ""
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        shown, place = fields.split(" ")[3:5]
        kind, _, options = tail.split(" ")[:3]
        if kind == "cgroup2" and "" in own and not top:
            second, top = _below(place, shown, own[""]), place
        elif kind == "cgroup":
            for name in (MEMORY, PIDS, CPU, FREEZER):
                if name in options.split(",") and name in own:
                    first[name] = _below(place, shown, own[name])
    return Hierarchies(first, second, top)


def _below(place: str, shown: str, path: str) -> str:
    """Where a group is visible, if the mount shows the tree from `shown` on."""
    if shown != "/":
        path = path.removeprefix(shown) if f"{path}/".startswith(f"{shown}/") else "/"
    return (place + path).rstrip("/")


def count_oom_kills(where: Hierarchies) -> int | None:
    """How many processes of this group itself the kernel killed for lack of memory; None if it does not say.

    Kills in groups below it, such as that of a command with a limit of its own, do not count.
    """
    candidates = [f"{where.first[MEMORY]}/memory.oom_control"] if MEMORY in where.first else []
    candidates += [f"{where.second}/memory.events.local"] if where.second else []
    for path in candidates:
        if os.path.exists(path):
            return _event(path, "oom_kill")
    return None


class Groups:
    """The groups of one command. `make` creates them; a process calls `enter` to join them.

    With `leaf` the command is in a child group of that name. Beside the leaf there is room for other groups
    (`within`) that the same limits apply to.
    """

    def __init__(self, held: dict[str, str], places: dict[str, str], killer: str, leaf: str = "") -> None:
        self.held = held  # controller -> "1" or "2"
        self._places = places  # controller -> directory
        self._killer = killer  # the group whose members are ended together
        self._leaf = f"/{leaf}" if leaf else ""
        self._all = tuple(dict.fromkeys((*places.values(), killer)))
        self._doors = [
            os.open(f"{place}{self._leaf}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for place in self._all
        ]

    @property
    def within(self) -> Hierarchies:
        """Where to make further groups that these limits apply to as well."""
        first = {name: place for name, place in self._places.items() if self.held[name] == "1"}
        second = next((place for place in self._all if place not in first.values()), "")
        return Hierarchies(first, second, second)

    def enter(self) -> None:
        """Join all groups, with every process that we start from now on."""
        for door in self._doors:
            os.write(door, b"0")

    def close(self) -> None:
        """Close the descriptors for joining: the owner does not need them once the command is inside."""
        for door in self._doors:
            os.close(door)
        self._doors = []

    def set_memory(self, limit: int) -> None:
        place = self._places[MEMORY]
        if self.held[MEMORY] == "2":
            write_file(f"{place}/memory.max", str(limit))
            _try_write(f"{place}/memory.swap.max", "0")  # absent where there is no swap
            _try_write(f"{place}{self._leaf}/memory.oom.group", "1")
        else:
            write_file(f"{place}/memory.limit_in_bytes", str(limit))
            _try_write(f"{place}/memory.memsw.limit_in_bytes", str(limit))

    def set_pids(self, limit: int) -> None:
        write_file(f"{self._places[PIDS]}/pids.max", str(limit))

    def set_cpus(self, share: float) -> None:
        place, quota = self._places[CPU], int(share * _PERIOD_US)
        if self.held[CPU] == "2":
            write_file(f"{place}/cpu.max", f"{quota} {_PERIOD_US}")
        else:
            write_file(f"{place}/cpu.cfs_period_us", str(_PERIOD_US))
            write_file(f"{place}/cpu.cfs_quota_us", str(quota))

    def memory(self) -> tuple[int, int, int]:
        """Bytes now, the peak so far, and how many processes the kernel killed for lack of memory."""
        place = self._places[MEMORY]
        if self.held[MEMORY] == "2":
            now = _number(f"{place}/memory.current")
            return (
                now,
                max(now, _number(f"{place}/memory.peak")),
                _event(f"{place}{self._leaf}/memory.events", "oom_kill"),
            )
        now = _number(f"{place}/memory.usage_in_bytes")
        peak = _number(f"{place}/memory.max_usage_in_bytes")
        return now, max(now, peak), _event(f"{place}{self._leaf}/memory.oom_control", "oom_kill")

    def pids(self) -> tuple[int, int]:
        """The peak number of processes and threads, and how often one more was refused."""
        place = self._places[PIDS]
        peak = max(_number(f"{place}/pids.peak"), _number(f"{place}/pids.current"))
        return peak, _event(f"{place}/pids.events", "max")

    def members(self) -> list[int]:
        try:
            return [int(word) for word in _read(f"{self._all[0]}{self._leaf}/cgroup.procs").split()]
        except OSError:
            return []

    def kill(self) -> None:
        """Kill every member, including processes that are being forked."""
        if _try_write(f"{self._killer}/cgroup.kill", "1"):
            return
        frozen = _try_write(f"{self._killer}/freezer.state", "FROZEN")
        deadline = time.monotonic() + _FREEZE_S
        while frozen and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if _read(f"{self._killer}/freezer.state").strip() == "FROZEN":
                    break
            time.sleep(_LOOK_AGAIN_S)
        for pid in self.members():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if frozen:
            _try_write(f"{self._killer}/freezer.state", "THAWED")

    def remove(self) -> bool:
        """Remove the groups; return False if a process is still in them."""
        self.close()
        left = [place for place in self._all if not _remove(place)]
        return not left


def make(name: str, wanted: Iterable[str], where: Hierarchies, *, leaf: str = "") -> Groups | None:
    """Make groups with those of the wanted controllers that are available; None if there are none at all.

    Groups left behind by an owner that is gone are removed first. `leaf` is as in `Groups`.
    """
    wanted = frozenset(wanted)
    name = f"{_PREFIX}{os.getpid()}-{name}"
    held: dict[str, str] = {}
    places: dict[str, str] = {}
    killer = ""
    if where.second:
        above, offered = _find_place(where.second, where.second_top, wanted)
        if above and _make(made := f"{above}/{name}", leaf):
            offered = _offer(made, offered) if leaf else offered
            held |= dict.fromkeys(offered, "2")
            places |= dict.fromkeys(offered, made)
            killer = made if os.path.exists(f"{made}/cgroup.kill") else ""
            if not killer and not offered:
                _remove(made)
    for controller in (*sorted(wanted - held.keys()), *(() if killer else (FREEZER,))):
        above = where.first.get(controller, "")
        if above and os.access(above, os.W_OK) and _make(made := f"{above}/{name}", leaf):
            places[controller] = made
            held[controller] = "1"
    killer = killer or places.get(FREEZER, "") or next(iter(places.values()), "")
    try:
        return Groups(held, places, killer, leaf) if killer else None
    except OSError:
        for place in (*places.values(), killer):
            _remove(place)
        return None


def _find_place(own: str, top: str, wanted: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The nearest directory, from ours upwards, in which a group gets the most of the wanted controllers.

    A process may move only if both its old and its new group are below a directory that we may write. A
    group with processes in it gives its children no controllers.
    """
    best, most = "", frozenset[str]()
    place = own
    while True:
        if os.access(place, os.W_OK) and os.access(f"{place}/cgroup.procs", os.W_OK):
            offered = _offer(place, wanted)
            if not best or len(offered) > len(most):
                best, most = place, offered
            if offered == wanted:
                break
        above = os.path.dirname(place)
        if place == top or above == place:
            break
        place = above
    return best, most


def _offer(place: str, wanted: frozenset[str]) -> frozenset[str]:
    """The wanted controllers that a child of this group gets; those missing are enabled if possible."""
    try:
        known = wanted & frozenset(_read(f"{place}/cgroup.controllers").split())
        given = frozenset(_read(f"{place}/cgroup.subtree_control").split())
    except OSError:
        return frozenset()
    for controller in sorted(known - given):
        if _try_write(f"{place}/cgroup.subtree_control", f"+{controller}"):
            given |= {controller}
    return known & given


def _make(place: str, leaf: str) -> bool:
    _sweep(os.path.dirname(place))
    try:
        os.mkdir(place)
        if leaf:
            os.mkdir(f"{place}/{leaf}")
    except OSError:
        _remove(place)
        return False
    return True


def _sweep(above: str) -> None:
    """Remove groups whose owner is gone; a group with members cannot be removed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(above):
            if name.startswith(_PREFIX) and not os.path.exists(f"/proc/{name.split('-')[1]}"):
                _remove(f"{above}/{name}")


def _remove(place: str) -> bool:
    """Remove a group and those below it; a group that has members stays."""
    try:
        for entry in os.scandir(place):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
        os.rmdir(place)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _try_write(path: str, text: str) -> bool:
    try:
        write_file(path, text)
    except OSError:
        return False
    return True


def _number(path: str) -> int:
    """The number in this file; 0 if this kernel has no such file, or the value is no number (unbounded)."""
    try:
        text = _read(path).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _event(path: str, name: str) -> int:
    try:
        lines = _read(path).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
