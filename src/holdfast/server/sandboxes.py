"""From a requested sandbox to a plan that the launcher can carry out, and who enforces it.

What this host can do is found out by doing it: the first time it matters, a throw-away command is
confined through the real path, and the stage and errno of a refusal are kept.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import plan as plans
from holdfast.sandbox.plan import Base, Plan
from holdfast.sandbox.planner import plan_for, settle
from holdfast.sandbox.policy import Bound, bind
from holdfast.sandbox.resolve import look
from holdfast.sandbox.select import UNCONFINED, Enforcement, HostFacts, Need, Trial, select
from holdfast.server.confine import needs_of, policy_of, where_of
from holdfast.server.launch import Command, Confinement, Exit, Launcher, SetupFailed
from holdfast.wire.permissions import SandboxContext

T = TypeVar("T")

TRIAL_S: Final = 5.0  # a set-up takes milliseconds; a host that hangs in it cannot be used


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What holds for one command: nothing when there is no confinement."""

    enforcement: Enforcement = UNCONFINED
    confinement: Confinement | None = None
    bound: Bound | None = None  # on real paths, to explain denials with
    fixed: tuple[str, ...] = ()  # mount points: never renamed or removed inside
    absent: tuple[str, ...] = ()  # protected names that do not exist yet


class Sandboxes:
    """Plans for policies, on this host."""

    def __init__(self, launcher: Launcher, files: ThreadPoolExecutor) -> None:
        self._launcher = launcher
        self._files = files
        self._facts: HostFacts | None = None
        self._trying = asyncio.Lock()

    async def prepare(
        self,
        context: SandboxContext | None,
        *,
        cwd: str,
        environ: Mapping[str, str],
        more_needs: frozenset[Need] = frozenset(),
    ) -> Sandbox:
        """The sandbox for a command that starts in `cwd`.

        Raises:
            UsageError: the policy makes no sense.
            SandboxUnavailable: nothing here can enforce it; nothing may be run.
        """
        if context is None:
            if more_needs:
                select(more_needs, await self.facts())
            return Sandbox()
        return await self.confine(bound_of(context, cwd=cwd, environ=environ), cwd=cwd, more_needs=more_needs)

    async def confine(self, bound: Bound, *, cwd: str, more_needs: frozenset[Need] = frozenset()) -> Sandbox:
        """The sandbox for a command that starts in `cwd` under this policy.

        Raises:
            UsageError, SandboxUnavailable: as `prepare` does.
        """
        needs = needs_of(bound) | more_needs
        if not needs:
            return Sandbox()
        enforcement = select(needs, await self.facts())
        plan, settled = await self._in_thread(lambda: plan_of(bound, cwd))
        return Sandbox(
            enforcement,
            Confinement(plans.encode(plan), enforcement.user_namespace),
            settled,
            tuple(step.path for step in plan.steps),
            plan.absent,
        )

    async def facts(self) -> HostFacts:
        """What works on this host, tried once."""
        async with self._trying:
            if self._facts is None:
                in_userns = await self._try(user_namespace=True)
                as_root = None
                if not in_userns.works and os.geteuid() == 0:
                    as_root = await self._try(user_namespace=False)
                self._facts = HostFacts(in_userns, as_root)
        return self._facts

    async def _try(self, *, user_namespace: bool) -> Trial:
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        trial = Confinement(plans.encode(Plan(Base.HOST, (), network_off=True, cwd="/")), user_namespace)
        try:
            async with asyncio.timeout(TRIAL_S):
                started = await self._launcher.start(
                    Command(("true",), "true", "/", {}),
                    owner=0,
                    streams=(null, null, null),
                    tty=False,
                    state=None,
                    on_exit=lambda end: None if ended.done() else ended.set_result(end),
                    confinement=trial,
                )
                await ended
        except SetupFailed as exc:
            return Trial(exc.stage, exc.errno)
        except TimeoutError:
            raise SandboxUnavailable("setting up a sandbox hangs on this host") from None
        finally:
            os.close(null)
        return Trial(weakened=started.weakened)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, call)


def bound_of(context: SandboxContext, *, cwd: str, environ: Mapping[str, str]) -> Bound:
    """The policy of a context with concrete paths.

    Raises:
        UsageError: it makes no sense.
    """
    slash_tmp = os.path.isdir("/tmp")  # noqa: S108 - the place itself is what a policy may name
    return bind(policy_of(context), where_of(context, cwd=cwd, environ=environ, slash_tmp=slash_tmp))


def plan_of(bound: Bound, cwd: str) -> tuple[Plan, Bound]:
    """The plan for a command that starts in `cwd`, and the policy on real paths; looks at the disk."""
    seen = look(bound, cwd)
    return plan_for(bound, seen), settle(bound, seen)
