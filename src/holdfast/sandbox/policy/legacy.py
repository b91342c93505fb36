"""The older sandbox policies, to and from today's. Pure module.

They know one workspace and read everything: what a policy hides does not survive the way back.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    Bound,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Where,
    bind,
)
from holdfast.sandbox.policy.presets import full_access, read_only, workspace_write


@dataclass(frozen=True, slots=True)
class DangerFullAccess:
    pass


@dataclass(frozen=True, slots=True)
class ReadOnly:
    network_access: bool = False


@dataclass(frozen=True, slots=True)
class ExternalSandbox:
    network_access: Network = Network.OFF


@dataclass(frozen=True, slots=True)
class WorkspaceWrite:
    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


LegacyPolicy: TypeAlias = DangerFullAccess | ReadOnly | ExternalSandbox | WorkspaceWrite


def to_policy(legacy: LegacyPolicy) -> Policy:
    match legacy:
        case DangerFullAccess():
            return full_access()
        case ExternalSandbox(network_access=network):
            return Policy(None, network, PolicyKind.EXTERNAL)
        case ReadOnly(network_access=on):
            return read_only(_network(on=on))
        case WorkspaceWrite():
            return workspace_write(
                legacy.writable_roots,
                network=_network(on=legacy.network_access),
                tmpdir=not legacy.exclude_tmpdir_env_var,
                slash_tmp=not legacy.exclude_slash_tmp,
            )
        case _:
            assert_never(legacy)


def from_policy(policy: Policy, where: Where) -> LegacyPolicy:
    """The older policy that allows the same writes.

    Raises:
        UsageError: there is none, because it writes somewhere but not in the workspace.
    """
    bound = bind(policy, where)
    online = bound.network is Network.ON
    if policy.kind is PolicyKind.EXTERNAL:
        return ExternalSandbox(policy.network)
    if bound.full_write:
        return DangerFullAccess() if online else ExternalSandbox()
    if not bound.writable_roots():
        return ReadOnly(online)
    if bound.access_at(bound.cwd) is not Access.WRITE:
        raise UsageError(
            "permissions profile requests filesystem writes outside the workspace root, "
            "which the legacy sandbox policy cannot express"
        )
    return WorkspaceWrite(
        writable_roots=_extra_roots(bound),
        network_access=online,
        exclude_tmpdir_env_var=not _writes(policy, Place.TMPDIR),
        exclude_slash_tmp=not _writes(policy, Place.SLASH_TMP),
    )


def _network(*, on: bool) -> Network:
    return Network.ON if on else Network.OFF


def _writes(policy: Policy, place: Place) -> bool:
    return Rule(Special(place), Access.WRITE) in (policy.rules or ())


def _extra_roots(bound: Bound) -> tuple[str, ...]:
    """The writable paths that the workspace and the temporary directories do not stand for."""
    temporary = {
        rule.path
        for rule in bound.rules
        if rule.origin.target in (Special(Place.TMPDIR), Special(Place.SLASH_TMP))
    }
    plain = {rule.path for rule in bound.rules if isinstance(rule.origin.target, At)}
    paths = (root.path for root in bound.writable_roots())
    return tuple(path for path in paths if path != bound.cwd and (path in plain or path not in temporary))
