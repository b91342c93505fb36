"""A command with limits, as its owner sees it: how each limit is enforced, and when the command must end.

The command enters its control groups before any of its code runs, and the groups are removed after it. A
limit that no group can enforce is enforced by rlimits, or by sampling: `look` is called again and again
while the command runs.

Standard library only, and loaded only for a command that has limits.
"""

import os
import resource
import signal
from collections.abc import Callable
from typing import Final

from holdfast.sandbox import limits as rules
from holdfast.sandbox.kernel import cgroup, usage
from holdfast.sandbox.kernel.kernel import Stage
from holdfast.sandbox.limits import Limits, LimitUsage, Means, Reached

_CONTROLLERS: Final = {"memory": cgroup.MEMORY, "pids": cgroup.PIDS, "cpus": cgroup.CPU}
# Processes that the user's other programs may start meanwhile without the command being refused a fork.
_OTHERS: Final = 1000
_VERSIONS: Final = {"1": Means.V1, "2": Means.V2}


_OWN: Final = "own"  # name of the command's own group, if there are groups of others beside it


def _weigh(used: LimitUsage) -> tuple[int, int, int]:
    return used.memory, used.disk, used.pids


class LimitedCommand:
    """The limits of one command, from before its start until its groups are removed.

    `around` processes of ours are in its group and counted there. With `together` it gets a group even if no
    limit needs one, so that it can be ended as a whole. With `own_userns` it is alone in a user namespace of
    its own. If that namespace is made `later`, the process that makes it calls `enter_inside`.

    With `shared` its groups have room for the commands that it runs elsewhere. Those have this one as their
    `run`, and the sampled use of all is added up. If the sum is too large, the largest of them is ended; the
    command that they belong to is ended only when none of them is left.
    """

    def __init__(
        self,
        limits: Limits,
        name: str,
        *,
        around: int,
        own_userns: bool = False,
        later: bool = False,
        together: bool = False,
        shared: bool = False,
        run: "LimitedCommand | None" = None,
        where: cgroup.Hierarchies | None = None,
    ) -> None:
        self.limits = limits
        self._run = run
        self._commands: list[LimitedCommand] = []
        self._written = 0  # bytes written by its commands that have ended
        self.means: dict[str, Means] = {}
        self.reached: Reached | None = None
        self._around = around
        self._later = later
        self._inside = 0  # RLIMIT_NPROC of a user namespace that is made later
        self._began: float | None = None  # when the command itself began
        self._kill_at: float | None = None
        self._leader = 0
        self._used = LimitUsage()
        self._rlimits: dict[int, int] = {}
        wanted = {control for limit, control in _CONTROLLERS.items() if getattr(limits, limit) is not None}
        self._groups: cgroup.Groups | None = None
        if wanted or together:
            if run is not None and run._groups is not None:
                where = run._groups.within
            where = cgroup.find() if where is None else where
            self._groups = cgroup.make(name, wanted, where, leaf=_OWN if shared else "")
        self._divide(own_userns=own_userns)

    def _divide(self, *, own_userns: bool) -> None:
        """Choose how each limit is enforced."""
        limits, groups = self.limits, self._groups
        memory, pids, cpus = limits.memory, limits.pids, limits.cpus
        if memory is not None and not (groups and self._held("memory", lambda: groups.set_memory(memory))):
            self.means["memory"] = Means.SAMPLED
        if pids is not None and not (
            groups and self._held("pids", lambda: groups.set_pids(pids + self._around))
        ):
            self._bound_pids(pids, own_userns=own_userns)
        if cpus is not None and not (groups and self._held("cpus", lambda: groups.set_cpus(cpus))):
            self.means["cpus"] = Means.AFFINITY
        if limits.disk is not None:
            self.means["disk"] = Means.SAMPLED
            self._rlimits[resource.RLIMIT_FSIZE] = limits.disk
        if limits.open_files is not None:
            self.means["open_files"] = Means.RLIMIT
            self._rlimits[resource.RLIMIT_NOFILE] = limits.open_files
        if limits.timeout_s is not None:
            self.means["timeout"] = Means.CLOCK

    def _held(self, limit: str, put: Callable[[], None]) -> bool:
        """Whether a control group enforces this limit, after trying `put`."""
        version = self._groups.held.get(_CONTROLLERS[limit]) if self._groups else None
        if version is None:
            return False
        try:
            put()
        except OSError:
            return False
        self.means[limit] = _VERSIONS[version]
        return True

    def _bound_pids(self, most: int, *, own_userns: bool) -> None:
        """Limit processes by rlimit when there is no group; the kernel then counts a user's processes.

        In a user namespace of its own, the count covers only the command. Root is never limited.
        """
        if os.getuid() == 0:
            self.means["pids"] = Means.SAMPLED
        elif own_userns:
            self.means["pids"] = Means.OWN_USERNS
            if self._later:
                self._inside = most + 1
            else:
                self._rlimits[resource.RLIMIT_NPROC] = most + self._around
        else:
            self.means["pids"] = Means.PER_USER
            others = usage.threads_of_user(os.getuid())
            self._rlimits[resource.RLIMIT_NPROC] = others + most + _OTHERS

    @property
    def word(self) -> str:
        """How each limit is enforced, encoded for an event."""
        return rules.encode_means(self.means)

    # --- in the process that becomes the command

    def enter(self) -> None:
        """Apply the limits to this process.

        Raises:
            StageFailed: a limit cannot be applied; nothing may be run.
        """
        with Stage("limits"):
            if self._groups is not None:
                self._groups.enter()
            for kind, most in self._rlimits.items():
                hard = resource.getrlimit(kind)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (most, most))
            if self.means.get("cpus") is Means.AFFINITY:
                allowed = sorted(os.sched_getaffinity(0))
                os.sched_setaffinity(0, allowed[: max(1, -int(-(self.limits.cpus or 1) // 1))])

    def enter_inside(self, first: int) -> None:
        """Apply the limits that hold only inside the user namespace whose first process is `first`."""
        if self._inside:
            with Stage("limits"):
                resource.prlimit(first, resource.RLIMIT_NPROC, (self._inside, self._inside))

    # --- in its owner

    def begin(self, leader: int) -> None:
        """The process around the command was forked; its pid is `leader`."""
        self._leader = leader
        if self._run is not None:
            self._run._commands.append(self)
        if self._groups is not None:
            self._groups.close()

    def run(self, now: float) -> None:
        """The command runs: its time begins."""
        self._began = now

    def _elapsed_s(self, now: float) -> float:
        return 0.0 if self._began is None else now - self._began

    def look(self, now: float) -> int:
        """The signal to send to the command now; 0 for none."""
        if self.reached is not None:
            if self._kill_at is None or now < self._kill_at:
                return 0
            self._kill_at = None
            return signal.SIGKILL
        self._measure()
        used = self._sum_up()
        self.reached = rules.find_breach(self.limits, used, elapsed_s=self._elapsed_s(now))
        if self.reached is None:
            return 0
        if self.reached.what == "timeout":
            self._kill_at = now + rules.GRACE_S
            return signal.SIGTERM
        return signal.SIGKILL

    def look_again_s(self, now: float) -> float:
        if self.reached is not None:
            return max(0.0, (self._kill_at or now + rules.LATEST_S) - now)
        seen = frozenset(limit for limit, held in self.means.items() if held in rules.SEEN_BY_LOOKING)
        return rules.look_again_s(self.limits, self._sum_up(), seen, elapsed_s=self._elapsed_s(now))

    def _sum_up(self) -> LimitUsage:
        """The use to judge this command by: its own, plus its run's if it is the one to be ended for that."""
        run = self._run or self
        ended = LimitUsage(disk=run._written)
        others = [one._used for one in (run, *run._commands) if one is not self]
        if self is run and not run._commands:
            return rules.add_usage(self._used, [ended])
        if self is run or self is not max(run._commands, key=lambda one: _weigh(one._used)):
            return self._used
        return rules.add_usage(self._used, [ended, *others])

    def finish(self, code: int) -> Reached | None:
        """The command ended with this exit code; return the limit that it had reached."""
        self._measure(ended=True)
        if self._run is not None and self in self._run._commands:
            self._run._commands.remove(self)
            self._run._written += self._used.disk
        return self.reached or rules.judge_end(self.limits, self._used, code=code)

    def kill(self) -> None:
        """Kill every process in its groups."""
        if self._groups is not None:
            self._groups.kill()

    def remove(self) -> bool:
        """Remove its groups; return False if a process is still in them."""
        return self._groups is None or self._groups.remove()

    def _measure(self, *, ended: bool = False) -> None:
        used, means, groups = self._used, self.means, self._groups
        memory, memory_peak, oom_kills = used.memory, used.memory_peak, used.oom_kills
        pids, pids_peak, refused = used.pids, used.pids_peak, used.forks_refused
        disk = used.disk
        if groups is not None and means.get("memory") in _VERSIONS.values():
            _, memory_peak, oom_kills = groups.memory()
        if groups is not None and means.get("pids") in _VERSIONS.values():
            pids_peak, refused = groups.pids()
            pids_peak = max(0, pids_peak - self._around)
        looked = {limit for limit, held in means.items() if held in rules.SEEN_BY_LOOKING}
        if looked and not ended:
            inside = usage.tree(self._leader)
            own = inside[self._around :]
            if "memory" in looked:
                memory = usage.resident(own)
                if memory > (self.limits.memory or 0):
                    memory = usage.proportional(own)
                memory_peak = max(memory_peak, memory)
            if "pids" in looked:
                pids = usage.threads(own)
                pids_peak = max(pids_peak, pids)
            if "disk" in looked:
                disk = max(disk, usage.written(inside))
        self._used = LimitUsage(memory, memory_peak, oom_kills, pids, pids_peak, refused, disk)
