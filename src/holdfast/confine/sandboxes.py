"""Turn a requested sandbox into a plan that the launcher can carry out, and choose the enforcing backend.

The host's abilities are found out by trying: the first time it matters, a throw-away command is confined
through the real code path, and the stage and errno of a refusal are kept.
"""

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.confine import starts
from holdfast.confine.guard import HeldNames, hide_homes
from holdfast.confine.launch import LauncherClient
from holdfast.confine.names import read_rules
from holdfast.confine.permissions import check_mechanism, count_rules, policy_of, where_of
from holdfast.confine.starts import Confinement, Exit, Sandbox, SetupFailed
from holdfast.egress.hosts import forget_keys
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.light import replace
from holdfast.local.listeners import refuse_own_ports
from holdfast.sandbox.backends import bwraptool
from holdfast.sandbox.plan.plan import Plan
from holdfast.sandbox.plan.planner import settle
from holdfast.sandbox.plan.resolve import look
from holdfast.sandbox.plan.select import ANY, Choice, Enforcement, Trial, Way, select
from holdfast.sandbox.policy.hostwish import is_inspected
from holdfast.sandbox.policy.narrowing import find_excess, narrow, show
from holdfast.sandbox.policy.paths import absolute
from holdfast.sandbox.policy.policy import BoundPolicy, Need, Network, bind, needs_of
from holdfast.wire.permissions import SandboxContext

if TYPE_CHECKING:
    from holdfast.confine.keys import KeptKeys

T = TypeVar("T")

MAX_ASKED_RULES: Final = 256  # each is compared with each rule of the ceiling; codex sends a dozen
MAX_BOUND: Final = 64  # policies with concrete paths that are remembered


class Sandboxes:
    """Plans policies on this host."""

    def __init__(
        self,
        launcher: LauncherClient,
        files: ThreadPoolExecutor,
        *,
        path: str,
        choice: Choice = ANY,
        trials: dict[Way, Trial] | None = None,
    ) -> None:
        self._launcher = launcher
        self._files = files
        self._path = path
        self._choice = choice
        self._trials: dict[Way, Trial] = {} if trials is None else trials
        self._trying = asyncio.Lock()
        self._chosen: dict[frozenset[Need], Enforcement] = {}

    async def prepare(
        self,
        context: SandboxContext | None,
        *,
        cwd: str,
        environ: Mapping[str, str],
        managed_ports: tuple[int, ...] | None = None,
        managed_sockets: tuple[str, ...] = (),
        inner_ports: tuple[int, ...] = (),
        keys: "KeptKeys | None" = None,
    ) -> Sandbox:
        """The sandbox for a command that starts in `cwd`.

        With `managed_ports` the network is off, whatever the policy says, except for these ports and
        sockets, and for `inner_ports`, which lead to the process that starts the command. The hosts of
        `keys` are reached by name.

        Raises:
            UsageError: the policy is invalid.
            SandboxUnavailable: nothing here can enforce it; nothing may be run.
        """
        if context is None:
            return Sandbox()
        bound = bound_of(context, cwd=cwd, environ=environ, keys=keys)
        check_mechanism(context, restricted=bound.restricted and not bound.full_write)
        if managed_ports is not None:
            sockets = (*bound.sockets, *(absolute(path, "") for path in managed_sockets))
            bound = replace(bound, network=Network.OFF, sockets=tuple(dict.fromkeys(sockets)))
        return await self.confine(bound, cwd=cwd, loopback_ports=managed_ports or (), inner_ports=inner_ports)

    def under(self, ceiling: BoundPolicy, files: ThreadPoolExecutor) -> "NarrowedSandboxes":
        """The same on this host, for commands whose policy is limited to this one (on real paths)."""
        return NarrowedSandboxes(
            ceiling, self._launcher, files, path=self._path, choice=self._choice, trials=self._trials
        )

    async def confine(
        self,
        bound: BoundPolicy,
        *,
        cwd: str,
        loopback_ports: tuple[int, ...] = (),
        inner_ports: tuple[int, ...] = (),
    ) -> Sandbox:
        """The sandbox for a command that starts in `cwd` under this policy.

        Only a policy with the network off can let ports of our loopback through, or have inner ports.

        Raises:
            UsageError, SandboxUnavailable: as `prepare` does.
        """
        ports = (*loopback_ports, *inner_ports)
        needs = needs_of(bound) | ({Need.LOOPBACK_PORTS} if ports else frozenset())
        if not needs:
            return Sandbox()
        if bound.by_name:
            read_rules(bound.hosts)
        if loopback_ports:
            await self._in_thread(lambda: refuse_own_ports(loopback_ports))
        held = await self.enforcement(needs)  # a policy that no backend can enforce is not planned

        def plan_now() -> tuple[Plan, BoundPolicy, HeldNames]:
            plan, settled = starts.plan_of(bound, cwd, ports)
            return plan, settled, starts.hold_names(plan, settled)

        plan, settled, names = await self._in_thread(plan_now)
        enforcement, confinement = starts.confined_by(held, plan, degraded=self._choice.degraded)
        confinement = replace(confinement, inner_ports=inner_ports)
        return starts.sandbox_of(enforcement, confinement, settled, names)

    async def carried_out(self, needs: frozenset[Need], plan: Plan) -> tuple[Enforcement, Confinement]:
        """Choose the backend for a plan that meets these needs, and declare what is lost by it.

        Raises:
            SandboxUnavailable: no backend can carry it out, or more is lost than the operator allows.
        """
        return starts.confined_by(await self.enforcement(needs), plan, degraded=self._choice.degraded)

    async def enforcement(self, needs: frozenset[Need]) -> Enforcement:
        """The strongest way that works on this host and was not excluded; each way is tried once.

        A way that failed for want of descriptors or processes is tried again with the next start. Otherwise
        one moment of shortage would mean a weaker sandbox, or none, for as long as this process lives.

        Raises:
            SandboxUnavailable: nothing here meets these needs.
        """
        if needs in self._chosen:
            return self._chosen[needs]
        async with self._trying:
            for way in self._choice.ways(root=os.geteuid() == 0):
                if way not in self._trials or self._trials[way].may_pass:
                    self._trials[way] = await self._try(way)
                if self._trials[way].works:
                    break
        chosen = select(needs, self._trials)
        if not any(trial.may_pass for trial in self._trials.values()):
            self._chosen[needs] = chosen
        return chosen

    async def try_all(self) -> Mapping[Way, Trial]:
        """The result of trying every way here, including those that are weaker than one that works."""
        async with self._trying:
            for way in ANY.ways(root=os.geteuid() == 0):
                if way not in self._trials or self._trials[way].may_pass:
                    self._trials[way] = await self._try(way)
        return dict(self._trials)

    async def _try(self, way: Way) -> Trial:
        tool = ""
        if way is Way.BWRAP:
            try:
                tool = await self._in_thread(lambda: bwraptool.find(self._path))
            except bwraptool.Unusable as exc:
                return Trial(exc.stage, exc.errno)
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            async with asyncio.timeout(starts.TRIAL_S):
                started = await self._launcher.start(
                    starts.TRIAL,
                    streams=(null, null, null),
                    on_exit=lambda end: None if ended.done() else ended.set_result(end),
                    confinement=starts.trial_of(way, tool),
                )
                await ended
        except SetupFailed as exc:
            return Trial(exc.stage, exc.errno)
        except TimeoutError:
            raise SandboxUnavailable("setting up a sandbox hangs on this host") from None
        finally:
            os.close(null)
        return Trial(weakened=started.weakened, tool=tool)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, call)


class NarrowedSandboxes(Sandboxes):
    """Plans under a ceiling: whatever a context asks for, a command gets no more than the ceiling allows."""

    def __init__(
        self,
        ceiling: BoundPolicy,
        launcher: LauncherClient,
        files: ThreadPoolExecutor,
        *,
        path: str,
        choice: Choice,
        trials: dict[Way, Trial],
    ) -> None:
        super().__init__(launcher, files, path=path, choice=choice, trials=trials)
        self._ceiling = ceiling

    async def prepare(
        self,
        context: SandboxContext | None,
        *,
        cwd: str,
        environ: Mapping[str, str],
        managed_ports: tuple[int, ...] | None = None,
        managed_sockets: tuple[str, ...] = (),
        inner_ports: tuple[int, ...] = (),
        keys: "KeptKeys | None" = None,
    ) -> Sandbox:
        """As `Sandboxes.prepare`; without a context, the command gets what the ceiling allows.

        Raises:
            UsageError: also if ports or sockets of the host, or keys, are asked for.
        """
        if managed_ports or managed_sockets or inner_ports:
            raise UsageError("this executor lets no ports and no sockets of the host through")
        if keys is not None and keys.keys:
            raise UsageError("this executor keeps no keys for commands")
        bound = await self._in_thread(lambda: narrow_to(self._ceiling, context, cwd=cwd, environ=environ))
        # Keys of the process that starts these commands: no broker puts them into the commands' requests.
        ceiling, bound = self._ceiling, replace(bound, hosts=forget_keys(bound.hosts))
        if keys is not None and any(map(is_inspected, bound.hosts.allow)):
            ceiling, bound = show(ceiling, keys.folder), show(bound, keys.folder)
        if managed_ports is not None:
            bound = replace(bound, network=Network.OFF)
        sandbox = await self.confine(bound, cwd=cwd)
        # A directory could have been replaced by a link to another one since the comparison.
        if sandbox.bound is None or (excess := find_excess(sandbox.bound, ceiling)) is not None:
            what = "/" if sandbox.bound is None else excess
            raise SandboxUnavailable(f"what the policy names keeps changing: {what} is not for this command")
        return sandbox


def narrow_to(
    ceiling: BoundPolicy, context: SandboxContext | None, *, cwd: str, environ: Mapping[str, str]
) -> BoundPolicy:
    """What a context asks for, as far as the ceiling allows it. Reads the disk.

    The ceiling hides Holdfast's homes except for what a run needs of them, so the context need not.

    Raises:
        UsageError: the context is invalid, or has too many rules.
        SandboxUnavailable: it asks for a mechanism that cannot enforce it.
    """
    if context is None:
        return replace(ceiling, cwd=absolute(cwd, ""))
    check_mechanism(context, restricted=True)
    if count_rules(context) > MAX_ASKED_RULES:
        raise UsageError(f"more than {MAX_ASKED_RULES} rules about paths")
    asked = bound_of(context, cwd=cwd, environ=environ, homes=())
    return narrow(settle(asked, look(asked)), ceiling)


_bind = functools.lru_cache(maxsize=MAX_BOUND)(bind)  # clients send the same policy again and again


def bound_of(
    context: SandboxContext,
    *,
    cwd: str,
    environ: Mapping[str, str],
    homes: Sequence[str] | None = None,
    keys: "KeptKeys | None" = None,
) -> BoundPolicy:
    """The policy of a context on concrete paths, with Holdfast's homes denied.

    `homes` are the homes to deny; None means all that exist, an empty sequence none. The hosts of `keys` are
    reached by name.

    Raises:
        UsageError: the policy is invalid.
    """
    slash_tmp = os.path.isdir("/tmp")  # noqa: S108 - the place itself is what a policy may name
    where = where_of(context, cwd=cwd, environ=environ, slash_tmp=slash_tmp)
    policy = policy_of(context)
    return hide_homes(_bind(policy if keys is None else keys.grant(policy), where), found=homes)
