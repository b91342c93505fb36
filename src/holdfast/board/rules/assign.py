"""Claims from ready tasks and free capacity, and a reason for each waiting task. Pure module.

It also detects jumps of the clock that dates leases.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from holdfast.board.rules.rows import Board, Task
from holdfast.board.rules.transitions import ENDS, TaskStatus


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many runs there may be at once; names that are missing are not bounded."""

    board: int | None = None
    profiles: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, int] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Busy:
    """The number of current runs: in total, by profile, by host, by pool, by environment."""

    board: int = 0
    profiles: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, int] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)


class Places(msgspec.Struct, frozen=True, omit_defaults=True):
    """The environments where a host can start work, and the default one of each profile."""

    environments: dict[str, str] = {}  # by name: why nothing is begun there now, or ""
    homes: dict[str, str] = {}  # by profile
    slots: dict[str, int] = {}  # runs at once, by environment

    def close_full(self, running: Mapping[str, int]) -> "Places":
        """A copy with full environments closed, counting the runs of all dispatchers."""
        full = {name for name, most in self.slots.items() if running.get(name, 0) >= most}
        shut = {
            name: why or (f"all {self.slots[name]} slots are taken" if name in full else "")
            for name, why in self.environments.items()
        }
        return msgspec.structs.replace(self, environments=shut)

    def find_environment(self, task: Task) -> str:
        """Where this host would run it; empty: on the host itself."""
        return task.environment or self.homes.get(task.assignee, "")

    def list_claimable(self, profile: str) -> list[str]:
        """The environments that a task of this profile may name to be started now; `""`: the host itself."""
        named = sorted(name for name, shut in self.environments.items() if not shut)
        home = self.homes.get(profile, "")
        return [*([""] if not home or home in named else []), *named]

    def find_holdup(self, task: Task) -> str | None:
        """Why nothing can be begun now at the place of a task; None if it can."""
        place = self.find_environment(task)
        if not place:
            return None
        shut = self.environments.get(place, "nobody here knows it")
        return f"environment {place}: {shut}" if shut else None


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    task: str
    host: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to claim now, best first, and why every other given task waits."""

    claims: tuple[PlannedClaim, ...]
    waiting: Mapping[str, str]


def assign(
    tasks: Iterable[Task],
    *,
    hosts: Mapping[str, Set[str]],
    capacity: Capacity,
    busy: Busy,
    now_ms: int,
    waits_for: Mapping[str, Sequence[str]] | None = None,
    held: Mapping[str, str] | None = None,
) -> Assignment:
    """Assign tasks to hosts. `hosts` has the profiles of each host; the least busy host gets the task.

    `held` are the hosts that start nothing now, and why.
    """
    left = _Left(capacity, busy)
    claims: list[PlannedClaim] = []
    waiting: dict[str, str] = {}
    for task in sorted(tasks, key=lambda task: (-task.priority, task.created_ms, task.id)):
        reason = holdup(task, now_ms=now_ms, waits_for=(waits_for or {}).get(task.id, ()))
        if reason is None:
            offering = sorted(host for host, profiles in hosts.items() if task.assignee in profiles)
            accepting = [host for host in offering if host not in (held or {})]
            if accepting:
                reason = left.full(task.assignee, task.pool, accepting)
            else:
                reason = _nobody(task.assignee, {host: (held or {})[host] for host in offering})
            if reason is None:
                claims.append(PlannedClaim(task.id, left.take(task.assignee, task.pool, accepting)))
                continue
        waiting[task.id] = reason
    return Assignment(tuple(claims), waiting)


def holdup(task: Task, *, now_ms: int, waits_for: Sequence[str] = ()) -> str | None:
    """Why the task itself must not be claimed, whatever capacity there is; None when it may be."""
    match task.status:
        case TaskStatus.READY:
            return None if task.assignee else "nobody is assigned"
        case TaskStatus.TODO:
            return f"waits for {', '.join(waits_for)}" if waits_for else "waits for other tasks"
        case TaskStatus.SCHEDULED:
            return f"scheduled for {clock(task.wake_ms)}"
        case TaskStatus.WAITING_SYSTEM:
            due = task.wake_ms is not None and task.wake_ms <= now_ms
            until = "is over" if due else f"until {clock(task.wake_ms)}"
            return f"{task.reason or 'cool-down'} {until}"
        case TaskStatus.WAITING_HUMAN:
            return f"waits for {task.waiting_for or 'a person'}: {task.question}"
        case TaskStatus.REVIEW:
            if task.waiting_for:  # its checks come before a person is asked
                return f"{task.reason} before it is looked at"
            asked = f"waits for a review{f' by {task.reviewer}' if task.reviewer else ''}"
            return f"{asked}: {task.reason}" if task.reason else asked
        case TaskStatus.HANDOFF_FAILED:
            return "its report is missing: complete it, or retry it"
        case TaskStatus.TRIAGE:
            return "it does not say yet what is to be done"
        case TaskStatus.RUNNING:
            return "is running"
        case ended if ended in ENDS:
            reason = task.reason.removeprefix(f"{ended}: ")
            return f"is {ended}: {reason}" if reason else f"is {ended}"
    raise AssertionError("every status is above")


def find_cap_reached(
    assignee: str, *, capacity: Capacity, busy: Busy, host: str, pool: str = ""
) -> str | None:
    """The bound of the board, the profile, the pool or the host that is reached now."""
    return _Left(capacity, busy).full(assignee, pool, [host])


def find_pools_reached(*, capacity: Capacity, busy: Busy) -> dict[str, str]:
    """The pools that are full now, each with the reason in words."""
    left = _Left(capacity, busy)
    return {
        name: reason for name in sorted(capacity.pools) if (reason := left.reached("pool", name)) is not None
    }


def why_stopped(board: Board) -> str | None:
    """Why nothing at all is claimed on a board."""
    if board.archived:
        return f"the board {board.slug} is archived"
    return f"the board {board.slug} is paused" if board.paused else None


def clock(at_ms: int | None) -> str:
    """A time for people; in UTC, because hosts differ."""
    if at_ms is None:
        return "further notice"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _nobody(assignee: str, held: Mapping[str, str]) -> str:
    if held:
        return "; ".join(f"host {host} starts nothing now: {reason}" for host, reason in held.items())
    return f"no worker accepts it: no dispatcher starts workers for {assignee}"


class _Left:
    """The remaining capacity while claims are made."""

    def __init__(self, capacity: Capacity, busy: Busy) -> None:
        board = {} if capacity.board is None else {"": capacity.board}
        self._most = {
            "board": board,
            "profile": capacity.profiles,
            "pool": {name: most for name, most in capacity.pools.items() if name},
            "host": capacity.hosts,
        }
        self._used = {
            "board": Counter({"": busy.board}),
            "profile": Counter(busy.profiles),
            "pool": Counter(busy.pools),
            "host": Counter(busy.hosts),
        }

    def reached(self, scope: str, name: str) -> str | None:
        """The bound that is reached there, in words."""
        most = self._most[scope].get(name)
        if most is None or self._used[scope][name] < most:
            return None
        return f"cap of {f'{scope} {name}' if name else 'the board'}: {most}"

    def full(self, assignee: str, pool: str, hosts: Sequence[str]) -> str | None:
        for scope, name in (("board", ""), ("profile", assignee), ("pool", pool)):
            if reason := self.reached(scope, name):
                return reason
        return None if any(map(self._free, hosts)) else f"cap of host {', '.join(hosts)}"

    def take(self, assignee: str, pool: str, hosts: Sequence[str]) -> str:
        host = min(filter(self._free, hosts), key=lambda host: (self._used["host"][host], host))
        for scope, name in (("board", ""), ("profile", assignee), ("pool", pool), ("host", host)):
            self._used[scope][name] += 1
        return host

    def _free(self, host: str) -> bool:
        return self.reached("host", host) is None


# --- leases when the store's clock has jumped
#
# The store dates everything by a wall clock, which people, time servers, virtual machines and suspended
# laptops change. The process that looks for expired leases also has a steady clock. Between two looks both
# must advance by the same amount. If they do not, no time in the store says how long ago something was.

TOLERANCE_MS: Final = 2_000  # two clocks are never read at the same moment, and a wall clock is slewed


class ClockReading(NamedTuple):
    """The store's clock and a steady one, read together."""

    wall_ms: int
    steady_ms: int

    @property
    def offset_ms(self) -> int:
        return self.wall_ms - self.steady_ms


def find_jump(offset_ms: int | None, reading: ClockReading, *, lease_ms: int) -> int:
    """By how much the wall clock has jumped since its offset was `offset_ms`; 0 without one.

    Negative: it went back. The offset is that of the last jump, not of the last look, so that many small
    steps add up to a large one. For short leases a quarter of the lease, half of what it has to spare,
    already counts as a jump.
    """
    if offset_ms is None:
        return 0
    moved = reading.offset_ms - offset_ms
    return moved if abs(moved) > min(TOLERANCE_MS, lease_ms // 4) else 0


def find_future(now_ms: int) -> int:
    """Anything dated later than this was dated before the clock went back."""
    return now_ms + TOLERANCE_MS
