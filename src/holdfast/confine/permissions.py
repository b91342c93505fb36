"""Turn a wire sandbox context into a policy and its needs. Pure module."""

import enum
import functools
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from holdfast.egress.bounds.allowance import parse_limits
from holdfast.egress.hosts import check_addresses, parse_rules
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.light import replace
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.plan.plan import MAX_LOOPBACK_PORTS
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    BoundPolicy,
    Glob,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Target,
    Where,
)
from holdfast.wire import permissions as wire
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import Entry, SandboxContext, SpecialValue
from holdfast.wire.processes import StartParams

MAX_HOST_RULES: Final = 4096  # per context; each rule is compared when a name is first asked for
_ACCESS: Final = {"read": Access.READ, "write": Access.WRITE, "deny": Access.DENY, "none": Access.DENY}


class FileUse(enum.Enum):
    """What a file operation does to the files that it names."""

    READ = enum.auto()
    WRITE = enum.auto()


def policy_of(context: SandboxContext) -> Policy:
    """The policy a context asks for.

    Raises:
        UsageError: one of its paths is not valid on this host.
    """
    policy = replace(_policy_of(context), sockets=tuple(context.unix_sockets or ()))
    if not context.hosts or policy.kind is PolicyKind.DISABLED:
        return policy
    hosts = _hosts_of(context.hosts)
    if policy.network is Network.ON and hosts.reaches_any:
        raise UsageError("hosts say what is left of a network that is restricted")
    return replace(policy, hosts=hosts)


def _hosts_of(asked: wire.AllowedHosts) -> HostWish:
    """Raises UsageError if a rule is invalid."""
    if len(asked.allow) + len(asked.deny) + len(asked.addresses) + len(asked.own) > MAX_HOST_RULES:
        raise UsageError(f"more than {MAX_HOST_RULES} rules about hosts")
    parse_rules(asked.allow, asked.deny, own=asked.own)
    given = tuple((name.lower().removesuffix("."), at) for name, at in asked.addresses.items())
    check_addresses(given)
    parse_limits(asked.limits)
    allow, deny, own, limits = map(tuple, (asked.allow, asked.deny, asked.own, asked.limits))
    ask_s = (asked.ask_timeout_ms or 0) / 1000
    return HostWish(allow, deny, asked.private, given, own=own, limits=limits, ask_s=ask_s)


def _policy_of(context: SandboxContext) -> Policy:
    match context.permissions:
        case wire.Disabled():
            return Policy(None, Network.ON, PolicyKind.DISABLED)
        case wire.External(network=network):
            return Policy(None, Network(network), PolicyKind.EXTERNAL)
        case wire.Managed(
            file_system=wire.Restricted(entries=entries, glob_scan_max_depth=depth), network=network
        ):
            return Policy(tuple(_rule(entry) for entry in entries), Network(network), glob_depth=depth)
        case wire.Managed(network=network):
            return Policy(None, Network(network))
        case _:
            assert_never(context.permissions)


def _rule(entry: Entry) -> Rule:
    return Rule(_target(entry), _ACCESS[entry.access], entry.missing_path_behavior == "skip")


def _target(entry: Entry) -> Target:
    match entry.path:
        case wire.LiteralPath(path=uri):
            try:
                return At(uri.native())
            except UsageError as exc:
                raise UsageError(f"invalid sandbox permission path URI: {exc}") from None
        case wire.GlobPath(pattern=pattern):
            return Glob(pattern)
        case _:
            return _special(entry.path.value)


def _special(value: SpecialValue) -> Special:
    match value:
        case wire.RootPath():
            return Special(Place.ROOT)
        case wire.MinimalPath():
            return Special(Place.MINIMAL)
        case wire.ProjectRoots(subpath=subpath) | wire.CurrentWorkingDirectory(subpath=subpath):
            return Special(Place.PROJECT_ROOTS, subpath)
        case wire.TmpDir():
            return Special(Place.TMPDIR)
        case wire.SlashTmp():
            return Special(Place.SLASH_TMP)
        case wire.UnknownPath():
            return Special(Place.UNKNOWN)
        case _:
            assert_never(value)


def where_of(context: SandboxContext, *, cwd: str, environ: Mapping[str, str], slash_tmp: bool) -> Where:
    """What symbolic places mean for this context; `cwd` is the command's, used if the context names none.

    Raises:
        UsageError: one of its paths is not valid on this host.
    """
    policy_cwd = _policy_cwd(context)
    roots = context.workspace_roots
    if context.policy_context is not None:
        roots = context.policy_context.workspace_roots or []
    return Where(
        cwd=cwd if policy_cwd is None else _native("sandbox cwd", policy_cwd),
        workspace_roots=tuple(_native("sandbox workspace root", root) for root in roots),
        tmpdir=environ.get("TMPDIR") or None,
        slash_tmp=slash_tmp,
    )


def count_rules(context: SandboxContext) -> int:
    """The largest number of path rules that its entries can become: each entry once per workspace root."""
    asked = context if context.policy_context is None else context.policy_context
    return len(policy_of(context).rules or ()) * max(1, len(asked.workspace_roots or ()))


def name_unseen_cwd(context: SandboxContext, cwd: str) -> str:
    """The reason why a command cannot begin in a directory that its own policy hides from it."""
    asked = context if context.policy_context is None else context.policy_context
    wanted = any(
        isinstance(rule.target, Special) and rule.target.place is Place.PROJECT_ROOTS
        for rule in policy_of(context).rules or ()
    )
    why = (
        "workspaceRoots is empty, so entries for project roots grant nothing"
        if wanted and not asked.workspace_roots
        else "no entry grants it"
    )
    return f"the command cannot begin in {cwd}, which its sandbox does not show: {why}"


def check_mechanism(context: SandboxContext, *, restricted: bool) -> None:
    """Refuse codex's older Landlock mechanism, which cannot hide sockets; codex refuses such runs as well.

    Raises:
        SandboxUnavailable: the context asks for it by name, for a policy that restricts files.
    """
    if context.use_legacy_landlock and restricted:
        raise SandboxUnavailable(
            "sandbox intent cannot be enforced on this executor: useLegacyLandlock asks for a mechanism that"
            " cannot hold this policy",
            remedy="codex features disable use_legacy_landlock",
        )


def _native(label: str, uri: PathUri) -> str:
    try:
        return uri.native()
    except UsageError as exc:
        raise UsageError(f"{label} URI `{uri}` is not valid on this exec-server host: {exc}") from None


def managed_ports(params: StartParams) -> tuple[int, ...] | None:
    """The loopback ports that a managed network lets through; None if the network is not managed.

    As with the reference on Linux, a command may always listen inside. Access to all unix sockets at once
    would lead out of the sandbox.

    Raises:
        UsageError: what is asked for is never granted.
        SandboxUnavailable: it cannot be enforced.
    """
    asked = params.managed_network if params.enforce_managed_network else None
    launched = params.network_proxy is not None
    if (launched or params.enforce_managed_network) and (
        params.sandbox is None or (asked is None and not launched)
    ):
        raise SandboxUnavailable(
            "sandbox intent cannot be enforced on this executor: a managed network needs sandbox, and"
            " managedNetwork or networkProxy"
        )
    if asked is None:
        return () if launched else None
    if asked.dangerously_allow_all_unix_sockets:
        raise UsageError("dangerouslyAllowAllUnixSockets is not granted: it would lead out of the sandbox")
    return loopback_ports(asked.loopback_ports)


def limits_of(params: StartParams) -> Limits | None:
    """The limits on the command's resources; None if there are none.

    Raises:
        UsageError: the value of a limit is invalid.
    """
    asked = params.limits
    if asked is None:
        return None
    timeout_s = None if asked.timeout_ms is None else asked.timeout_ms / 1000
    try:
        return Limits(asked.memory, asked.pids, asked.cpus, asked.disk, asked.open_files, timeout_s)
    except ValueError as exc:
        raise UsageError(f"limit {exc}") from None


def managed_sockets(params: StartParams) -> tuple[str, ...]:
    """The unix sockets that a managed network lets through."""
    asked = params.managed_network if params.enforce_managed_network else None
    named = () if params.network_proxy is None else (params.network_proxy.proxy.unix_sockets or {}).items()
    launched = (path for path, access in named if access == "allow")
    return (*(asked.allow_unix_sockets if asked else ()), *launched)


def loopback_ports(asked: Iterable[int]) -> tuple[int, ...]:
    """These ports, sorted and without duplicates.

    Raises:
        UsageError: one is not a port number, or there are too many.
    """
    ports = tuple(sorted(set(asked)))
    if not all(0 < port < 1 << 16 for port in ports):
        raise UsageError("a loopback port is a number from 1 to 65535")
    if len(ports) > MAX_LOOPBACK_PORTS:
        raise UsageError(f"more than {MAX_LOOPBACK_PORTS} loopback ports")
    return ports


@functools.lru_cache(maxsize=64)  # called before every file operation, with the same few policies
def runs_directly(bound: BoundPolicy, use: FileUse) -> bool:
    """Whether a file operation may run outside a sandbox, because the policy denies it nothing."""
    return bound.full_write or (use is FileUse.READ and bound.full_read)


def check_cwd(context: SandboxContext) -> None:
    """Check that a policy for files names the directory that its relative parts refer to.

    Raises:
        UsageError: it does not.
    """
    if _depends_on_cwd(context) and _policy_cwd(context) is None:
        raise UsageError("file system sandbox context with dynamic permissions requires cwd")


def _policy_cwd(context: SandboxContext) -> PathUri | None:
    return context.cwd if context.policy_context is None else context.policy_context.cwd


def _depends_on_cwd(context: SandboxContext) -> bool:
    """Whether any entry means something else in another working directory."""
    return any(
        (isinstance(rule.target, Glob) and not rule.target.pattern.startswith("/"))
        or (isinstance(rule.target, Special) and rule.target.place is Place.PROJECT_ROOTS)
        for rule in policy_of(context).rules or ()
    )
