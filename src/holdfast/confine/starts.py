"""A start from its callers' view: the command, its confinement, and its outcome.

This module lies between policies and processes. It takes a plan and the backend that enforces it, and makes
an order to the command's owner. The server sends its orders to its launcher; `holdfast exec` starts its
command itself.
"""

import errno
import os

from holdfast.confine.guard import HeldNames
from holdfast.errors import OperationFailed, SandboxUnavailable
from holdfast.light import TYPE_CHECKING, Any, Final, replace, value
from holdfast.sandbox.plan import plan as plans
from holdfast.sandbox.plan.plan import MAX_SOCKETS, Base, Plan, StepKind
from holdfast.sandbox.plan.planner import plan_for, settle
from holdfast.sandbox.plan.resolve import look, trace
from holdfast.sandbox.plan.select import BY_NAME, LABELS, UNCONFINED, WEAKNESSES, Enforcement, Way, declare
from holdfast.sandbox.policy.hostwish import find_loopback_ports, is_inspected
from holdfast.sandbox.policy.policy import Access, BoundPolicy
from holdfast.sandbox.protocol import orders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from holdfast.light import Mapping
    from holdfast.sandbox.limits import Limits, Reached

_PROXIES: Final = frozenset(("http_proxy", "https_proxy", "all_proxy"))  # as in `egress/upstream.py`
_GROUPS: Final = "/sys/fs/cgroup"  # where control groups are mounted, on every system
TRIAL_S: Final = 5.0  # a set-up takes milliseconds; a host where it hangs cannot be used
_WAYS: Final = {
    Way.USER_NAMESPACE: orders.USER_NAMESPACE,
    Way.AS_ROOT: 0,
    Way.BWRAP: orders.BWRAP,
    Way.LANDLOCK: orders.LANDLOCK,
}


@value
class Exit:
    """How a command ended. `code` is its exit code, or 128 + n after signal n."""

    code: int
    user_ms: int = 0
    system_ms: int = 0
    peak_rss_bytes: int = 0
    reached: "Reached | None" = None  # the limit that it reached
    traffic: "Mapping[str, Any] | None" = None  # traffic to hosts reached by name (`egress/traffic.py`)


@value
class Command:
    """What to run. Strings are file-system encoded; the caller has checked them for NUL."""

    argv: tuple[str, ...]
    program: str
    cwd: str
    env: dict[str, str]


@value
class Confinement:
    """The confinement of a command: a plan, and the way in which it is carried out."""

    plan: Plan
    way: Way
    tool: str = ""
    degraded: bool = False
    inner_ports: tuple[int, ...] = ()  # those of the plan's ports that lead to us, not to the host's loopback


@value
class StartedCommand:
    """A running command: the id to signal it by, its first process, and what came out weaker.

    `limits` is the word that names how its limits are enforced.
    """

    id: int
    pid: int
    weakened: tuple[str, ...] = ()
    limits: str = ""


@value
class Sandbox:
    """What holds for one command: nothing if there is no confinement."""

    enforcement: Enforcement = UNCONFINED
    confinement: Confinement | None = None
    bound: BoundPolicy | None = None  # on real paths, to explain denials
    fixed: tuple[str, ...] = ()  # mount points: cannot be renamed or removed inside
    held: HeldNames | None = None  # protected names that do not exist yet
    closed: tuple[str, ...] = ()  # writable directories whose entries cannot change
    unlisted: tuple[str, ...] = ()  # readable directories that cannot be listed


TRIAL: Final = Command(("true",), "true", "/", {})  # shows what a host can do


def trial_of(way: Way, tool: str) -> Confinement:
    """The smallest sandbox that uses every mechanism which a host may refuse."""
    return Confinement(Plan(Base.HOST, (), network_off=True, cwd="/"), way, tool)


def plan_of(bound: BoundPolicy, cwd: str, loopback_ports: tuple[int, ...] = ()) -> tuple[Plan, BoundPolicy]:
    """The plan for a command that starts in `cwd`, and the policy on real paths. Reads the disk.

    Raises:
        UsageError: the policy grants a socket that is never granted.
        SandboxUnavailable: the policy cannot be carried out.
    """
    seen = look(bound, cwd)
    made, granted = plan_for(bound, seen), _find_sockets(bound)
    named = find_loopback_ports(bound.hosts) if bound.by_name else ()
    made = replace(
        made,
        loopback_ports=(*loopback_ports, *(port for port in named if port not in loopback_ports)),
        by_name=bound.by_name,
        asks=bound.by_name and bound.hosts.ask_s > 0,
        hosts=bound.hosts if bound.by_name else None,
        sockets=granted,
        open_names=made.open_names + tuple(warn_of(granted)),
    )
    return made, settle(bound, seen)


def warn_of(granted: "Iterable[str]") -> "Iterator[str]":
    """A warning for each of these sockets that gives access to more than its service."""
    for path in granted:
        from holdfast.sandbox.policy.sockets import find_risk

        if (risk := find_risk(path)) is not None:
            yield f"{path} is granted: a process that reaches it can {risk}"


def _find_sockets(bound: BoundPolicy) -> tuple[str, ...]:
    """The real paths of the granted sockets."""
    if not bound.sockets:
        return ()
    from holdfast.home import default_home
    from holdfast.sandbox.policy.sockets import check_granted

    real = tuple(dict.fromkeys(trace(path).real for path in bound.sockets))
    check_granted((*bound.sockets, *real), home=os.path.realpath(default_home()), most=2 * MAX_SOCKETS)
    return real


def confined_by(held: Enforcement, plan: Plan, *, degraded: bool) -> tuple[Enforcement, Confinement]:
    """Choose how a plan is carried out, and declare what is lost by it.

    Raises:
        SandboxUnavailable: more is lost than the operator allows.
    """
    if held.way is Way.LANDLOCK:
        from holdfast.sandbox.kernel import landlock
        from holdfast.sandbox.plan.losses import find_losses

        held = declare(held, find_losses(plan, abi=landlock.abi(), degraded=degraded), degraded=degraded)
    if held.way is Way.BWRAP:
        from holdfast.sandbox.plan.covers import declare_bwrap

        held = replace(held, weakened=held.weakened + declare_bwrap(plan))
    if held.way is None:
        raise AssertionError("a plan exists only where something is needed")
    confinement = Confinement(plan, held.way, held.tool, degraded)
    network: tuple[str, ...] = ()
    weakened = held.weakened + plan.open_names
    if plan.by_name:
        above, passed_by = _describe_upstream()
        patterns = plan.hosts is not None and (plan.hosts.ask_s > 0 or "*" in "".join(plan.hosts.allow))
        network = (*BY_NAME, *((LABELS,) if patterns else ()), *((above,) if above else ()))
        weakened += (passed_by,) if passed_by else ()
    if plan.hosts is not None and plan.hosts.secrets:
        from holdfast.sandbox.policy.secretwish import describe_secret

        network += tuple(map(describe_secret, plan.hosts.secrets))
    if plan.hosts is not None:
        inspected = filter(is_inspected, plan.hosts.allow)
        network += tuple(f"requests: TLS of {rule} ends at the broker outside" for rule in inspected)
        network += tuple(f"preset {origin}" for origin in plan.hosts.origins)
    return replace(held, weakened=weakened, network=network), confinement


def _describe_upstream() -> tuple[str | None, str | None]:
    """What this machine's upstream proxy means for hosts by name: a description, and what is weaker."""
    if not any(name.lower() in _PROXIES and value for name, value in os.environ.items()):
        return None, None
    from holdfast.egress.upstream import Proxies, describe_by_name

    return describe_by_name(Proxies.from_environ(os.environ))


def hold_names(plan: Plan, settled: BoundPolicy) -> HeldNames:
    """The names that must not appear while the command of this plan runs. Call right after planning."""
    protected = {rule.path for rule in settled.rules if rule.protects is not None}
    return HeldNames(plan.absent, protected.difference(plan.absent))


def sandbox_of(
    held: Enforcement, confinement: Confinement, settled: BoundPolicy, names: HeldNames
) -> Sandbox:
    """The sandbox that holds for a command in this confinement."""
    plan = confinement.plan
    sandbox = Sandbox(held, confinement, settled, tuple(step.path for step in plan.steps), names)
    if held.way is not Way.LANDLOCK:
        return sandbox
    from holdfast.sandbox.plan import grants

    degraded = confinement.degraded
    return replace(
        sandbox,
        fixed=(),
        closed=grants.find_closed(plan, degraded=degraded),
        unlisted=grants.find_unlisted(plan, degraded=degraded),
    )


def request_of(
    command: Command,
    confinement: Confinement | None,
    *,
    flags: int,
    owner: int = 0,
    limits: "Limits | None" = None,
    run: int | None = None,
) -> orders.Order:
    """The order to start this command; `run` is as in `sandbox/limits.py`."""
    if confinement is not None:
        flags |= _WAYS[confinement.way] | (orders.DEGRADED if confinement.degraded else 0)
    return orders.Order(
        orders.START,
        owner=owner,
        flags=flags,
        cwd=os.fsencode(command.cwd),
        program=os.fsencode(command.program),
        argv=tuple(os.fsencode(arg) for arg in command.argv),
        env=tuple(os.fsencode(f"{name}={value}") for name, value in command.env.items()),
        plan=b"" if confinement is None else plans.encode(confinement.plan),
        tool=b"" if confinement is None else os.fsencode(confinement.tool),
        limits=b"" if limits is None else _limits().encode(limits, run),
    )


def _limits() -> "ModuleType":
    """Load the module only for a command that has limits."""
    from holdfast.sandbox import limits

    return limits


def started_of(event: orders.Event) -> StartedCommand:
    words = event.stage.split(",") if event.stage else []
    held = words.pop() if words and words[-1].startswith(orders.LIMITS) else ""
    return StartedCommand(event.id, event.pid, tuple(words), held)


def with_limits(held: Enforcement, started: StartedCommand, bound: BoundPolicy | None) -> Enforcement:
    """What holds under this policy, with the limits of this start and whatever came out weaker in it."""
    weaker = (WEAKNESSES.get(word, word) for word in started.weakened)
    unsaid = tuple(text for text in weaker if text not in held.weakened)
    if unsaid and bound is not None:
        held = replace(held, weakened=held.weakened + unsaid)
    if not started.limits:
        return held
    limits = _limits()
    writes = bound is None or bound.full_write or bound.access_at(_GROUPS) is Access.WRITE
    told, lost = limits.tell_means(limits.decode_means(started.limits), writable=writes)
    return replace(held, limits=told, weakened=held.weakened + lost)


def exit_of(event: orders.Event) -> Exit:
    code = os.waitstatus_to_exitcode(event.status)
    return Exit(
        code if code >= 0 else 128 - code,
        event.user_us // 1000,
        event.system_us // 1000,
        event.peak_rss,
        _limits().decode_reached(event.stage) if event.stage else None,
    )


class StartFailed(OperationFailed):
    """The program could not be executed; nothing runs."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{os.strerror(code)} (os error {code})")
        self.errno = code


class SetupFailed(SandboxUnavailable):
    """The sandbox could not be set up at `stage`; nothing was run."""

    def __init__(self, stage: str, code: int) -> None:
        from holdfast.sandbox.reasons import fingerprints

        found = fingerprints.by_errno(stage, code)
        super().__init__(
            f"the sandbox could not be set up ({stage}: {os.strerror(code)})",
            remedy=None if found is None else found.remedy,
            fingerprint=None if found is None else found.id,
        )
        self.stage, self.errno = stage, code

    @property
    def raced(self) -> bool:
        """Whether a path of the plan vanished between planning and mounting."""
        return self.errno == errno.ENOENT and self.stage in {*StepKind, "bwrap:bwrap.source"}


def failure_of(event: orders.Event) -> OperationFailed | SetupFailed:
    if event.stage in ("", "exec"):
        return StartFailed(event.errno)
    return SetupFailed(event.stage, event.errno)
